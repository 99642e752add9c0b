"""`interlink prune`: what nothing holds is tidied, what is unread or in use is not touched (T6, G7)."""

import os
from pathlib import Path

import pytest
from support.cli import ME, desk, interlink, layout, me, now_ms, ok, tree
from support.crash import crashes
from support.keys import ALICE, CAROL
from support.listener import notice, put, server, waiting
from support.mail import DAY_MS, IN_CHILD, PEER, Desk, note

from interlink import inbox
from interlink.state.flock import Flock
from interlink.state.locks import Lock


def old_desk(session: str = "s1") -> Desk:
    """A mailbox whose messages are two days old: one unread, one acknowledged, one a tombstone."""
    box = desk(session)
    box.now -= 2 * DAY_MS
    unread, read, buried = (f"{name}-{session}" for name in ("unread", "read", "buried"))
    box.admit(*(note(msg_id, ts=box.now) for msg_id in (unread, read, buried)))
    box.ack(read, buried)
    with box.mailbox.change() as content:
        content.bury(content.records[(PEER, buried)])
        content.dirty = True
    box.now += 2 * DAY_MS
    return box


@pytest.mark.req("T6", "M16")
def test_consumed_messages_and_tombstones_past_their_time_go_and_unread_ones_stay() -> None:
    me()
    box = old_desk()
    fresh = desk("s2")
    fresh.admit(note("read-today", ts=fresh.now))
    fresh.ack("read-today")
    done = ok("prune")
    assert "1 consumed messages and 1 tombstones" in done.out
    content = box.reopened().mailbox.read()
    assert ([r.own_id for r in content.records.values()], content.tombstones) == (["unread-s1"], {})
    assert fresh.reopened().state("read-today") == "receiver_acknowledged"
    assert ok("prune", "--json").json["steps"] == []


@pytest.mark.req("T6")
def test_consumed_notices_go_from_the_inbox_and_the_rest_is_read_next() -> None:
    me()
    put(notice(1), notice(2), notice(3))
    first = inbox.read(layout(), "s1", max_records=2)
    inbox.commit(layout(), "s1", first.end)
    size = os.path.getsize(layout().inbox("s1"))
    done = ok("prune", "--json").json
    assert [(s["what"], s["bytes"]) for s in done["steps"]] == [("inbox", first.end)]
    assert os.path.getsize(layout().inbox("s1")) == size - first.end
    assert [r["msg_id"] for r in inbox.read(layout(), "s1").records] == ["n3"]
    put(notice(4))
    assert [r["msg_id"] for r in inbox.read(layout(), "s1").records] == ["n3", "n4"]


@pytest.mark.req("T6")
def test_an_inbox_that_is_consumed_as_a_whole_becomes_empty_and_usable() -> None:
    me()
    put(notice(1))
    inbox.commit(layout(), "s1", inbox.read(layout(), "s1").end)
    ok("prune")
    assert os.path.getsize(layout().inbox("s1")) == 0
    put(notice(2))
    assert [r["msg_id"] for r in inbox.read(layout(), "s1").records] == ["n2"]


ACT = """
from interlink.inbox_compact import compact
compact(Layout(root), "s1")
"""


def _three(root: str) -> None:
    from interlink.state.paths import Layout

    for number in (1, 2, 3):
        inbox.append(Layout(root), "s1", notice(number))
    inbox.commit(Layout(root), "s1", inbox.read(Layout(root), "s1", max_records=2).end)


@pytest.mark.req("T6", "C7")
def test_a_crash_while_the_inbox_is_compacted_repeats_and_never_skips(tmp_path: Path) -> None:
    for crash in crashes(tmp_path, ACT, prepare=_three, setup=IN_CHILD, how=("before", "torn")):
        place = Desk(crash.root).layout
        found = [r["msg_id"] for r in inbox.read(place, "s1").records]
        assert found in (["n3"], ["n1", "n2", "n3"]), crash
        for number in range(4, 9):  # the file grows beyond where the cursor was
            inbox.append(place, "s1", notice(number))
        found = [r["msg_id"] for r in inbox.read(place, "s1").records]
        assert found[-6:] == ["n3", "n4", "n5", "n6", "n7", "n8"], crash


@pytest.mark.req("T6")
def test_a_session_in_use_is_left_alone() -> None:
    root = me()
    old_desk("served")
    old_desk("notified")
    put(notice(1), session="listening")
    inbox.commit(layout(), "listening", inbox.read(layout(), "listening").end)
    lock = Flock(layout().notifier_lock(ME, "notified"))
    assert lock.try_acquire()
    try:
        with server(0, "served", ME), waiting("--session", "listening", session="listening"):
            before = {p: v for p, v in tree(root).items() if not p.startswith("host")}
            done = ok("prune", "--json").json
            assert done["steps"] == []
            assert {h["where"].split(" [")[0] for h in done["held"]} == {
                "served",
                "notified",
                "inbox of listening",
            }
            after = {p: v for p, v in tree(root).items() if not p.startswith("host")}
            assert after == before
    finally:
        lock.release()
    assert len(ok("prune", "--json").json["steps"]) == 3


def _everything(root: str) -> None:
    """One of each thing that prune does."""
    old_desk()
    put(notice(1))
    inbox.commit(layout(), "s1", inbox.read(layout(), "s1").end)
    _empty("empty")
    dead = Path(root) / "mailbox" / ME / f".s1.json.{_dead_pid()}.tmp"
    dead.write_bytes(b"x" * 10)


def _empty(session: str) -> str:
    """A mailbox without content that nothing wrote to for a month."""
    box = desk(session)
    box.mailbox.update(lambda content: True)
    past = now_ms() / 1000 - 31 * 86_400
    os.utime(box.mailbox.path, (past, past))
    return box.mailbox.path


def _dead_pid() -> int:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(pid, 0)
    return pid


@pytest.mark.req("T6")
def test_a_dry_run_lists_the_same_and_changes_nothing() -> None:
    root = me()
    _everything(root)
    before = tree(root)
    listed = ok("prune", "--dry-run", "--json").json
    assert tree(root) == before
    assert "nothing was changed" in ok("prune", "--dry-run").out
    done = ok("prune", "--json").json
    assert [(s["what"], s["where"]) for s in done["steps"]] == [(s["what"], s["where"]) for s in listed["steps"]]
    assert sorted(s["what"] for s in done["steps"]) == ["inbox", "mailbox", "messages", "temporary file"]
    assert not [p for p in tree(root) if p.endswith(".tmp")]


@pytest.mark.req("T6")
def test_an_old_empty_mailbox_goes_and_one_with_anything_in_it_stays() -> None:
    me()
    empty = _empty("empty")
    young = desk("young")
    young.mailbox.update(lambda content: True)
    kept = desk("kept")
    kept.admit(note("m1", ts=kept.now))
    past = now_ms() / 1000 - 31 * 86_400
    os.utime(kept.mailbox.path, (past, past))
    ok("prune")
    assert not os.path.exists(empty)
    assert os.path.exists(young.mailbox.path) and kept.reopened().ids() == ["m1"]
    again = desk("empty")
    assert again.admit(note("m2", ts=again.now)) == ["stored"]


def test_a_corrupt_mailbox_is_a_fault_and_the_others_are_tidied() -> None:
    me()
    box = old_desk("good")
    bad = desk("bad")
    bad.admit(note("x", ts=bad.now))
    with open(bad.mailbox.path, "w", encoding="utf-8") as file:
        file.write("{")
    done = interlink("prune")
    assert done.code == 1 and "does not parse" in done.err
    assert len(box.reopened().mailbox.read().records) == 1


@pytest.mark.req("G7")
def test_held_back_mail_is_thrown_away_only_by_name() -> None:
    me(alice=ALICE, carol=CAROL)
    box = desk()
    box.admit(note("a", ts=box.now), note("c", sender=CAROL, ts=box.now))
    ok("peers", "remove", "carol")
    ok("prune")
    assert len(box.reopened().mailbox.read().records) == 2
    for wrong in (ALICE.public, ALICE.public[:8], "nobody"):
        done = interlink("prune", f"--held-back={wrong}")
        assert done.code == 64 and CAROL.public[:8] in done.err
    ok("prune", "--dry-run", f"--held-back={CAROL.public[:8]}")
    assert len(box.reopened().mailbox.read().records) == 2
    done = ok("prune", f"--held-back={CAROL.public[:8]}")
    assert "1 held-back message thrown away" in done.out
    assert list(box.reopened().mailbox.read().records) == [(PEER, "a")]
    ok("peers", "add", "carol", CAROL.public)
    again = desk(names={ALICE.public: "alice", CAROL.public: "carol"})
    assert again.admit(note("c", sender=CAROL, ts=box.now)) == ["repeat"]


@pytest.mark.req("G7")
def test_without_a_peers_file_nothing_is_thrown_away_unasked() -> None:
    me()
    box = desk()
    box.admit(note("a", ts=box.now))
    done = interlink("prune", "--peers", "/nonexistent/peers.json")
    assert done.code == 0 and box.reopened().mailbox.read().records.keys() == {(PEER, "a")}


def test_a_dry_run_waits_for_no_lock() -> None:
    me()
    old_desk()
    with Lock(layout().mailbox_lock(ME, "s1")):
        assert len(ok("prune", "--dry-run", "--json").json["steps"]) == 1
