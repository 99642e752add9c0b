"""`interlink adopt`: mail of a session that is gone moves, and none of it is lost or comes twice (M30)."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.cli import ME, desk, interlink, layout, me, ok
from support.crash import crashes
from support.keys import ALICE, NOW_MS, message
from support.listener import server
from support.mail import IN_CHILD, PEER, Desk, note, settings

from interlink import inbox
from interlink.mailbox.record import Record, Tombstone
from interlink.outlog import Change, Journal, Outgoing
from interlink.session.adopt import adopt
from interlink.settings import Settings
from interlink.state.flock import Flock


def fill(old: Desk) -> None:
    """Unread, acknowledged, superseded, buried, colliding; and one of a local source."""
    old.admit(
        note("read", ts=old.now), note("gone", ts=old.now), note("p1", status="update", task_id="t", ts=old.now)
    )
    old.admit(note("p2", status="update", task_id="t", ts=old.now + 1), note("new", "a question", ts=old.now))
    old.admit(note("new", "another text", ts=old.now))
    old.ack("read", "gone")
    with old.mailbox.change() as box:
        box.bury(box.records[(PEER, "gone")])
        box.dirty = True
    old.local("job", resume_id="r1")
    assert old.reserve("n1") is not None
    old.settle("n1", "inbox_queued")


def told(one: Desk) -> dict[tuple[str, str], tuple[object, ...]]:
    """What a receipt stands for: delivery, state, times, fingerprint, body."""
    box = one.reopened().mailbox.read()
    entries: list[Record | Tombstone] = [*box.records.values(), *box.tombstones.values()]
    return {
        e.key: (
            e.delivery_id,
            e.state,
            e.superseded_by,
            e.arrived_ms,
            e.done_ms,
            e.fp,
            e.own_id,
            e.message.text if isinstance(e, Record) else None,
        )
        for e in entries
    }


@pytest.mark.req("M30", "M19")
def test_everything_moves_with_its_receipts_and_states() -> None:
    me()
    old = desk("old")
    fill(old)
    before = told(old)
    new = desk("new")
    new.admit(note("own", ts=new.now))
    own = told(new)
    done = ok("adopt", "old", "--into", "new")
    assert "4 unread, 3 consumed and 0 unsent" in done.out
    assert told(new) == before | own
    assert told(old) == {}
    fresh = new.reopened()
    receipts = [r.key for r in fresh.unread()]
    assert receipts[0] == (PEER, "own") and len(receipts) == 5  # behind what was there, in their own order
    assert fresh.ack(*[m for s, m in receipts if s == PEER]).newly == 4


@pytest.mark.req("M30", "G5")
def test_a_repeat_is_known_in_every_session_afterwards() -> None:
    me()
    old = desk("old")
    asked, buried = note("asked", ts=old.now), note("buried", ts=old.now)
    old.admit(asked, buried)
    old.ack("buried")
    with old.mailbox.change() as box:
        box.bury(box.records[(PEER, "buried")])
        box.dirty = True
    ok("adopt", "old", "--into", "new")
    for session, outcome in (("new", "repeat"), ("old", "repeat"), ("third", "replay")):
        assert desk(session).admit(asked, buried) == [outcome, outcome], session
    again = message(ALICE, text="hello", msg_id="asked", ts=old.now + 5, reply_to=f"{PEER}#a")
    assert desk("new").admit(again) == ["repeat"]
    assert desk("new").ids() == ["asked"] and desk("old").ids() == []


@pytest.mark.req("M30", "G5")
def test_what_a_crash_kept_from_the_replay_memory_is_known_before_it_moves() -> None:
    root = me()
    old = desk("old")
    sent = note("m1", ts=old.now)
    old.admit(sent)
    (Path(root) / "replay" / f"{ME}.log").unlink()
    desk("third").admission.open(old.now)  # a memory that has seen a boot, without m1
    log = Path(root) / "replay" / f"{ME}.log"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:1]))
    ok("adopt", "old", "--into", "new")
    assert desk("third").admit(sent) == ["replay"]


@pytest.mark.req("M30", "M20")
def test_a_receipt_changes_only_where_another_message_has_it() -> None:
    me()
    for session, text in (("old", "from old"), ("new", "from new")):
        one = desk(session)
        one.admit(note("same", text, ts=one.now))
    done = ok("adopt", "old", "--into", "new")
    assert "1 receipt changed" in done.out
    found = {r.receipt_id: r.message.text for r in desk("new").unread()}
    assert found.pop("same") == "from new"
    ((alias, text),) = found.items()
    assert alias.startswith("same~") and text == "from old"
    again = desk("new")
    assert again.admit(note("same", "from old", ts=again.now)) == ["repeat"]


@pytest.mark.req("M30", "M20")
def test_a_receipt_with_a_mark_keeps_it_where_the_plain_id_is_free() -> None:
    me()
    old = desk("old")
    old.admit(note("same", "first", ts=old.now), note("same", "second", ts=old.now))
    (marked,) = (m for m in old.ids() if m != "same")
    old.ack("same")
    with old.mailbox.change() as box:
        box.drop(box.records[(PEER, "same")])
        box.dirty = True
    ok("adopt", "old", "--into", "new")
    assert desk("new").ids() == [marked]
    assert desk("new").ack(marked).newly == 1


@pytest.mark.req("M30")
def test_the_same_command_again_moves_nothing_twice() -> None:
    me()
    old = desk("old")
    fill(old)
    ok("adopt", "old", "--into", "new")
    before = told(desk("new"))
    done = ok("adopt", "old", "--into", "new", "--json").json
    assert (done["unread"], done["consumed"], done["already"]) == (0, 0, 0)
    assert told(desk("new")) == before


HOW = ("before", "torn")  # "after" one call is "before" the next
ACT = f"""
from interlink.session.adopt import adopt
adopt(Layout(root), ME, "old", "new", Settings(), {NOW_MS})
"""


def _prepare(root: str) -> None:
    old = Desk(root, "old")
    old.admit(note("asked"), note("done"), note("p", status="update", task_id="t"))
    old.ack("done")
    old.reopened("new").admit(note("own"))
    journal = Journal(old.layout, ME, "old", Settings())
    journal.append(Change(op="queue", out=_outgoing("out1")))


def _copy(model: Path, root: str) -> None:
    shutil.copytree(model, root, dirs_exist_ok=True)


def _outgoing(msg_id: str) -> Outgoing:
    return Outgoing(msg_id=msg_id, peer="alice", to=PEER, route=f"{PEER}#a", text="hi", ts=NOW_MS)


def _pending(root: str, session: str) -> list[str]:
    journal = Journal(Desk(root).layout, ME, session, Settings())
    journal.load()
    return [o.msg_id for o in journal.entries.values() if o.state == "pending"]


@pytest.mark.req("M30")
def test_a_crash_at_any_moment_loses_nothing_and_the_next_run_completes_it(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir(mode=0o700)
    _prepare(str(model))
    wanted = told(Desk(str(model), "old")) | told(Desk(str(model), "new"))
    for crash in crashes(tmp_path, ACT, prepare=lambda root: _copy(model, root), setup=IN_CHILD, how=HOW):
        old, new = Desk(crash.root, "old"), Desk(crash.root, "new")
        assert told(old) | told(new) == wanted, crash
        assert "out1" in _pending(crash.root, "old") + _pending(crash.root, "new"), crash
        if crash.how != "done":
            adopt(old.layout, ME, "old", "new", Settings(), NOW_MS)
        assert (told(old), told(new)) == ({}, wanted), crash
        assert (_pending(crash.root, "old"), _pending(crash.root, "new")) == ([], ["out1"]), crash


@pytest.mark.req("M30")
def test_what_was_acknowledged_between_crash_and_rerun_stays_acknowledged(tmp_path: Path) -> None:
    """The message is in both: its agent has it in NEW already, or a server of OLD came back for a moment."""
    for where in ("old", "new"):
        root = str(tmp_path / where)
        Path(root).mkdir(mode=0o700)
        old = Desk(root, "old")
        old.admit(note("m1"))
        data = Path(old.mailbox.path).read_bytes()
        adopt(old.layout, ME, "old", "new", Settings(), NOW_MS)
        Path(old.mailbox.path).write_bytes(data)  # as if the process had ended before its last write
        Desk(root, where).ack("m1")
        done = adopt(old.layout, ME, "old", "new", Settings(), NOW_MS)
        assert (done.unread, done.already) == (0, 1)
        assert Desk(root, "new").state("m1") == "receiver_acknowledged" and told(Desk(root, "old")) == {}


@contextmanager
def _held(path: str) -> Iterator[None]:
    lock = Flock(path)
    assert lock.try_acquire()
    try:
        yield
    finally:
        lock.release()


@pytest.mark.req("M30")
def test_it_is_refused_while_a_server_has_the_session() -> None:
    me()
    old = desk("old")
    fill(old)
    before = told(old)
    with _held(layout().notifier_lock(ME, "old")):
        done = interlink("adopt", "old", "--into", "new")
    assert done.code == 1 and "in use by a running server (process " in done.err
    with server(0, "old", ME) as child:  # registered, not (yet) the notifier
        done = interlink("adopt", "old", "--into", "new")
        assert done.code == 1 and f"(process {child.said})" in done.err
    assert told(old) == before and told(desk("new")) == {}
    ok("adopt", "old", "--into", "new")


def test_nothing_to_adopt_is_an_error_with_advice() -> None:
    me()
    done = interlink("adopt", "gone", "--into", "new")
    assert done.code == 64 and "interlink status" in done.err
    desk("old").admit(note("m1", ts=desk().now))
    assert interlink("adopt", "old", "--into", "old").code == 64


@pytest.mark.req("M30", "M15")
def test_what_finds_no_room_stays_where_it_is(tmp_path: Path) -> None:
    small = settings(mailbox_max_records=2)
    old = Desk(str(tmp_path), "old", set_to=settings())
    old.admit(note("a"), note("b"), note("c"))
    old.ack("a")
    old.reopened("new").admit(note("own"))
    done = adopt(old.layout, ME, "old", "new", small, NOW_MS)
    assert (done.unread, done.consumed, done.left) == (1, 1, 1)
    new = Desk(str(tmp_path), "new", set_to=small)
    assert (new.ids(), old.reopened().ids()) == (["own", "b"], ["c"])
    assert new.state("a") == "receiver_acknowledged"
    new.ack("own", "b")
    done = adopt(old.layout, ME, "old", "new", small, NOW_MS)
    assert (done.unread, done.left) == (1, 0)
    assert (new.reopened().ids(), told(old)) == (["c"], {})


@pytest.mark.req("M30", "T5")
def test_unsent_messages_move_and_sent_ones_stay() -> None:
    me()
    old = desk("old")
    old.admit(note("m1", ts=old.now))
    journal = Journal(layout(), ME, "old", Settings())
    journal.append(*(Change(op="queue", out=_outgoing(i)) for i in ("out1", "out2", "sent")))
    journal.append(Change(op="state", msg_id="sent", state="bus_accepted", at=1))
    done = ok("adopt", "old", "--into", "new", "--json").json
    assert done["unsent"] == 2
    root = layout().root
    assert (_pending(root, "old"), _pending(root, "new")) == ([], ["out1", "out2"])
    left = Journal(layout(), ME, "old", Settings())
    left.load()
    assert {o.msg_id: (o.state, o.reason) for o in left.entries.values()} == {
        "out1": ("expired", "moved to session new"),
        "out2": ("expired", "moved to session new"),
        "sent": ("bus_accepted", None),
    }


@pytest.mark.req("M30", "M26")
def test_the_resume_memory_moves() -> None:
    me()
    old = desk("old")
    old.local("r1", resume_id="run")
    old.ack("r1", sender="local:ci")
    ok("adopt", "old", "--into", "new")
    new = desk("new")
    new.local("r2", resume_id="run")
    assert new.state("r2", "local:ci") == "receiver_acknowledged"


@pytest.mark.req("M30", "C11")
def test_old_notices_of_what_moved_wake_nobody() -> None:
    me()
    old = desk("old")
    fill(old)
    inbox.append(layout(), "old", {"sender": "Interlink", "msg_id": "n1", "content": "x", "through": 5})
    ok("adopt", "old", "--into", "new")
    assert inbox.consumed(layout(), "old") == old.reopened().mailbox.read().head.next_seq
    assert old.reopened().notice() is None


def test_a_local_message_that_is_in_both_is_the_same_one() -> None:
    me()
    for session in ("old", "new"):
        ok("post", "--source", "ci", "--session", session, "--id", "job", stdin="same text")
    done = ok("adopt", "old", "--into", "new", "--json").json
    assert (done["unread"], done["already"]) == (0, 1)
    assert desk("new").ids() == ["job"]
