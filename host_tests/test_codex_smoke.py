"""The real Codex with what `interlink setup codex` writes, a scripted model, a real relay.

What it was seen to do: hooks that nobody trusted are skipped and the session stays unbound; trusted ones bind it;
an idle thread of the daemon is woken by `codex queue`, fetches and acknowledges without a person's approval; what
Codex wrote into our part of its configuration outlives a later setup.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support import isolation
from support.cli import layout, me, ok
from support.keys import ALICE, BOB
from support.relay import RelayProcess
from support.setup import install

from host_tests.codex_host import CodexHome
from host_tests.fake_messages_api import Answer, Say, Turn, Use
from host_tests.fake_responses_api import FakeResponses
from host_tests.friend import Alice
from host_tests.waiting import until
from interlink.doctor.codex import hook_hash
from interlink.mailbox.store import Mailbox
from interlink.settings import Settings
from interlink_lab.tools import hosts

VERSIONS = hosts.known()["codex"][1]
NOTICE = "[Interlink inbox notice]"
ASKS = ("mcpServer/elicitation/request", "item/tool/requestUserInput", "applyPatchApproval", "execCommandApproval")


@pytest.fixture(autouse=True)
def own_home() -> Iterator[str]:
    yield from isolation.one_home()


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short path, for sockets; what a daemon copies into it is large."""
    folder = Path(tempfile.mkdtemp(prefix="ilk-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def agent(turn: Turn) -> Answer:
    """A model that does what the notice says: fetch, act, acknowledge; and `TOOL name` on request."""
    if turn.prompt.startswith("TOOL ") and not turn.results:
        name, _, arguments = turn.prompt.removeprefix("TOOL ").partition(" ")
        return Use(f"interlink.{name}", json.loads(arguments or "{}"))
    if NOTICE not in turn.prompt:
        return Say("OK")
    if not turn.results:
        ident = re.search(r'receive_messages\(notification_id="([^"]+)"\)', turn.prompt)
        return Use("interlink.receive_messages", {"notification_id": ident[1] if ident else "none"})
    if len(turn.results) == 1:
        lines = [line for line in turn.results[0].text.splitlines() if "] Receipt: " in line]
        receipts = [json.loads(line.split("] Receipt: ", 1)[1]) for line in lines]
        return Use("interlink.acknowledge_messages", {"messages": receipts})
    return Say("done")


class World(NamedTuple):
    """A Codex that setup has been run for, its model, the relay, a friend who writes."""

    codex: CodexHome
    api: FakeResponses
    relay: str
    alice: Alice


@pytest.fixture(params=VERSIONS)
def world(request: pytest.FixtureRequest, host: Callable[[str, str], Path], short: Path) -> Iterator[World]:
    program = host("codex", request.param)
    me(BOB, alice=ALICE)
    with RelayProcess("--db", str(short / "relay.db")) as relay, FakeResponses(agent) as api:
        alice = Alice(short / "alice", relay.url)
        with alice.client:
            world = World(CodexHome(program, short, api.url), api, relay.url, alice)
            set_up(world, short)
            yield world


def set_up(world: World, folder: Path, *more: str) -> None:
    options = ["--url", world.relay, "--codex-bin", str(world.codex.program), *more]
    program = install(folder / "in stalled")
    ok("setup", "codex", "--yes", "--program", str(program), *options, env={"CODEX_HOME": str(world.codex.home)})


def acknowledged(session: str) -> list[str]:
    """Texts of the consumed messages of a session."""
    records = Mailbox(layout(), BOB.public, session, Settings()).read().records.values()
    return [record.message.text for record in records if record.state == "receiver_acknowledged"]


@pytest.mark.req("X1", "H15")
def test_hooks_are_those_that_codex_knows_and_trust_outlives_a_later_setup(world: World, short: Path) -> None:
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
    set_up(world, short, "--name", "new name")
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
        thread = client.thread(world.codex.work)
        client.say(thread, "hello")
        for text in ("the build is green", "and deployed"):
            world.alice.send(thread, text)
            until(lambda text=text: text in acknowledged(thread), f"{text!r} acknowledged")
        assert not client.of(*ASKS)  # nobody was asked for anything
        until(lambda: len(client.of("turn/completed")) == 3, "the ends of three turns")
    turns = [turn for turn in world.api.turns() if NOTICE in turn.prompt]
    assert len(turns) == 6 and not any("green" in turn.prompt or "deployed" in turn.prompt for turn in turns)
    assert {ident for ident, _body in world.api.requests} == {thread}
