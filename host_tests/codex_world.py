"""A whole world around one real Codex: what `interlink setup codex` wrote, a scripted model, a relay, a friend.

    with a_world(program) as world:
        world.codex.trust()
        with world.codex.daemon() as client:
            thread = bound(world, client)

Everything is removed at the end, also after a failure: a home in which a daemon ran is large.
"""

import json
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from support import isolation
from support.cli import layout, me, now_ms, ok
from support.keys import ALICE, BOB
from support.relay import RelayProcess
from support.setup import install

from host_tests import leftovers, recorder
from host_tests.codex_host import Client, CodexHome
from host_tests.fake_messages_api import Answer, Say, Turn, Use
from host_tests.fake_responses_api import FakeResponses
from host_tests.friend import Alice
from host_tests.waiting import until
from interlink.hosts.failed import FailedStore, Failure
from interlink.mailbox.record import Notice, Record
from interlink.mailbox.store import Mailbox
from interlink.settings import Settings
from interlink_lab.tools import hosts

VERSIONS = hosts.known()["codex"][1]
BIND = "bind_codex_session"
NOTICE = "[Interlink inbox notice]"
ASKS = ("mcpServer/elicitation/request", "item/tool/requestUserInput", "applyPatchApproval", "execCommandApproval")


def agent(turn: Turn) -> Answer:
    """A model that does what the notice says: fetch, act, acknowledge; and `TOOL name` on request."""
    results = turn.results
    if not turn.prompt.startswith(f"TOOL {BIND}"):
        results = [result for result in results if "unsupported call" not in result.text]
        if len(results) != len(turn.results):
            time.sleep(0.1)  # the host does not wait for its servers: there were no tools of ours yet
    if turn.prompt.startswith("TOOL "):
        name, _, arguments = turn.prompt.removeprefix("TOOL ").partition(" ")
        return Say("done") if results else Use(f"interlink.{name}", json.loads(arguments or "{}"))
    if NOTICE not in turn.prompt:
        return Say("OK")
    if not results:
        ident = re.search(r'receive_messages\(notification_id="([^"]+)"\)', turn.prompt)
        return Use("interlink.receive_messages", {"notification_id": ident[1] if ident else "none"})
    if len(results) == 1:
        return Use("interlink.acknowledge_messages", {"messages": receipts(results[0].text)})
    return Say("done")


def receipts(page: str) -> list[dict[str, str]]:
    """The receipts in an answer of receive_messages."""
    lines = [line for line in page.splitlines() if "] Receipt: " in line]
    return [json.loads(line.split("] Receipt: ", 1)[1]) for line in lines]


class World(NamedTuple):
    """A Codex that setup has been run for, its model, the relay, a friend who writes."""

    codex: CodexHome
    api: FakeResponses
    relay: str
    alice: Alice
    folder: Path

    def set_up(self, *more: str, program: Path | None = None) -> None:
        """Run `interlink setup codex` as its user does."""
        path = program or install(self.folder / "in stalled")
        options = ["--url", self.relay, *([] if more else ["--codex-bin", str(self.codex.program)]), *more]
        env = {"CODEX_HOME": str(self.codex.home)}
        ok("setup", "codex", "--yes", "--program", str(path), *options, env=env)

    def record(self) -> Path:
        """From now on, what Codex asks of servers, and these of `codex queue`, is in this file (recorder.py)."""
        log, folder = self.folder / "asked", self.folder / "recorded"
        server = install(self.folder / "in stalled")
        folder.mkdir()
        # The adapter looks for the version in the package around the program.
        package = self.codex.program.resolve().parents[1] / "package.json"
        shutil.copy(package, folder / "package.json")
        paths = []
        for mode, program in (("calls", server), ("runs", self.codex.program)):
            words = shlex.join([sys.executable, recorder.__file__, str(log), mode, str(program)])
            paths.append(folder / program.name)
            paths[-1].write_text(f'#!/bin/sh\nexec {words} "$@"\n')
            paths[-1].chmod(0o755)
        self.set_up("--codex-bin", str(paths[1]), program=paths[0])
        return log

    def settings(self, **values: str) -> None:
        """Settings of the server, as its user writes them into the configuration."""
        table = ", ".join(f"{name} = {json.dumps(value)}" for name, value in values.items())
        self.edit('args = ["--host"', f'env = {{ {table} }}\nargs = ["--host"')

    def edit(self, old: str, new: str) -> None:
        """Change the one place in config.toml that reads so."""
        path = self.codex.home / "config.toml"
        text = path.read_text("utf-8")
        assert text.count(old) == 1, (old, text)
        path.write_text(text.replace(old, new), "utf-8")

    def until_no_server(self) -> None:
        """Return once no server of ours runs for this Codex: they end some time after what started them."""

        def gone() -> bool:
            return not any("interlink.cli.mcp" in one.command for one in leftovers.of(str(self.codex.home)))

        until(gone, "the end of the servers")

    def model_results(self, prompt: str) -> list[str]:
        """What the tools have given in the last turn that began with this text."""
        found = [turn for turn in self.api.turns() if turn.prompt == prompt]
        return [result.text for result in found[-1].results] if found else []

    def notices(self) -> list[Turn]:
        """The model's first steps of turns that a notice began."""
        return [turn for turn in self.api.turns() if NOTICE in turn.prompt and not turn.results]


@contextmanager
def a_world(program: Path, **settings: str) -> Iterator[World]:
    """A world in a home of its own; `settings` go into the server's part of the configuration."""
    with contextmanager(isolation.one_home)():
        folder = Path(tempfile.mkdtemp(prefix="ilk-"))  # short: the daemon's socket is below it
        left: list[leftovers.Left] = []
        try:
            me(BOB, alice=ALICE)
            with RelayProcess("--db", str(folder / "relay.db")) as relay, FakeResponses(agent) as api:
                alice = Alice(folder / "alice", relay.url)
                with alice.client:
                    world = World(CodexHome(program, folder, api.url), api, relay.url, alice, folder)
                    world.set_up()
                    if settings:
                        world.settings(**settings)
                    yield world
                    assert not (folder / "home" / ".codex").exists(), "something ran without CODEX_HOME"
        finally:
            left = leftovers.end(str(folder))
            shutil.rmtree(folder, ignore_errors=True)
        assert not left, left


def bound(world: World, client: Client, **start: Any) -> str:
    """A new thread whose first turn is over, so that it is bound."""
    thread = client.thread(world.codex.work, **start)
    client.say(thread, "hello")
    return thread


def mailbox(session: str) -> Mailbox:
    return Mailbox(layout(), BOB.public, session, Settings())


def records(session: str) -> list[Record]:
    """What a session's mailbox has on disk, in order of arrival."""
    found = mailbox(session).read().records.values()
    return sorted(found, key=lambda record: record.seq)


def states(session: str) -> dict[str, str]:
    """Text -> state of what a session's mailbox has on disk."""
    return {record.message.text: record.state for record in records(session)}


def acknowledged(session: str) -> list[str]:
    """Texts of the consumed messages of a session."""
    return [text for text, state in states(session).items() if state == "receiver_acknowledged"]


def notice(session: str) -> Notice | None:
    """The reservation on disk."""
    return mailbox(session).read().head.notice


def failures(session: str) -> list[Failure]:
    """What `failed_deliveries` would list."""
    return FailedStore(layout(), BOB.public, session, Settings()).entries(now_ms())


def arrives(world: World, session: str, text: str, state: str) -> None:
    """Alice writes; the message is on bob's disk, in this state after its notice."""
    world.alice.send(session, text)
    until(lambda: states(session).get(text) == state, f"{text!r} in state {state}: {states(session)}")
