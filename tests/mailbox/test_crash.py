"""The process ends at each of its file operations: nothing settled is lost, nothing consumed comes back (M1, G5).

After each crash new objects look at the files, as another process would. `crashes` also lets each operation
fail instead (a full disk), and the process goes on.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.crash import Crash, crashes, unsynced
from support.mail import IN_CHILD, ME, Desk, note, settings

from interlink.mailbox import states
from interlink.mailbox.box import Box
from interlink.state.paths import Layout

KILLED = ("after", "torn")  # before a call is after the one before it
WAYS = (*KILLED, "fail")
MEANS_PENDING = (".lock", ".pending")


# A process kill takes nothing from the kernel: syncs are counted here, and not made.
FAST = "import os\nos.fsync = os.fdatasync = lambda fd: None\n" + IN_CHILD


@pytest.fixture(autouse=True)
def no_syncs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda fd: None)
    yield


def template(folder: Path, make: Callable[[str], None]) -> Callable[[str], None]:
    """`prepare` for `crashes`: a copy of what `make` has made once."""
    source = folder / "template"
    source.mkdir(mode=0o700)
    make(str(source))
    return lambda root: shutil.copytree(source, root, dirs_exist_ok=True) and None


def check_file(crash: Crash) -> None:
    """The mailbox parses, its file is private, and beside it lies nothing but a temporary file."""
    desk = Desk(crash.root)
    desk.mailbox.read()
    path = Path(desk.mailbox.path)
    if path.exists():
        assert path.stat().st_mode & 0o777 == 0o600
        for name in path.parent.iterdir():
            assert name.name in ("s1.json", "s1.lock") or name.name.endswith(".tmp"), (crash, name)


def two_unread(root: str) -> None:
    desk = Desk(root)
    desk.admit(note("old1"), note("old2"))
    desk.ack("old2")


# --- admission ------------------------------------------------------------------------------------


@pytest.mark.req("M1", "G5", "G6")
@pytest.mark.parametrize("fresh", [True, False], ids=["first ever", "with others"])
def test_admission_stores_all_or_nothing_and_no_other_session_takes_it(tmp_path: Path, fresh: bool) -> None:
    setup = FAST + "batch = [note('m1'), note('m2')]\n"
    act = "print(Desk(root).admit(*batch), file=open(root + '.said', 'w'))"
    prepare = (lambda root: None) if fresh else template(tmp_path, two_unread)
    old = [] if fresh else ["old1"]
    seen = set()
    for crash in crashes(tmp_path, act, setup=setup, prepare=prepare, how=WAYS):
        check_file(crash)
        desk = Desk(crash.root)
        ids = desk.ids()
        assert ids in (old, [*old, "m1", "m2"]), crash
        seen.add(len(ids))
        said = Path(crash.root + ".said")
        if said.exists() and said.read_text():  # reported to the relay as settled
            assert ids == [*old, "m1", "m2"], crash
        # The captured copy, in another session that comes first: refused wherever this one has it.
        stored = ids != old
        other = desk.reopened("s2")
        assert other.admit(note("m1"), note("m2")) == (["replay"] * 2 if stored else ["stored"] * 2), crash
        # The relay sends what it was not told to forget: exactly one session ends up with it.
        assert desk.reopened().admit(note("m1"), note("m2")) == (["repeat"] * 2 if stored else ["replay"] * 2)
        assert Path(desk.layout.replay(ME, "pending")).read_bytes() == b""
        if not fresh:
            assert desk.reopened().admit(note("old2")) == ["repeat"], crash
    assert seen == {len(old), len(old) + 2}


@pytest.mark.req("M1", "G5")
def test_a_redelivery_after_any_crash_is_stored_once(tmp_path: Path) -> None:
    setup = FAST + "batch = [note('m1'), note('m2')]\n"
    act = "Desk(root).admit(*batch)"
    outcomes = set()
    for crash in crashes(tmp_path, act, setup=setup, prepare=template(tmp_path, two_unread), how=KILLED):
        desk = Desk(crash.root)
        outcomes.add(tuple(desk.admit(note("m1"), note("m2"))))
        assert desk.reopened().ids() == ["old1", "m1", "m2"], crash
        assert desk.reopened("s2").admit(note("m1"), note("m2")) == ["replay", "replay"], crash
    assert outcomes == {("stored", "stored"), ("repeat", "repeat")}


@pytest.mark.req("M1")
def test_nothing_of_an_admission_is_lost_by_a_power_cut(tmp_path: Path) -> None:
    done = list(crashes(tmp_path, "Desk(root).admit(note('m1'))", setup=FAST, how=()))[-1]
    assert unsynced(done.steps, ignore=MEANS_PENDING) == []


@pytest.mark.req("G5", "M1")
def test_a_power_cut_between_the_two_writes_merges_every_mailbox(tmp_path: Path) -> None:
    """Only what was synced is left: the mailbox, not the memory, nor the mark that says whose it is."""

    def make(root: str) -> None:
        for session in ("s1", "s2", "s3"):
            Desk(root, session).admit(note(f"old-{session}"))

    prepare = template(tmp_path, make)
    for crash in crashes(tmp_path, "Desk(root).admit(note('m1'))", setup=FAST, prepare=prepare, how=("after",)):
        desk = Desk(crash.root)
        stored = "m1" in desk.ids()
        log, pending = (Path(desk.layout.replay(ME, part)) for part in ("log", "pending"))
        log.write_bytes(b"boot 00000000-1111-2222-3333-444444444444 0\n")
        pending.unlink()
        other = desk.reopened("s4")
        assert other.admit(note("m1")) == (["replay"] if stored else ["stored"]), crash
        assert other.admit(*(note(f"old-s{n}") for n in (1, 2, 3))) == ["replay"] * 3, crash


@pytest.mark.req("G5", "M16")
def test_the_memory_is_written_anew_without_a_gap(tmp_path: Path) -> None:
    def make(root: str) -> None:
        desk = Desk(root)
        desk.admit(*(note(f"m{n}") for n in range(25)))
        desk.ack(*(f"m{n}" for n in range(25)))

    setup = FAST + "set_to = settings(replay_compact_bytes=1024)\n"
    act = "Desk(root, set_to=set_to).admit(note('new'))"
    rewritten = set()
    for crash in crashes(tmp_path, act, setup=setup, prepare=template(tmp_path, make), how=KILLED):
        desk = Desk(crash.root)
        old, new = (Path(Layout(r).replay(ME)).read_bytes() for r in (str(tmp_path / "template"), crash.root))
        rewritten.add(old[:60] == new[:60])
        stored = desk.ids() == ["new"]
        everything = [note(f"m{n}") for n in range(25)]
        other = desk.reopened("s2")
        last = "replay" if stored else "stored"
        assert other.admit(*everything, note("new")) == ["replay"] * 25 + [last], crash
    assert rewritten == {True, False}


# --- consuming and notices ------------------------------------------------------------------------


@pytest.mark.req("M5", "M13")
def test_an_acknowledgement_is_done_or_not_done_at_all(tmp_path: Path) -> None:
    def make(root: str) -> None:
        desk = Desk(root)
        desk.admit(note("m1"), note("m2"), note("m3"))
        desk.reserve()
        desk.settle("n1", states.INBOX_QUEUED)

    act = "print(Desk(root).ack('m1', 'm2').newly, file=open(root + '.said', 'w'))"
    seen = set()
    for crash in crashes(tmp_path, act, setup=FAST, prepare=template(tmp_path, make), how=WAYS):
        check_file(crash)
        desk = Desk(crash.root)
        ids = tuple(desk.ids())
        assert ids in (("m1", "m2", "m3"), ("m3",)), crash
        seen.add(ids)
        said = Path(crash.root + ".said")
        if said.exists() and said.read_text():
            assert ids == ("m3",), crash
        assert desk.reopened().admit(note("m1"), note("m2")) == ["repeat", "repeat"], crash
        assert desk.reopened().ack("m1", "m2") == ((2, 0, 0, ()) if len(ids) == 3 else (0, 2, 0, ()))
    assert len(seen) == 2
    assert unsynced(crash.steps, ignore=MEANS_PENDING) == []


@pytest.mark.req("M9", "M7")
def test_a_reservation_that_was_interrupted_is_handed_off_by_the_next(tmp_path: Path) -> None:
    def make(root: str) -> None:
        Desk(root).admit(note("m1"), note("m2"))

    act = "Desk(root).reserve('n1')"
    kept = set()
    for crash in crashes(tmp_path, act, setup=FAST, prepare=template(tmp_path, make), how=WAYS):
        check_file(crash)
        desk = Desk(crash.root)
        left = desk.notice()
        kept.add(left is not None)
        again = desk.reserve("n2", taking_over=True)
        assert again is not None and again.notice.id == ("n1" if left else "n2"), crash
        assert [r.receipt_id for r in again.waiting] == ["m1", "m2"]
        assert desk.settle(again.notice.id, states.HOST_QUEUED)
        assert desk.reserve("n3") is None
    assert kept == {True, False}


@pytest.mark.req("M9", "S3")
def test_a_settlement_that_was_interrupted_leaves_the_reservation_or_its_end(tmp_path: Path) -> None:
    def make(root: str) -> None:
        desk = Desk(root)
        desk.admit(note("m1"))
        desk.reserve("n1")

    act = "Desk(root).settle('n1', 'host_queued')"
    seen = set()
    for crash in crashes(tmp_path, act, setup=FAST, prepare=template(tmp_path, make), how=WAYS):
        check_file(crash)
        desk = Desk(crash.root)
        settled = desk.state("m1") == states.HOST_QUEUED
        seen.add(settled)
        notice = desk.notice()
        assert notice is not None and notice.state == (states.HOST_QUEUED if settled else "reserved"), crash
        assert desk.ids() == ["m1"]
        assert (desk.reserve("n2", taking_over=True) is None) == settled, crash
    assert seen == {True, False}


@pytest.mark.req("M16", "M1")
def test_room_is_made_and_used_in_one_step(tmp_path: Path) -> None:
    def make(root: str) -> None:
        desk = Desk(root, set_to=settings(mailbox_max_records=2))
        desk.admit(note("m1"), note("m2"))
        desk.ack("m1")

    act = "Desk(root, set_to=settings(mailbox_max_records=2)).admit(note('m3'))"
    for crash in crashes(tmp_path, act, setup=FAST, prepare=template(tmp_path, make), how=WAYS):
        check_file(crash)
        box: Box = Desk(crash.root).mailbox.read()
        here = ([k for _s, k in box.records], [k for _s, k in box.tombstones])
        assert here in ((["m1", "m2"], []), (["m2", "m3"], ["m1"])), crash
        assert Desk(crash.root).admit(note("m1")) == ["repeat"]
