"""State that the Rust programs wrote, under ours; and the way back."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from host_tests.peer import Desk, befriend, http, relay
from host_tests.waiting import until
from interlink_lab import codex_stub
from interlink_lab.programs import Relay, read_inbox
from interlink_lab.wire import Signer

THREAD = "01900000-1234-7000-8000-123456789abc"


@pytest.fixture
def bus(tmp_path: Path, peer: Callable[[], Path]) -> Iterator[Relay]:
    one = relay(tmp_path / "relay", "theirs", peer())
    one.start()
    yield one
    one.stop()


@pytest.fixture
def theirs(bus: Relay, tmp_path: Path, peer: Callable[[], Path]) -> Iterator[Desk]:
    """A running session of the Rust programs, with a key that they made."""
    with Desk(tmp_path, "theirs", bus.url, peer()) as one:
        yield one


def taken_over(by: Path | None, old: Desk, bus: Relay, tmp_path: Path) -> Desk:
    """Another make's server for the same home, identity and session."""
    return Desk(tmp_path, old.name, bus.url, by, home=old.home, session=old.session)


class Friend:
    """A peer without a server of its own: its key signs, the relay is called by hand."""

    def __init__(self, desk: Desk, bus: Relay) -> None:
        self.signer = Signer.fresh()
        self.public = self.signer.public
        self.desk = desk
        self.client = http(bus)
        desk.call("add_peer", petname="friend", key=self.public)

    def write(self, text: str, **fields: object) -> dict[str, object]:
        """Send a message of session `f`; the message."""
        msg = self.signer.message(self.desk.key, text, reply_to=f"{self.public}#f", **fields)
        self.again(msg)
        return msg

    def again(self, msg: dict[str, object]) -> None:
        """Send it once more."""
        assert self.client.send(self.desk.route, msg).status == 202


def ident(msg: dict[str, object]) -> str:
    return str(msg["msg_id"])


def listen(desk: Desk, *args: str) -> "subprocess.CompletedProcess[str]":
    """A listener to its end."""
    return desk.run("interlink-mcp", "wait", "--session", desk.session, *args)


@pytest.mark.req("B7", "M13", "M11")
def test_a_mailbox_goes_over_to_ours_and_back(theirs: Desk, bus: Relay, tmp_path: Path) -> None:
    friend = Friend(theirs, bus)
    read, unread, first, second = (
        friend.write("read"),
        friend.write("é unread"),
        friend.write("10 %", status="update", task_id="t"),
        friend.write("60 %", status="update", task_id="t"),
    )
    theirs.got(ident(read), ident(unread), ident(second))
    assert theirs.acknowledge(*theirs.got(ident(read))) == 1
    shown = [(mail.receipt["msg_id"], mail.body, mail.task()) for mail in theirs.fetch()]
    until(lambda: read_inbox(theirs.home / "state", theirs.session), "their notice")
    notices = len(read_inbox(theirs.home / "state", theirs.session))
    theirs.kill()

    with taken_over(None, theirs, bus, tmp_path) as ours:
        assert ours.key == theirs.key and ours.trusted() == {"friend": friend.public}
        assert [(mail.receipt["msg_id"], mail.body, mail.task()) for mail in ours.fetch()] == shown
        assert "receiver_acknowledged" in ours.call("message_status", msg_id=ident(read))
        assert f"superseded by {ident(second)}" in ours.call("conversation_history", peer="friend")
        until(lambda: len(read_inbox(ours.home / "state", ours.session)) > notices, "our own notice of it")
        friend.again(read)
        friend.again(unread)
        new = friend.write("after the move")
        ours.got(ident(new))
        assert len(ours.fetch()) == len(shown) + 1, "copies of what theirs had stored are no news"
        assert ours.acknowledge(*ours.got(ident(unread))) == 1
        rest = [mail.receipt["msg_id"] for mail in ours.fetch()]
        back = ours.run("interlink", "export", "--format", "rust", "--session", ours.session)
        assert back.returncode == 0, back.stderr

    # As docs/interop.md says: the export in the place of our file.
    ours.file("mailbox").write_text(back.stdout, "utf-8")
    with taken_over(theirs.theirs, theirs, bus, tmp_path) as again:
        assert {mail.receipt["msg_id"] for mail in again.fetch()} == set(rest)
        assert "receiver_acknowledged" in again.call("message_status", msg_id=ident(unread))
        last = friend.write("theirs goes on")
        again.got(ident(last))
        assert ident(first) not in [mail.receipt["msg_id"] for mail in again.fetch()]


@pytest.mark.req("B7", "T3", "B6")
def test_their_pairing_in_the_middle_is_finished_by_ours(theirs: Desk, bus: Relay, tmp_path: Path) -> None:
    """A knock that theirs took and accepted while the relay was away: ours sends the acceptance."""
    with Desk(tmp_path, "asker", bus.url) as asker:
        until(lambda: asker.sees(theirs), "them on the roster")
        asker.call("request_pair", target=theirs.name)
        until(lambda: asker.key in theirs.call("list_pair_requests"), "the knock")
        bus.kill()
        theirs.call("accept_pair", fingerprint=asker.key[:8])
        theirs.kill()
        assert json.loads(theirs.file("pairing").read_bytes())["queued"], "the acceptance waits"
        bus.start()
        with taken_over(None, theirs, bus, tmp_path) as ours:
            assert ours.trusted() == {"asker": asker.key}
            until(lambda: asker.trusted() == {"theirs": theirs.key}, "the acceptance at the asker")
            until(lambda: asker.sees(ours), "ours on the roster")
            ours.got(asker.send(ours, "hello"))


@pytest.mark.req("B7", "T3", "B6")
def test_a_knock_that_theirs_kept_is_answered_by_ours(theirs: Desk, bus: Relay, tmp_path: Path) -> None:
    with Desk(tmp_path, "asker", bus.url, theirs.theirs) as asker:
        until(lambda: asker.sees(theirs), "them on the roster")
        asker.call("request_pair", target=theirs.name)
        until(lambda: asker.key in theirs.call("list_pair_requests"), "the knock")
        theirs.kill()
        with taken_over(None, theirs, bus, tmp_path) as ours:
            assert f'claims the name "asker"; key {asker.key}' in ours.call("list_pair_requests")
            ours.call("accept_pair", fingerprint=asker.key[:8])
            until(lambda: asker.trusted() == {"theirs": theirs.key}, "the acceptance at the asker")


@pytest.mark.req("B7", "C6", "C7")
def test_an_inbox_is_read_on_by_the_listener_of_the_other_make(theirs: Desk, bus: Relay, tmp_path: Path) -> None:
    friend = Friend(theirs, bus)
    friend.write("to theirs")
    (notice,) = until(lambda: read_inbox(theirs.home / "state", theirs.session), "their notice")
    theirs.kill()
    inbox = theirs.root / "inbox" / f"{theirs.session}.jsonl"
    cursor = inbox.with_suffix(".cursor")

    with taken_over(None, theirs, bus, tmp_path) as ours:
        until(lambda: len(read_inbox(ours.home / "state", ours.session)) == 2, "our notice behind theirs")
        done = listen(ours)
        assert done.returncode == 2 and notice["msg_id"] in done.stderr, done.stderr
        assert int(cursor.read_text()) == inbox.stat().st_size
        ours.acknowledge(*ours.fetch())
        friend.write("to ours")
        until(lambda: len(read_inbox(ours.home / "state", ours.session)) == 3, "our next notice")
    latest = read_inbox(ours.home / "state", ours.session)[-1]
    done = listen(theirs)
    assert done.returncode == 2 and latest["msg_id"] in done.stderr, done.stderr
    assert notice["msg_id"] not in done.stderr, "the cursor of ours counts for theirs"
    assert int(cursor.read_text()) == inbox.stat().st_size
    renewal = listen(ours, "--renew-after-secs", "1")
    assert renewal.returncode == 2 and "[interlink listener renewal]" in renewal.stderr, renewal.stderr


@pytest.mark.req("B7", "X4")
def test_a_failed_delivery_of_theirs_is_listed_and_read(
    bus: Relay, tmp_path: Path, peer: Callable[[], Path]
) -> None:
    codex = codex_stub.install(tmp_path / "stub", *["1 Error: No active session"] * 40)
    args = ["--host", "codex", "--codex-bin", str(codex)]
    with Desk(tmp_path, "theirs", bus.url, peer(), session=THREAD, args=args) as theirs:
        theirs.call("bind_codex_session", thread_id=THREAD)
        Friend(theirs, bus).write("for codex")
        (saved,) = until(lambda: json.loads(theirs.call("failed_deliveries", action="list")), "a saved failure")
        text = theirs.call("failed_deliveries", action="read", id=saved["id"])
    codex_stub.install(tmp_path / "stub", "hang")  # or our own notice would take the one slot, or clear it
    with Desk(tmp_path, "theirs", bus.url, home=theirs.home, session=THREAD, args=args) as ours:
        ours.call("bind_codex_session", thread_id=THREAD)
        listed = json.loads(ours.call("failed_deliveries", action="list"))
        assert [(row["id"], row["msg_id"], row["reason"]) for row in listed] == [
            (saved["id"], saved["msg_id"], saved["reason"])
        ]
        assert text.splitlines()[2] in ours.call("failed_deliveries", action="read", id=saved["id"])
        assert [mail.body for mail in ours.fetch()] == ["for codex"]


@pytest.mark.req("B7", "T2")
def test_one_peers_file_for_both(theirs: Desk, bus: Relay, tmp_path: Path) -> None:
    """Both at once on one state root: what one adds, the other trusts at once; nobody's entry is lost."""
    keys = [Signer.fresh().public for _ in range(6)]
    with Desk(tmp_path, "theirs", bus.url, home=theirs.home, session="session-ours") as ours:
        for number, key in enumerate(keys):
            (ours, theirs)[number % 2].call("add_peer", petname=f"p{number}", key=key)
        for one in (ours, theirs):
            listed = one.call("list_peers")
            assert all(key in listed or f"[{key[:8]}]" in listed for key in keys), listed
        theirs.call("remove_peer", petname="p0")
        ours.call("remove_peer", petname="p1")
        assert ours.trusted() == {f"p{n}": key for n, key in enumerate(keys) if n > 1}
        befriend(ours, theirs)
        ours.got(theirs.send(ours, "side by side"))
