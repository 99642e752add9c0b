"""The real Claude Code with the plugin that `interlink setup claude` installs, a scripted model, a real relay.

What it was seen to do: an idle session is woken by the listener's exit 2 with no input, from its first second on
(SessionStart), again after each turn (Stop) and after a failed one (StopFailure), also where `/clear` or
`--continue` give server and hooks different ids; a one-shot run is not held up.
"""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.cli import layout, me
from support.keys import ALICE, BOB
from support.relay import RelayProcess

from host_tests.claude_host import STREAM, TOOL, ClaudeHost, command, set_up
from host_tests.fake_messages_api import Answer, Fail, FakeMessages, Say, Turn, Use
from host_tests.friend import Alice
from host_tests.waiting import GUARD_S, until
from interlink.hosts import registry
from interlink.mailbox.store import Mailbox
from interlink.settings import Settings
from interlink.state.locks import holder_pids
from interlink.state.process import Process
from interlink_lab.tools import hosts

VERSIONS = hosts.known()["claude"][1]
NOTICE = "[Interlink inbox notice]"


@pytest.fixture(params=VERSIONS)
def claude(request: pytest.FixtureRequest, host: Callable[[str, str], Path]) -> Path:
    return host("claude", request.param)


def agent(turn: Turn) -> Answer:
    """A model that does what the plugin's skill says: fetch, act, acknowledge."""
    if NOTICE not in turn.prompt:
        return Say("OK")
    if not turn.results:
        ident = re.search(r'receive_messages\(notification_id="([^"]+)"\)', turn.prompt)
        return Use(TOOL + "receive_messages", {"notification_id": ident[1] if ident else "none"})
    if len(turn.results) == 1:
        lines = [line for line in turn.results[0].text.splitlines() if "] Receipt: " in line]
        receipts = [json.loads(line.split("] Receipt: ", 1)[1]) for line in lines]
        return Use(TOOL + "acknowledge_messages", {"messages": receipts})
    return Say("done")


class World(NamedTuple):
    """Claude's environment, its model, a friend who writes."""

    env: dict[str, str]
    api: FakeMessages
    alice: Alice
    folder: Path


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    me(BOB, alice=ALICE)
    with RelayProcess("--db", str(tmp_path / "relay.db")) as relay, FakeMessages(agent) as api:
        alice = Alice(tmp_path / "alice", relay.url)
        env = set_up(tmp_path / "claude", "--url", relay.url)
        with alice.client:
            yield World(env, api, alice, tmp_path / "claude")


def served(host: ClaudeHost) -> str:
    """The session that the host's server serves, once it does."""
    found = until(lambda: registry.session_of(layout(), Process.of(host.process.pid)), "the plugin's server")
    return str(found)


def listening(session: str) -> list[int]:
    """The listener of a session, once there is one."""
    path = layout().inbox(session, "lock")
    return list(until(lambda: os.path.exists(path) and holder_pids(path), f"a listener of {session}"))


def acknowledged(session: str) -> list[str]:
    """Texts of the consumed messages of a session."""
    records = Mailbox(layout(), BOB.public, session, Settings()).read().records.values()
    return [record.message.text for record in records if record.state == "receiver_acknowledged"]


def woken(world: World, host: ClaudeHost, session: str, text: str) -> None:
    """A message wakes the idle session without any input, is fetched and acknowledged."""
    ends = len(host.results())
    world.alice.send(session, text)
    result = host.result(ends)
    assert result["origin"]["kind"] == "task-notification", result
    prompts = [turn_text(request) for request in world.api.requests]
    assert any(NOTICE in prompt for prompt in prompts) and not any(text in prompt for prompt in prompts)
    fetched, done = world.api.tool_results()
    assert text in fetched.text and not fetched.failed | done.failed
    assert '"newly":1,' in done.text  # this host shows the structured form of an answer that has one
    until(lambda: text in acknowledged(session), "the acknowledgement on disk")


def turn_text(request: dict[str, Any]) -> str:
    """What the host itself put into the conversation."""
    texts = []
    for message in request["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        texts += [block["text"] for block in blocks if message["role"] == "user" and block["type"] == "text"]
    return "\n".join(texts)


@pytest.mark.req("C1", "H5", "M3")
def test_an_idle_session_is_woken_fetches_acknowledges_and_listens_again(claude: Path, world: World) -> None:
    with ClaudeHost(claude, world.folder, world.env, world.api.url) as host:
        session = served(host)
        first = listening(session)  # armed at SessionStart: there was no turn yet
        woken(world, host, session, "the build is green")
        second = until(lambda: [pid for pid in listening(session) if pid not in first], "the next listener")
        woken(world, host, session, "and deployed")
        assert listening(session) != second
        host.say("hello")
        assert "origin" not in host.result(2)
    # SIGTERM to the host ends server and listeners, and nothing has been asked of the model but what was to be.
    until(lambda: not holder_pids(layout().inbox(session, "lock")), "the end of the listener")
    assert len(world.api.requests) == 3 + 3 + 1


@pytest.mark.req("H4", "C5", "H5")
def test_server_and_hooks_meet_after_clear_and_continue(claude: Path, world: World) -> None:
    with ClaudeHost(claude, world.folder, world.env, world.api.url) as host:
        session = served(host)
        host.say("hello")
        host.result(0)
        host.say("/clear")
        host.result(1)
        listening(session)
        woken(world, host, session, "after clear")
    with ClaudeHost(claude, world.folder, world.env, world.api.url, "--continue") as host:
        other = served(host)
        assert other != session
        listening(other)
        woken(world, host, other, "after continue")


@pytest.mark.req("H5")
def test_after_an_error_of_the_model_the_session_still_listens(claude: Path, world: World) -> None:
    soon = {**world.env, "INTERLINK_NOTICE_SCHEDULE_S": "2"}
    with ClaudeHost(claude, world.folder, soon, world.api.url) as host:
        session = served(host)
        first = listening(session)
        world.api.model = lambda _turn: Fail(400)
        world.alice.send(session, "still here?")
        assert host.result(0)["is_error"]
        until(lambda: [pid for pid in listening(session) if pid not in first], "the listener of StopFailure")
        world.api.model = agent
        until(lambda: acknowledged(session) == ["still here?"], "the next notice, and the acknowledgement")


@pytest.mark.req("H6")
def test_a_one_shot_run_ends_after_its_result(claude: Path, world: World) -> None:
    began = time.monotonic()
    process = subprocess.Popen(
        command(claude, "hello", *STREAM[2:]),
        cwd=world.folder / "work",
        env={**world.env, "ANTHROPIC_BASE_URL": world.api.url},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    answered = began
    for line in process.stdout:
        if line.startswith("{") and json.loads(line).get("type") == "result":
            answered = time.monotonic()
    assert process.wait(GUARD_S) == 0 and answered > began
    # Held up, it would stay until the hook's limit of an hour. Promised are 5 s, for a machine that is not busy.
    assert time.monotonic() - answered < 30
