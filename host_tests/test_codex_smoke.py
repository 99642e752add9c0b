"""The real Codex with what `interlink setup codex` writes, a scripted model, a real relay.

What it was seen to do: hooks that nobody trusted are skipped and the session stays unbound; trusted ones bind it;
an idle thread of the daemon is woken by `codex queue`, fetches and acknowledges without a person's approval; what
Codex wrote into our part of its configuration outlives a later setup.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from host_tests.codex_world import ASKS, NOTICE, VERSIONS, World, a_world, acknowledged, bound
from host_tests.waiting import until
from interlink.doctor.codex import hook_hash


@pytest.fixture(params=VERSIONS)
def world(request: pytest.FixtureRequest, host: Callable[[str, str], Path]) -> Iterator[World]:
    with a_world(host("codex", request.param)) as world:
        yield world


@pytest.mark.req("X1", "H15")
def test_hooks_are_those_that_codex_knows_and_trust_outlives_a_later_setup(world: World) -> None:
    codex = world.codex
    checked = codex.run("exec", "--strict-config", "--skip-git-repo-check", "hello")
    assert checked.returncode == 0, checked
    found = {hook["eventName"]: hook for hook in codex.hooks()}
    assert set(found) == {"sessionStart", "userPromptSubmit", "preToolUse", "stop"}
    for name, hook in found.items():
        handler = {"type": "mcp_tool", "server": "interlink", "tool": "bind_codex_session"}
        handler["input"] = {"thread_id": "${session_id}"}
        group = {"matcher": hook["matcher"]} if hook.get("matcher") else {}
        assert hook["currentHash"] == hook_hash(name[0].upper() + name[1:], group, handler)
        assert hook["trustStatus"] == "untrusted"
    codex.trust()
    assert [hook["trustStatus"] for hook in codex.hooks()] == ["trusted"] * 4
    world.set_up("--name", "new name")
    assert [hook["trustStatus"] for hook in codex.hooks()] == ["trusted"] * 4
    checked = codex.run("exec", "--strict-config", "--skip-git-repo-check", "hello")
    assert checked.returncode == 0, checked


@pytest.mark.req("X1", "H13")
def test_without_trust_the_session_stays_unbound_and_says_so(world: World) -> None:
    with world.codex.daemon() as client:
        thread = client.thread(world.codex.work)
        client.say(thread, "TOOL receive_messages")
        assert "not bound" in world.api.turns()[-1].results[0].text
        client.say(thread, f'TOOL bind_codex_session {{"thread_id": "{thread}"}}')
        assert "unsupported call" in world.api.turns()[-1].results[0].text
        assert thread not in world.alice.call("list_peers")


@pytest.mark.req("X1", "X2", "H15")
def test_an_idle_thread_is_bound_woken_fetches_and_acknowledges_unattended(world: World) -> None:
    world.codex.trust()
    with world.codex.daemon() as client:
        thread = bound(world, client)
        for text in ("the build is green", "and deployed"):
            world.alice.send(thread, text)
            until(lambda text=text: text in acknowledged(thread), f"{text!r} acknowledged")
        assert not client.of(*ASKS)  # nobody was asked for anything
        until(lambda: len(client.of("turn/completed")) == 3, "the ends of three turns")
    turns = [turn for turn in world.api.turns() if NOTICE in turn.prompt]
    assert len(turns) == 6 and not any("green" in turn.prompt or "deployed" in turn.prompt for turn in turns)
    assert {ident for ident, _body in world.api.requests} == {thread}
