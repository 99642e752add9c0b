"""Storage that fails: nothing is lost or overwritten, the fault is visible, and it passes by itself (M17, G6)."""

import errno
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.crash import crashes
from support.disk import as_nobody, fill_disk, small_disk
from support.keys import identity
from support.mail import IN_CHILD, ME, Desk, note

from interlink.errors import LockBusy, StateError
from interlink.mailbox import states
from interlink.state.locks import Lock

STRANGER = identity(9)


@pytest.fixture
def open_root() -> Iterator[str]:
    """A state root that another user can reach."""
    with tempfile.TemporaryDirectory(prefix="interlink-faults-", dir="/tmp") as folder:
        os.chmod(folder, 0o711)
        root = os.path.join(folder, "root")
        os.mkdir(root, 0o700)
        yield root


# --- a full disk ----------------------------------------------------------------------------------


@pytest.mark.req("M17", "G6")
def test_a_full_disk_keeps_mail_on_the_relay_and_lets_it_in_when_there_is_room(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with small_disk(tmp_path / "disk", 512) as root:
        if root is None:
            pytest.skip("this user cannot mount a small file system")
        desk = Desk(root)
        desk.admit(note("m1", "x" * 60_000), note("m2", "x" * 60_000))
        before = Path(desk.mailbox.path).read_bytes()
        ballast = fill_disk(root)
        for _ in range(3):
            with pytest.raises(StateError, match="No space left on device"):
                desk.admit(note("m3", "x" * 1000))
            assert "No space left" in desk.mailbox.fault
            with pytest.raises(StateError, match=r"write .*s1\.json: No space left"):
                desk.ack("m1")
            assert desk.ids() == ["m1", "m2"]
            assert "No space left" in desk.mailbox.fault, "reading does not hide it"
            with pytest.raises(StateError):
                desk.reserve()
        assert Path(desk.mailbox.path).read_bytes() == before
        assert not [n for n in os.listdir(os.path.dirname(desk.mailbox.path)) if n.endswith(".tmp")]
        said = capsys.readouterr().err
        assert said.count("event=mailbox_fault") == 2 and "event=mailbox_ok" not in said, "one each, on change"
        # what needs no room is settled: repeats, and refusals beside one that cannot be stored
        assert desk.admit(note("m1", "x" * 60_000)) == ["repeat"]
        mixed = desk.admitted(note("knock", sender=STRANGER), note("m3", "x" * 1000), note("m4"))
        assert [(r.outcome, r.settled) for r in mixed] == [("stranger", True), ("kept", False), ("kept", False)]
        assert not desk.admission.full, "a full disk is no full mailbox"
        os.unlink(ballast)
        assert desk.ack("m1").newly == 1
        assert desk.admit(note("m3", "x" * 1000)) == ["stored"] and desk.mailbox.fault == ""
        assert desk.reopened().ids() == ["m2", "m3"]
        assert capsys.readouterr().err.count("event=mailbox_ok") == 1


@pytest.mark.req("M17", "G5")
def test_a_disk_that_fills_between_mailbox_and_memory_loses_neither(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 256) as root:
        if root is None:
            pytest.skip("this user cannot mount a small file system")
        desk = Desk(root)
        desk.admit(*(note(f"m{n}") for n in range(20)))
        size = os.path.getsize(desk.mailbox.path)
        fill_disk(root, leave=-(-(size + 2000) // 4096) * 4096 - 1)
        told = []
        for n in range(20, 90):  # the mailbox grows into the last pages; at some size the log has no page left
            try:
                told.append(desk.admit(note(f"m{n}"))[0])
            except StateError:
                break
        else:
            pytest.fail("the disk never filled")
        os.unlink(os.path.join(root, "ballast"))
        got = desk.reopened().ids()
        assert got[: 20 + len(told)] == [f"m{n}" for n in range(20 + len(told))]
        everything = [note(i) for i in got]
        assert desk.reopened("s2").admit(*everything) == ["replay"] * len(got)
        assert desk.reopened().admit(*everything) == ["repeat"] * len(got)


@pytest.mark.req("G6", "M17")
def test_what_is_refused_on_sight_needs_no_storage_at_all(state_root: str) -> None:
    desk = Desk(state_root)
    os.makedirs(os.path.dirname(desk.mailbox.path))
    Path(desk.mailbox.path).write_bytes(b"{")
    knock = note("knock", sender=STRANGER)
    results = desk.admitted(knock, note("m1"), knock)
    assert [(r.outcome, r.settled) for r in results] == [("stranger", True), ("kept", False), ("stranger", True)]
    assert "does not parse" in desk.mailbox.fault
    assert desk.admit(knock) == ["stranger"]
    with pytest.raises(StateError, match="does not parse"):
        desk.admit(note("m1"))
    empty = Desk(state_root, "never-used")
    assert empty.admit(knock) == ["stranger"] and not os.path.exists(empty.mailbox.path)


# --- a rename that was not synced -----------------------------------------------------------------


@pytest.mark.req("M1", "G5", "M5")
@pytest.mark.parametrize("again", ["desk.admit(note('m1'))", "desk.ack('m0')"], ids=["repeat", "acknowledged"])
def test_what_another_process_left_without_a_sync_is_synced_before_it_is_relied_on(
    tmp_path: Path, again: str
) -> None:
    """It ended between the rename and the sync of the folder; what we answer must outlive a power cut too."""

    def prepare(root: str) -> None:
        desk = Desk(root)
        desk.admit(note("m0"), note("m1"))
        desk.ack("m0")

    (done,) = crashes(tmp_path, f"desk = Desk(root)\n{again}\n{again}", setup=IN_CHILD, prepare=prepare, how=())
    folder = os.path.dirname(Desk(done.root).mailbox.path)
    syncs = [s for s in done.steps if s.name == "fsync" and s.paths[0] == folder]
    assert len(syncs) == 1, "once, and not at every repeat"
    assert not [s for s in done.steps if s.name == "replace"]


# --- each operation fails once --------------------------------------------------------------------

GOES_ON = """
from interlink.errors import StateError
desk = Desk(root)
failed = ""
try:
    {act}
except StateError as exc:
    failed = str(exc)
    assert failed.startswith("cannot "), failed
{act}
assert desk.reserve() is not None  # a write
assert desk.mailbox.fault == "", desk.mailbox.fault
"""


@pytest.mark.req("M17", "G6")
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES], ids=["ENOSPC", "EIO", "EACCES"])
@pytest.mark.parametrize(
    ("act", "unread"),
    [("desk.admit(note('m3'))", ["m1", "m2", "m3"]), ("desk.ack('m1')", ["m2"])],
    ids=["admit", "acknowledge"],
)
def test_an_operation_that_fails_once_is_one_clear_error_and_the_next_try_works(
    tmp_path: Path, code: int, act: str, unread: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # only for the looks of this process; the child's are real
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)

    def prepare(root: str) -> None:
        Desk(root).admit(note("m1"), note("m2"))

    tried = 0
    for crash in crashes(
        tmp_path, GOES_ON.format(act=act), setup=IN_CHILD, prepare=prepare, how=("fail",), code=code
    ):
        if crash.error is not None and "AssertionError" not in crash.error:
            continue  # a later call, of the second try
        tried += 1
        assert crash.error is None, crash
        desk = Desk(crash.root)
        assert desk.ids() == unread, crash
        assert desk.reopened("s2").admit(note("m1"), note("m2")) == ["replay", "replay"], crash
        if "admit" in act:
            assert desk.reopened("s2").admit(note("m3")) == ["replay"], crash
    assert tried > 10


# --- permissions ----------------------------------------------------------------------------------


@pytest.mark.req("M17")
@pytest.mark.parametrize("what", ["the file", "the folder", "the root"])
def test_what_may_not_be_read_or_written_is_said_and_left_alone(open_root: str, what: str) -> None:
    desk = Desk(open_root)
    desk.admit(note("m1"))
    path = Path(desk.mailbox.path)
    before = path.read_bytes()

    def act() -> None:
        place, mode = {
            "the file": (path, 0o000),
            "the folder": (path.parent, 0o500),
            "the root": (Path(open_root), 0o000),
        }[what]
        as_it_was = stat.S_IMODE(place.stat().st_mode)
        mine = desk.reopened()
        if what == "the folder":
            assert mine.ids() == ["m1"]
        place.chmod(mode)
        for _ in range(2):
            if what == "the folder":
                assert mine.ids() == ["m1"], "reading needs no right to write"
                with pytest.raises(StateError, match="Permission denied"):
                    mine.ack("m1")
            else:
                with pytest.raises(StateError, match="Permission denied"):
                    mine.mailbox.read()
            with pytest.raises(StateError, match="Permission denied"):
                mine.admit(note("m2"))
            assert "Permission denied" in mine.mailbox.fault
        place.chmod(as_it_was)
        assert mine.admit(note("m2")) == ["stored"] and mine.mailbox.fault == ""
        assert mine.ids() == ["m1", "m2"]

    as_nobody(open_root, act)
    assert before in (path.read_bytes(), before)


@pytest.mark.req("M17")
def test_the_copy_of_a_corrupt_file_that_cannot_be_set_aside_hides_nothing(open_root: str) -> None:
    desk = Desk(open_root)
    desk.admit(note("m1"))
    path = Path(desk.mailbox.path)
    path.write_bytes(b"{")

    def act() -> None:
        path.parent.chmod(0o500)
        mine = desk.reopened()
        for _ in range(2):
            with pytest.raises(StateError, match="does not parse"):
                mine.mailbox.read()
        assert path.read_bytes() == b"{" and not list(path.parent.glob("*.corrupt-*"))
        path.parent.chmod(0o700)
        with pytest.raises(StateError, match="does not parse"):
            mine.mailbox.read()
        assert [p.read_bytes() for p in path.parent.glob("*.corrupt-*")] == [b"{"]

    as_nobody(open_root, act)


# --- locks ----------------------------------------------------------------------------------------


@pytest.mark.req("M17", "T2")
@pytest.mark.parametrize("left", [b"", b"garbage \x00\xff", b"1", b"our pid"])
def test_what_lies_in_a_lock_file_does_no_harm(state_root: str, left: bytes) -> None:
    desk = Desk(state_root)
    os.makedirs(os.path.dirname(desk.mailbox.path))
    os.makedirs(os.path.dirname(desk.layout.replay(ME, "lock")))
    for path in (desk.layout.mailbox_lock(ME, "s1"), desk.layout.replay(ME, "lock")):
        Path(path).write_bytes(str(os.getpid()).encode() if left == b"our pid" else left)
    assert desk.admit(note("m1")) == ["stored"]
    assert desk.ack("m1").newly == 1


@pytest.mark.req("M17", "T2")
def test_a_lock_that_cannot_be_taken_is_a_fault_not_an_empty_mailbox(state_root: str) -> None:
    desk = Desk(state_root)
    os.makedirs(desk.layout.mailbox_lock(ME, "s1"))
    for act in (lambda: desk.admit(note("m1")), lambda: desk.ack("m1"), lambda: desk.reserve(taking_over=True)):
        with pytest.raises(StateError, match=r"s1\.lock"):
            act()
        assert "s1.lock" in desk.mailbox.fault
    os.rmdir(desk.layout.mailbox_lock(ME, "s1"))
    assert desk.admit(note("m1")) == ["stored"] and desk.mailbox.fault == ""


HOLD = """
import sys
from interlink.state.locks import Lock
lock = Lock(sys.argv[1])
lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.req("M17")
def test_a_lock_held_for_too_long_is_said_and_reading_goes_on(state_root: str) -> None:
    desk = Desk(state_root)
    desk.admit(note("m1"))
    path = desk.layout.mailbox_lock(ME, "s1")
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None and child.stdout.readline() == "held\n"
        desk.mailbox._lock = Lock(path, 0.05)
        with pytest.raises(LockBusy, match="held by another process"):
            desk.ack("m1")
        assert desk.ids() == ["m1"] and "held by another process" in desk.mailbox.fault
    finally:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.close()
        child.wait()
        child.stdout.close()
    assert desk.ack("m1").newly == 1 and desk.mailbox.fault == ""
    assert desk.state("m1") == states.RECEIVER_ACKNOWLEDGED
