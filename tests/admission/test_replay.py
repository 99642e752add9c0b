"""The replay memory of an identity: what it holds, when it forgets, what it survives (G5)."""

import os
import threading
from pathlib import Path

import pytest
from support.keys import NOW_MS
from support.mail import HOUR_MS, ME, PEER, SECOND_MS, WINDOW_MS, Desk, note, settings

from interlink.errors import StateError
from interlink.state import process
from interlink.trust.replay import Entry, ReplayMemory, digest_of


def log_of(desk: Desk) -> Path:
    return Path(desk.layout.replay(ME))


def pending_of(desk: Desk) -> Path:
    return Path(desk.layout.replay(ME, "pending"))


def lines(desk: Desk) -> list[str]:
    return log_of(desk).read_text("ascii").splitlines()


def refused_elsewhere(desk: Desk, *ids: str) -> bool:
    """True when another session refuses each of these messages."""
    return all(desk.reopened("elsewhere").admit(note(i)) == ["replay"] for i in ids)


# --- the file -------------------------------------------------------------------------------------


@pytest.mark.req("G5")
def test_the_log_names_time_digest_and_session(state_root: str) -> None:
    desk = Desk(state_root)
    desk.admit(note("m1"))
    head, line = lines(desk)
    assert head.split()[:2] == ["boot", process.boot_id()]
    digest = digest_of(PEER, "m1", desk.record("m1").fp)
    assert line == f"{NOW_MS + WINDOW_MS} {digest} s1"
    assert pending_of(desk).read_bytes() == b""
    assert os.stat(log_of(desk)).st_mode & 0o777 == os.stat(pending_of(desk)).st_mode & 0o777 == 0o600


@pytest.mark.req("G5")
def test_it_forgets_after_the_window_and_not_before(state_root: str) -> None:
    """The later of the message's time and its arrival counts: m1 arrived later than it says, m2 earlier."""
    desk = Desk(state_root)
    desk.admit(note("m1", ts=NOW_MS - 5 * SECOND_MS), note("m2", ts=NOW_MS + 50 * SECOND_MS))
    digests = [digest_of(PEER, m, desk.record(m).fp) for m in ("m1", "m2")]
    for at_ms, known in ((0, ["s1", "s1"]), (1, ["", "s1"]), (50_000, ["", "s1"]), (50_001, ["", ""])):
        held = desk.reopened("s2").admission
        with held._memory.locked("s2", held._recover, NOW_MS + WINDOW_MS + at_ms) as memory:
            assert [memory.session_of(d) for d in digests] == known


@pytest.mark.req("G5", "M16")
def test_a_consumed_message_is_known_for_the_window(state_root: str) -> None:
    desk = Desk(state_root, set_to=settings(prune_every_s=0))
    desk.admit(note("m1"))
    desk.ack("m1")
    desk.now = NOW_MS + WINDOW_MS
    assert desk.admit(note("m1", ts=desk.now)) == ["repeat"]


@pytest.mark.req("G5", "M16")
def test_a_consumed_message_is_new_after_the_window(state_root: str) -> None:
    desk = Desk(state_root)
    desk.admit(note("m1"), note("m2"))
    desk.ack("m1")
    desk.now = NOW_MS + WINDOW_MS + 1
    assert desk.admit(note("m1", ts=desk.now), note("m2", ts=desk.now)) == ["stored", "repeat"]


@pytest.mark.req("G5")
def test_a_byte_identical_repeat_costs_no_write(state_root: str) -> None:
    desk = Desk(state_root)
    desk.admit(note("m1"))
    before = (log_of(desk).read_bytes(), desk.mailbox.signature())
    for _ in range(3):
        desk.now += SECOND_MS
        assert desk.admit(note("m1")) == ["repeat"]
    assert (log_of(desk).read_bytes(), desk.mailbox.signature()) == before


@pytest.mark.req("G5")
def test_it_is_written_anew_when_it_has_grown_and_drops_what_is_over(state_root: str) -> None:
    desk = Desk(state_root, set_to=settings(replay_compact_bytes=1024, prune_every_s=0))
    desk.admit(*(note(f"old{n}") for n in range(30)))
    desk.ack(*(f"old{n}" for n in range(30)))
    assert len(lines(desk)) == 31
    desk = desk.reopened()
    desk.now += WINDOW_MS + 1
    for n in range(3):
        desk.admit(note(f"new{n}", ts=desk.now))
    kept = lines(desk)
    assert len(kept) == 4, "the head and the three of now"
    other = desk.reopened("s2")
    assert other.admit(*(note(f"new{n}", ts=desk.now) for n in range(3))) == ["replay"] * 3


@pytest.mark.req("G5")
def test_growth_without_forgetting_is_not_rewritten_each_time(state_root: str) -> None:
    desk = Desk(state_root, set_to=settings(replay_compact_bytes=1024, mailbox_max_records=5000))
    heads = set()
    for n in range(200):
        desk.admit(note(f"m{n}"))
        heads.add(lines(desk)[0])
    assert len(lines(desk)) == 201
    assert len(heads) <= 8, "about once a doubling"
    # a process that had read before the rewriting, and one that begins now, know them all
    assert refused_elsewhere(desk, "m0", "m100", "m199")


@pytest.mark.req("G5")
def test_another_process_that_wrote_it_anew_is_noticed(state_root: str) -> None:
    """Lines of the same length stand where others stood, and the inode numbers come again."""
    one = Desk(state_root, "s1")
    one.admit(*(note(f"a{n}") for n in range(5)))
    one.now += WINDOW_MS + 1
    two = Desk(state_root, "s2", now=one.now, set_to=settings(replay_compact_bytes=1))
    for n in range(8):
        two.admit(note(f"b{n}", ts=one.now))
    assert one.admit(*(note(f"b{n}", ts=one.now) for n in range(8))) == ["replay"] * 8
    assert one.admit(note("a", ts=one.now)) == ["stored"]
    assert two.admit(note("a", ts=one.now)) == ["replay"]


@pytest.mark.req("G5")
def test_the_longer_life_of_a_later_copy_outlives_a_power_cut(state_root: str) -> None:
    """The mailbox knows the first copy alone: where the log is made anew, the longer one counts."""
    desk = Desk(state_root)
    desk.admit(note("m1"))
    desk.now += 20 * HOUR_MS
    later = note("m1", ts=desk.now)
    assert desk.admit(later) == ["repeat"]
    log = log_of(desk).read_bytes().split(b"\n", 1)[1]
    log_of(desk).write_bytes(b"boot 00000000-0000-0000-0000-000000000000 abcd\n" + log)
    assert desk.reopened("s3").admit(note("other", ts=desk.now)) == ["stored"]
    desk.now = NOW_MS + WINDOW_MS + 1
    assert desk.reopened("s2").admit(later) == ["replay"]


# --- what it survives -----------------------------------------------------------------------------


@pytest.mark.req("G5")
@pytest.mark.parametrize("what", ["gone", "empty", "garbage", "other boot", "cut", "line damaged"])
def test_a_lost_or_damaged_log_is_made_anew_from_all_mailboxes(state_root: str, what: str) -> None:
    desk = Desk(state_root)
    desk.admit(note("a"))
    desk.reopened("s2").admit(note("b"))
    desk.admit(note("c"))
    desk.ack("c")
    path = log_of(desk)
    whole = path.read_bytes()
    first, rest = whole.split(b"\n", 1)
    damaged = {
        "gone": None,
        "empty": b"",
        "garbage": b"\x00\xff\x17 garbage\n" * 40,
        "other boot": b"boot 00000000-0000-0000-0000-000000000000 abcd\n",
        "cut": whole[: len(first) + 1],
        "line damaged": first + b"\n" + rest.replace(rest.split()[1], b"zz", 1),
    }[what]
    if damaged is None:
        path.unlink()
    else:
        path.write_bytes(damaged)
    # a new process, and one that had read the whole; the new one cannot tell "cut" from a short log
    for session in [desk] if what == "cut" else [desk.reopened("s3"), desk]:
        expected = ["repeat", "replay", "repeat"] if session is desk else ["replay"] * 3
        assert session.admit(note("a"), note("b"), note("c")) == expected
    assert len(lines(desk)) == 4 and refused_elsewhere(desk, "a", "b", "c")


@pytest.mark.req("G5")
def test_a_cut_last_line_is_repaired_by_what_pending_says(state_root: str) -> None:
    desk = Desk(state_root)
    desk.admit(note("a"), note("b"))
    whole = log_of(desk).read_bytes()
    for cut in range(1, 60):
        log_of(desk).write_bytes(whole[:-cut])
        pending_of(desk).write_bytes(b"s1")
        assert refused_elsewhere(desk, "a", "b"), cut
        assert sorted(lines(desk)) == sorted(whole.decode().splitlines()), cut


@pytest.mark.req("G5")
@pytest.mark.parametrize("garbage", [b"../../etc/passwd", b"\xff\xfe", b"s1\0", b"a b .c", b"x" * 4000])
def test_a_pending_mark_that_names_no_session_merges_all(state_root: str, garbage: bytes) -> None:
    desk = Desk(state_root)
    desk.admit(note("a"))
    log_of(desk).write_bytes(log_of(desk).read_bytes().split(b"\n")[0] + b"\n")
    pending_of(desk).write_bytes(garbage)
    assert refused_elsewhere(desk, "a")
    assert pending_of(desk).read_bytes() == b""


@pytest.mark.req("G5", "M17")
def test_a_mailbox_that_cannot_be_read_is_merged_when_it_can(
    state_root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A session died between its two writes, and its mailbox is damaged: others go on, nothing is lost."""
    desk = Desk(state_root, "s1")
    desk.admit(note("a"))
    log_of(desk).write_bytes(log_of(desk).read_bytes().split(b"\n")[0] + b"\n")
    pending_of(desk).write_bytes(b"s1")
    path = Path(desk.mailbox.path)
    good = path.read_bytes()
    path.write_bytes(good[:-20])
    other = desk.reopened("s2")
    for n in range(3):
        assert other.admit(note(f"b{n}")) == ["stored"]
    assert pending_of(desk).read_bytes() == b"s1"
    assert capsys.readouterr().err.count("event=replay_memory_incomplete") == 1
    path.write_bytes(good)
    assert other.admit(note("a")) == ["replay"]
    assert pending_of(desk).read_bytes() == b""
    # a mailbox that its owner took away holds nobody up
    path.unlink()
    pending_of(desk).write_bytes(b"s1")
    assert other.admit(note("c")) == ["stored"] and pending_of(desk).read_bytes() == b""


@pytest.mark.req("G5")
def test_start_makes_sure_that_the_memory_knows_the_mailbox(state_root: str) -> None:
    desk = Desk(state_root)
    desk.admit(note("a"), note("b"))
    desk.ack("a")
    head = log_of(desk).read_bytes().split(b"\n")[0] + b"\n"
    log_of(desk).write_bytes(head)  # as of a mailbox that was moved here
    desk.reopened().admission.open(NOW_MS)
    assert refused_elsewhere(desk, "a", "b")


@pytest.mark.req("G5", "M16")
def test_tombstones_make_the_memory_whole_as_well(state_root: str) -> None:
    desk = Desk(state_root, set_to=settings(mailbox_max_records=1))
    desk.admit(note("a", "one"))
    for msg in (note("a", "another"), note("b")):  # under an alias, and under its own id
        desk.ack(desk.ids()[0])
        assert desk.admit(msg) == ["stored"]
    assert len(desk.mailbox.read().tombstones) == 2
    log_of(desk).unlink()
    other = desk.reopened("s2")
    assert other.admit(note("a", "one"), note("a", "another"), note("b")) == ["replay"] * 3


@pytest.mark.req("G5")
def test_foreign_files_beside_the_mailboxes_are_no_sessions(state_root: str) -> None:
    desk = Desk(state_root)
    desk.admit(note("a"))
    folder = Path(desk.layout.mailbox_dir(ME))
    for name in ("not a session.json", ".hidden.json", "s1.json.corrupt-12345678", "notes.txt"):
        (folder / name).write_text("x")
    log_of(desk).unlink()
    assert refused_elsewhere(desk, "a")


@pytest.mark.req("G5")
@pytest.mark.parametrize("part", ["log", "pending", "lock"])
def test_a_memory_that_cannot_be_used_admits_nothing(state_root: str, part: str) -> None:
    desk = Desk(state_root)
    os.makedirs(desk.layout.replay(ME, part))
    with pytest.raises(StateError, match=part):
        desk.admit(note("a"))
    assert desk.ids() == []
    os.rmdir(desk.layout.replay(ME, part))
    assert desk.admit(note("a")) == ["stored"]


@pytest.mark.req("G5")
def test_threads_of_one_process_take_turns(state_root: str) -> None:
    """The kernel lock lets a second thread of its holder in: it needs a lock of its own."""
    desk = Desk(state_root)
    inside: list[str] = []
    overlaps: list[list[str]] = []
    admission = desk.admission
    never = threading.Event()

    def hold(name: str) -> None:
        with admission._memory.locked("s1", admission._recover, NOW_MS):
            inside.append(name)
            overlaps.append(list(inside))
            never.wait(0.05)
            inside.remove(name)

    threads = [threading.Thread(target=hold, args=(f"t{n}",)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [len(o) for o in overlaps] == [1, 1, 1, 1]


@pytest.mark.req("G5", "G6")
def test_only_what_will_be_stored_is_announced_as_pending(state_root: str) -> None:
    desk = Desk(state_root)
    desk.admit(note("m1"))
    before = os.stat(pending_of(desk)).st_mtime_ns
    desk.admit(note("m1"))
    desk.reopened("s2").admit(note("m1"))
    desk.reopened().admission.open(NOW_MS)
    assert os.stat(pending_of(desk)).st_mtime_ns == before
    pending_of(desk).write_bytes(b"s1")  # left by one that ended: done with by the next, whatever it does
    assert desk.reopened("s2").admit(note("m1")) == ["replay"]
    assert pending_of(desk).read_bytes() == b""


@pytest.mark.req("G5")
def test_the_memory_alone_keeps_the_longer_life_and_the_first_session(state_root: str) -> None:
    desk = Desk(state_root)

    def use(session: str, now: int, *entries: Entry) -> dict[str, str]:
        memory = ReplayMemory(desk.layout, ME, desk.settings)
        with memory.locked(session, lambda _name: (), now) as held:
            held.remember(entries)
            return {d: held.session_of(d) for d in ("a" * 32, "b" * 32)}

    a, b = "a" * 32, "b" * 32
    assert use("s1", 0, Entry(100, a, "s1")) == {a: "s1", b: ""}
    assert use("s2", 50, Entry(200, a, "s2"), Entry(60, b, "s2")) == {a: "s1", b: "s2"}
    assert use("s2", 150, Entry(120, a, "s2")) == {a: "s1", b: ""}
    assert use("s2", 250, Entry(300, a, "s2")) == {a: "s2", b: ""}, "forgotten, and stored anew by another"
