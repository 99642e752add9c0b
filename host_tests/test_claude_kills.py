"""SIGKILL of each program that takes part, at each step of a message's way through a real Claude Code.

Steps: before the message, after its notice, after the fetch, after the acknowledgement. Whatever is killed: the
message is acknowledged in the end, nothing acknowledged is shown again, and the next message wakes the session.
"""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.cli import layout

from host_tests.claude_host import ClaudeHost
from host_tests.claude_scene import NOTICE, READ, World, listening, served, servers
from host_tests.waiting import GUARD_S, until

STEPS = ("before", "notice", "fetch", "ack")
# Notices soon again, and relays asked soon again: what is tested is that they come, not after how long.
SOON = {"INTERLINK_NOTICE_SCHEDULE_S": "2", "INTERLINK_BACKOFF_MAX_S": "1"}


@pytest.fixture(params=STEPS)
def step(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Killer:
    """Kills once, when the model reaches this step."""

    def __init__(self, world: World, step: str, kill: Callable[[], None]) -> None:
        self.done = False
        self._step, self._kill = step, kill
        world.agent.at = self._reached

    def _reached(self, kind: str) -> None:
        if kind == self._step and not self.done:
            self._kill()
            self.done = True


def sigkill(pid: int) -> None:
    """SIGKILL, and return once the process is gone."""
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), f"the end of process {pid}")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@contextmanager
def started(world: World, claude: Path) -> Iterator[tuple[ClaudeHost, str]]:
    """A host that had a turn, so that it can be resumed, and its session, listening."""
    with world.host(claude, **SOON) as host:
        session = served(host)
        host.say("hello")
        assert host.result(0)["session_id"] == session
        listening(session)
        yield host, session


def settled(world: World, host: ClaudeHost, session: str, wakes: int) -> None:
    """The first message is through; a second one wakes the host; nothing was lost or came back.

    `wakes`: how many turns of this host began without the user, all in all.
    """
    until(lambda: world.acknowledged(session) == ["m-one"], "the acknowledgement of the first message")
    world.alice.send(session, "m-two")
    until(lambda: world.acknowledged(session) == ["m-one", "m-two"], "the second message acknowledged")
    until(lambda: len(woken(host)) >= wakes, "the ends of turns that began with a notice")
    assert world.agent.shown_again(["m-one", "m-two"]) == []
    assert world.stored(session) == ["m-one", "m-two"]
    assert any("m-two" in step.text for step in world.agent.of("fetch"))


def woken(host: ClaudeHost) -> list[dict[str, Any]]:
    """Ends of turns that began with no input of the user."""
    return [result for result in host.results() if result.get("origin", {}).get("kind") == "task-notification"]


@pytest.mark.req("M5", "M13", "M28")
def test_the_host_is_killed(claude: Path, world: World, step: str) -> None:
    with started(world, claude) as (host, session):
        if step == "before":
            sigkill(host.process.pid)
        else:
            Killer(world, step, host.process.kill)
        world.send(session, "m-one")
        host.process.wait(GUARD_S)
    if step == "ack":
        assert world.acknowledged(session) == ["m-one"]
    with world.host(claude, "--resume", session, **SOON) as host:
        assert served(host) == session
        settled(world, host, session, 1 if step == "ack" else 2)


@pytest.mark.req("M5", "M13", "M28")
def test_the_server_is_killed(claude: Path, world: World, step: str) -> None:
    with started(world, claude) as (host, session):
        (server,) = servers(host)
        if step == "before":
            sigkill(server)
            world.send(session, "m-one")
        else:
            killer = Killer(world, step, lambda: sigkill(server))
            world.send(session, "m-one")
            until(lambda: killer.done and woken(host), "the end of the turn in which the server was killed")
        while not [pid for pid in servers(host) if pid != server] or not world.stored(session):
            ends = len(host.results())
            host.say(READ)  # the host starts its server again for a call; the one that finds it dead may fail
            host.result(ends)
        settled(world, host, session, 1 + (step != "before"))


@pytest.mark.req("C3", "C8", "C11")
def test_the_listener_is_killed(claude: Path, world: World, step: str) -> None:
    with started(world, claude) as (host, session):
        (listener,) = listening(session)
        if step == "before":
            sigkill(listener)
        else:
            os.kill(listener, signal.SIGSTOP)  # so that it is killed with the notice there, and not printed
        world.send(session, "m-one")
        inbox = Path(layout().inbox(session))
        until(lambda: inbox.exists() and NOTICE.search(inbox.read_text("utf-8")), "the notice in the inbox")
        read = step in ("fetch", "ack")
        if step == "notice":
            sigkill(listener)
        killer = Killer(world, step if read else "", lambda: sigkill(listener))
        host.say(READ if read else "hello")  # the Stop of this turn starts the next listener
        until(lambda: killer.done or not read, "the listener killed")
        until(lambda: world.acknowledged(session) == ["m-one"], "the acknowledgement of the first message")
        left = {json.loads(line)["msg_id"] for line in inbox.read_text("utf-8").splitlines()}
        settled(world, host, session, 1 if read else 2)
    shown = "".join(step.text for step in world.agent.of("notice"))
    # What the user has read by then wakes nobody: the next listener passes over the notices that were left.
    assert not read or not any(ident in shown for ident in left), (left, shown)


@pytest.mark.req("M1", "T5", "B2")
def test_the_relay_is_killed(claude: Path, world: World, step: str) -> None:
    with started(world, claude) as (host, session):
        if step == "before":
            world.relay.kill()
            assert "pending" in world.send(session, "m-one")
        else:
            killer = Killer(world, step, world.relay.kill)
            world.send(session, "m-one")
            until(lambda: killer.done and world.acknowledged(session) == ["m-one"], "acknowledged without a relay")
        world.relay.start()
        settled(world, host, session, 2)
