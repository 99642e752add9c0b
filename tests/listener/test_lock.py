"""One listener a session (C3), whatever lies in the lock file (F9)."""

import fcntl
import os
from pathlib import Path

import pytest
from support.listener import Wait, cursor, host, layout, notice, of, put, size, until, wait_once, waiting

from interlink.errors import LockBusy
from interlink.listener.lock import read_holder, take
from interlink.state.flock import Flock
from interlink.state.locks import Lock, holder_pids
from interlink.state.process import Process

LONG = {"INTERLINK_LISTENER_LOCK_WAIT_S": "60"}
BLIND = {"INTERLINK_LISTENER_POLL_S": "60"}  # it does not notice within the test that its host is gone


def lock_path() -> str:
    return layout().inbox("s1", "lock")


def is_free() -> bool:
    lock = Flock(lock_path())
    try:
        return lock.try_acquire()
    finally:
        lock.release()


@pytest.mark.req("C3", "H2", "H3")
def test_ten_at_once_then_the_host_is_killed() -> None:
    with host() as one_host:
        ten = [Wait(env={**of(one_host), **LONG}) for _ in range(10)]
        until(lambda: sum(w.proc.poll() is None for w in ten) == 1, "nine to end")
        (last,) = [w for w in ten if w.proc.poll() is None]
        last.listening()
        assert [w.end() for w in ten if w is not last] == [(0, "", "")] * 9
        one_host.kill()
        assert last.end() == (0, "", "")
    assert cursor() is None and is_free()


@pytest.mark.req("C3")
def test_without_a_known_host_a_second_one_ends_too() -> None:
    with waiting():
        assert wait_once(env=LONG) == (0, "", "")


@pytest.mark.req("C3")
def test_the_lock_goes_with_a_killed_listener() -> None:
    with host() as one_host, waiting(env=of(one_host)) as first:
        first.proc.kill()
        first.proc.wait()
        with waiting(env=of(one_host)) as second:
            put(notice())
            assert second.end()[0] == 2


@pytest.mark.req("C3")
@pytest.mark.parametrize("alive", [True, False], ids=["another host", "dead host"])
def test_another_hosts_listener_is_waited_for(alive: bool) -> None:
    with host() as old, host() as new, waiting(env={**of(old), **BLIND}) as first:
        if not alive:
            old.kill()
        short = {"INTERLINK_LISTENER_LOCK_WAIT_S": "0.2"}
        assert wait_once(env={**of(new), **short}) == (0, "", "")
        newcomer = Wait(env={**of(new), **LONG})
        first.proc.kill()
        first.proc.wait()
        newcomer.listening()
        put(notice())
        assert newcomer.end()[0] == 2
    assert cursor() == size()


@pytest.mark.req("C3")
def test_a_newcomer_whose_host_ends_stops_waiting() -> None:
    with host() as old, host() as new, waiting(env=of(old)):
        newcomer = Wait(env={**of(new), **LONG})
        new.kill()
        assert newcomer.end() == (0, "", "")


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    "left", [b"", b"garbage \xff\n", b"1\n", b"me", b"x" * 10_000, b"00000000-1-1 00000000-1-1\n"]
)
def test_left_over_lock_files_do_no_harm(left: bytes) -> None:
    os.makedirs(layout().inbox_dir(), mode=0o700)
    Path(lock_path()).write_bytes(str(os.getpid()).encode() if left == b"me" else left)
    os.chmod(lock_path(), 0o666)
    with host() as one_host, waiting(env=of(one_host)) as one:
        assert os.stat(lock_path()).st_mode & 0o777 == 0o600

        def told() -> bool:
            holder = read_holder(lock_path())
            return bool(
                holder and holder.listener.pid == one.pid and holder.host and holder.host.pid == one_host.pid
            )

        until(told, "its note of itself and its host")
        put(notice())
        assert one.end()[0] == 2
    assert os.path.exists(lock_path())


@pytest.mark.req("C3", "H1")
@pytest.mark.parametrize("kind", ["directory", "link", "pipe"])
def test_a_lock_that_cannot_be_taken_is_a_fault_and_no_empty_inbox(kind: str, tmp_path: Path) -> None:
    put(notice())
    if kind == "directory":
        os.mkdir(lock_path())
    elif kind == "pipe":
        os.mkfifo(lock_path())
    else:
        os.symlink(tmp_path / "elsewhere", lock_path())
    code, err, _ = wait_once()
    assert code == 1 and lock_path() in err and err.count("\n") == 1
    assert cursor() is None and not (tmp_path / "elsewhere").exists()


@pytest.mark.req("C3", "T2")
def test_both_kinds_of_lock_exclude_each_other() -> None:
    os.makedirs(layout().inbox_dir(), mode=0o700)
    with Lock(lock_path()):
        assert not is_free()
        assert wait_once(env={"INTERLINK_LISTENER_LOCK_WAIT_S": "0"}) == (0, "", "")
    with Flock(lock_path()):
        assert not Lock(lock_path()).try_acquire()
    assert is_free()


@pytest.mark.req("C3")
def test_a_lock_file_that_was_removed_is_locked_anew() -> None:
    with waiting() as one:
        os.unlink(lock_path())
        until(lambda: os.path.exists(lock_path()) and one.pid in (holder_pids(lock_path()) or []), "a new lock")
        put(notice())
        assert one.end()[0] == 2


def test_an_abandoned_try_leaves_no_descriptor() -> None:
    os.makedirs(layout().inbox_dir(), mode=0o700)
    before = len(os.listdir("/proc/self/fd"))
    with Flock(lock_path()):
        other = Flock(lock_path())
        assert not any(other.try_acquire() for _ in range(50))
    os.unlink(lock_path())
    os.mkfifo(lock_path())
    for _ in range(50):
        with pytest.raises(Exception, match="not a regular file"):
            Flock(lock_path()).try_acquire()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.req("C3", "T2")
def test_without_fcntl_the_portable_lock_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    os.makedirs(layout().inbox_dir(), mode=0o700)
    monkeypatch.setattr("interlink.state.flock.fcntl", None)
    first, second = Flock(lock_path()), Flock(lock_path())
    assert first.try_acquire() and first.held and first.in_place() and not second.try_acquire()
    with pytest.raises(LockBusy):
        second.acquire(0.01)
    first.write(b"nothing")
    first.release()
    with second:
        assert second.held and not first.held
    assert os.stat(lock_path()).st_mode & 0o777 == 0o600


@pytest.mark.req("C3", "H2")
def test_a_dead_listeners_note_says_nothing_about_the_holder() -> None:
    os.makedirs(layout().inbox_dir(), mode=0o700)
    me = Process.me()
    holder = Flock(lock_path())
    assert holder.try_acquire()
    Path(lock_path()).write_text(f"{me.boot}-{me.pid}-1 {me.text}\n")  # of an earlier process with our pid
    tries = iter(range(100))

    def wanted() -> bool:
        if next(tries) == 2:
            holder.release()
        return True

    got = take(lock_path(), me, 60, wanted)
    assert got is not None and got.held and next(tries) >= 3
    assert take(lock_path(), me, 60, lambda: True) is None  # now the note is that of the holder
    got.release()


@pytest.mark.req("C3")
def test_a_lock_on_a_file_that_was_just_removed_is_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    os.makedirs(layout().inbox_dir(), mode=0o700)
    real, left = fcntl.flock, [2]

    def removed(fd: int, operation: int) -> None:
        real(fd, operation)
        if left[0]:
            left[0] -= 1
            os.unlink(lock_path())

    monkeypatch.setattr("interlink.state.flock.fcntl.flock", removed)
    got = take(lock_path(), None, 60, lambda: True)
    assert got is not None and got.in_place() and left == [0]
    got.release()
