"""The real Claude Code and the real Codex over one relay: a task is delegated, asked about, answered, done.

Both models are scripted, both hosts are set up by `interlink setup`, and each is woken by notices alone. Paired
are the newest versions and the oldest.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support import isolation
from support.cli import layout, me, peers_path
from support.keys import BOB, CAROL
from support.mcp_client import RawClient
from support.programs import program

from host_tests.claude_host import TOOL, ClaudeHost, set_up
from host_tests.claude_scene import listening, served
from host_tests.codex_world import NOTICE, World, a_world, bound, receipts, records
from host_tests.fake_messages_api import Answer, FakeMessages, Say, Turn, Use
from host_tests.waiting import until
from interlink.mailbox.record import Record
from interlink.mailbox.store import Mailbox
from interlink.settings import Settings
from interlink.trust.peers import PeersFile
from interlink_lab.tools import hosts

TASK, QUESTION, ANSWER, RESULT = "run the tests", "with which Python?", "with 3.11", "all green"
STEPS = ("started", "half done")
ENTRY = re.compile(r'<interlink (sender|to)="[^"]*" msg_id="([^"]*)"([^>]*)>\n(.*?)\n</interlink>', re.DOTALL)
PAIRS = [tuple(hosts.known()[name][1][at] for name in ("claude", "codex")) for at in (-1, 0)]


class Entry(NamedTuple):
    """One message of a conversation, as its history shows it."""

    direction: str
    msg_id: str
    more: str  # task, status, in_reply_to
    text: str


def at_the_notice(prefix: str, turn: Turn, answers: Callable[[str], list[dict[str, str]]]) -> Answer:
    """Fetch, acknowledge, then send what `answers` makes of the fetched page, one message after another."""
    done = [result for result in turn.results if "unsupported call" not in result.text]
    if not done:
        ident = re.search(r'receive_messages\(notification_id="([^"]+)"\)', turn.prompt)
        return Use(prefix + "receive_messages", {"notification_id": ident[1] if ident else "none"})
    if len(done) == 1:
        return Use(prefix + "acknowledge_messages", {"messages": receipts(done[0].text)})
    rest = answers(done[0].text)[len(done) - 2 :]
    return Use(prefix + "send_message", rest[0]) if rest else Say("done")


def claude_model(turn: Turn) -> Answer:
    """Delegates on the user's word; answers the question."""

    def answers(page: str) -> list[dict[str, str]]:
        if QUESTION not in page:
            return []
        (question,) = [ident for _, ident, _, text in ENTRY.findall(page) if text == QUESTION]
        return [{"to": "codex", "text": ANSWER, "task_id": "t1", "in_reply_to": question}]

    if turn.prompt == "delegate":
        sent = {"to": "codex", "text": TASK, "task_id": "t1"}
        return Say("sent") if turn.results else Use(TOOL + "send_message", sent)
    return at_the_notice(TOOL, turn, answers) if NOTICE in turn.prompt else Say("OK")


def codex_model(turn: Turn) -> Answer:
    """Tells of its progress, asks; finishes when it has the answer."""

    def answers(page: str) -> list[dict[str, str]]:
        if ANSWER in page:
            return [about(RESULT, "result")]
        return [*(about(step, "update") for step in STEPS), about(QUESTION, "needs_input")]

    def about(text: str, status: str) -> dict[str, str]:
        return {"to": "claude", "text": text, "task_id": "t1", "status": status}

    if turn.prompt.startswith("TOOL "):
        return Say("done") if turn.results else Use("interlink.conversation_history", {"peer": "claude"})
    return at_the_notice("interlink.", turn, answers) if NOTICE in turn.prompt else Say("OK")


@contextmanager
def at(home: Path) -> Iterator[None]:
    """Inside, this process looks at the home of the other user."""
    before = os.environ["HOME"]
    isolation.use_home(str(home))
    try:
        yield
    finally:
        isolation.use_home(before)


@contextmanager
def a_claude(world: World, program: Path, api: FakeMessages) -> Iterator[tuple[ClaudeHost, str, Path]]:
    """Carol's Claude Code, its session and her home; it knows bob as `codex`, and he her as `claude`."""
    PeersFile(peers_path(), BOB.public, Settings()).add("claude", CAROL.public)
    home = world.folder / "carol"
    home.mkdir()
    with at(home):
        me(CAROL, codex=BOB)
        env = set_up(world.folder / "claude", "--url", world.relay)
        host = ClaudeHost(program, world.folder / "claude", env, api.url)
    with host:
        with at(home):
            session = served(host)
            listening(session)
        yield host, session, home


def carols(home: Path, session: str) -> list[Record]:
    """What Claude's mailbox has on disk."""
    with at(home):
        return list(Mailbox(layout(), CAROL.public, session, Settings()).read().records.values())


def conversation(text: str) -> list[Entry]:
    return [Entry(*found) for found in ENTRY.findall(text)]


def claudes_history(world: World, home: Path, session: str) -> str:
    """Of the session that has ended: what a server that takes it up again says."""
    with (
        at(home),
        RawClient([*program("interlink-mcp"), "--session", session], {"INTERLINK_URL": world.relay}) as c,
    ):
        c.handshake()
        c.call(1, "conversation_history", {"peer": "codex"})
        return str(c.answer(1)["result"]["content"][0]["text"])


def is_done(record: Record) -> bool:
    return record.state == "receiver_acknowledged" or bool(record.superseded_by)


@pytest.mark.parametrize(("claude", "codex"), PAIRS)
@pytest.mark.req("B5", "M2", "M14")
def test_a_task_goes_to_codex_and_its_result_back(
    claude: str, codex: str, host: Callable[[str, str], Path]
) -> None:
    programs = host("claude", claude), host("codex", codex)
    with a_world(programs[1]) as world, FakeMessages(claude_model) as api:
        world.api.model = codex_model
        world.codex.trust()
        with world.codex.daemon() as client, a_claude(world, programs[0], api) as (carol, session, home):
            thread = bound(world, client)
            until(lambda: thread in world.alice.call("list_peers"), "the thread on the relay")
            carol.say("delegate")

            def finished() -> bool:
                texts = [record.message.text for record in carols(home, session) if is_done(record)]
                return RESULT in texts and QUESTION in texts

            until(finished, "the result, acknowledged")
            until(lambda: len(client.ended(thread)) == 3, "the ends of Codex's turns")
            until(lambda: len(carol.results()) == 3, "the ends of Claude's turns")
            client.say(thread, "TOOL conversation_history")
            codexs = conversation(world.model_results("TOOL conversation_history")[-1])
            assert all(is_done(record) for record in [*records(thread), *carols(home, session)])
            origins: list[Any] = [result.get("origin", {}).get("kind") for result in carol.results()]
        # Delegated by its user, then asked, then told: progress woke nobody.
        assert origins == [None, "task-notification", "task-notification"]
        assert len(world.notices()) == 2  # the task, and the answer
        claudes = conversation(claudes_history(world, home, session))
    other = {"sender": "to", "to": "sender"}
    assert claudes == [entry._replace(direction=other[entry.direction]) for entry in codexs]
    assert [(entry.direction, entry.text) for entry in claudes] == [
        ("to", TASK),
        *(("sender", text) for text in (*STEPS, QUESTION)),
        ("to", ANSWER),
        ("sender", RESULT),
    ]
    statuses = [re.findall(r'status="(\w+)"', entry.more) for entry in claudes]
    assert statuses == [[], ["update"], ["update"], ["needs_input"], [], ["result"]]
    assert f'in_reply_to="{claudes[3].msg_id}"' in claudes[4].more
