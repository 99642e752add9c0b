"""The hooks of the shipped configuration in the real Codex: which are trusted, what a change does, who may bind.

Trust is a person's. Here it is given by what interlink computes without Codex, so that each version says whether
`interlink doctor` reads its files as it does itself.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.cli import interlink

from host_tests.codex_world import BIND, VERSIONS, World, a_world, agent, arrives, bound
from host_tests.fake_messages_api import Answer, Say, Turn, Use
from host_tests.recorder import noted
from host_tests.waiting import until
from interlink.doctor.codex import hook_hash

EVENTS = ("SessionStart", "UserPromptSubmit", "PreToolUse", "Stop")


@pytest.fixture(params=VERSIONS)
def world(request: pytest.FixtureRequest, host: Callable[[str, str], Path]) -> Iterator[World]:
    with a_world(host("codex", request.param)) as world:
        yield world


def trust_offline(world: World) -> None:
    """Write the trust of each hook as computed from the configuration alone."""
    path = world.codex.home / "config.toml"
    hooks = tomllib.loads(path.read_text("utf-8"))["hooks"]
    lines = []
    for event in EVENTS:
        (group,) = hooks[event]
        (handler,) = group["hooks"]
        snake = re.sub(r"(?<!^)([A-Z])", r"_\1", event).lower()
        lines += [f'[hooks.state."{path}:{snake}:0:0"]', f'trusted_hash = "{hook_hash(event, group, handler)}"']
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" + "\n".join(lines) + "\n")


def trusts(world: World) -> dict[str, str]:
    """Event -> trust, by Codex itself."""
    return {
        hook["eventName"][0].upper() + hook["eventName"][1:]: hook["trustStatus"] for hook in world.codex.hooks()
    }


def doctors(world: World) -> dict[str, str]:
    """Event -> trust, by `interlink doctor`."""
    said = interlink("doctor", "--json", env={"CODEX_HOME": str(world.codex.home)}).json
    (found,) = [row["data"]["hooks"] for row in said["findings"] if "hooks" in (row.get("data") or {})]
    return dict(found)


def exec_tool(world: World, tool: str) -> str:
    """What a read-only tool says to the model of a `codex exec`."""
    done = world.codex.run("exec", "--skip-git-repo-check", f"TOOL {tool}")
    assert done.returncode == 0, done
    return world.model_results(f"TOOL {tool}")[-1]


@pytest.mark.req("X1", "H12")
def test_trust_computed_offline_is_what_codex_and_doctor_say_and_a_changed_hook_loses_it(world: World) -> None:
    assert trusts(world) == doctors(world) == dict.fromkeys(EVENTS, "untrusted")
    assert "not bound" in exec_tool(world, "receive_messages")
    trust_offline(world)
    assert trusts(world) == doctors(world) == dict.fromkeys(EVENTS, "trusted")
    assert "No unread messages" in exec_tool(world, "receive_messages")  # bound: the mailbox is there
    path = world.codex.home / "config.toml"
    trusted = path.read_text("utf-8")
    path.write_text(trusted.replace('tool = "bind_codex_session"\n', 'tool = "bind_codex_session"\ntimeout = 5\n'))
    assert trusts(world) == doctors(world) == dict.fromkeys(EVENTS, "modified")
    assert "not bound" in exec_tool(world, "receive_messages")
    path.write_text(trusted.replace('matcher = "^mcp__interlink__"', 'matcher = "^mcp__"'))
    changed = {**dict.fromkeys(EVENTS, "trusted"), "PreToolUse": "modified"}
    assert trusts(world) == doctors(world) == changed
    world.set_up()  # puts back what was changed in our part; the trust that is there counts again
    assert trusts(world) == dict.fromkeys(EVENTS, "trusted")


@pytest.mark.req("X1", "H12", "H13")
def test_the_model_cannot_bind_and_hooks_complete_without_a_word(world: World) -> None:
    world.codex.trust()
    with world.codex.daemon() as client:
        thread = bound(world, client)
        other = "00000000-0000-4000-8000-000000000000"
        for target in (thread, other):
            client.say(thread, f'TOOL bind_codex_session {{"thread_id": "{target}"}}')
            assert "unsupported call" in world.api.turns()[-1].results[0].text
        for _ident, body in world.api.requests:
            assert "bind_codex_session" not in json.dumps(body.get("tools"))
        arrives(world, thread, "still bound", "receiver_acknowledged")
        runs = [event["params"]["run"] for event in client.of("hook/completed")]
        assert {run["status"] for run in runs} == {"completed"}
        assert not any(run.get("entries") for run in runs)  # nothing went into the model's context
        assert other not in world.alice.call("list_peers")


@pytest.mark.req("X1", "H13")
def test_a_sub_agent_binds_nothing(world: World) -> None:
    """It has a server of its own, and hooks that name its parent's session: that server must stay unbound."""

    def model(turn: Turn) -> Answer:
        if turn.prompt != "delegate":
            return agent(turn)
        if not turn.results:
            return Use(":multi_agent_v1.spawn_agent", {"message": "TOOL receive_messages"})
        return Say("delegated")

    world.codex.trust()
    world.api.model = model
    log = world.record()
    with world.codex.daemon() as client:
        thread = bound(world, client)
        client.say(thread, "delegate")
        until(lambda: world.model_results("TOOL receive_messages"), "the sub-agent's call")
        said = world.model_results("TOOL receive_messages")[-1]
        assert "not bound" in said and "sub-agent" in said
        arrives(world, thread, "for the parent", "receiver_acknowledged")
        assert world.alice.call("list_peers").count("(live)") == 1  # no second session of bob
    (child,) = {ident for ident, _body in world.api.requests} - {thread}
    binds = [call for call in noted(log) if call.get("name") == BIND]
    assert {call["arguments"]["thread_id"] for call in binds} == {thread}
    assert {call["meta"]["threadId"] for call in binds} == {thread, child}
    assert len({call["pid"] for call in binds}) == 2  # a server of its own
