"""Kernel locks (T2): exclusive between processes, gone with their holder, blind to what lies in the file (F9)."""

import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from interlink.errors import LockBusy, StateError
from interlink.state.locks import Lock, holder_pids

HOLD = """
import sys
import threading
import time
from interlink.state.locks import Lock
lock = Lock(sys.argv[1])
lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


def holder(path: str) -> "subprocess.Popen[str]":
    """A process that holds the lock until its stdin closes."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "held\n"
    return child


def finish(child: "subprocess.Popen[str]") -> None:
    assert child.stdin is not None and child.stdout is not None
    child.stdin.close()
    child.wait()
    child.stdout.close()


@pytest.mark.req("M29", "T2")
def test_a_lock_that_comes_first_makes_private_folders(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with Lock(str(tmp_path / "mailbox" / "key" / "s.lock")):
            for made in ("mailbox", "mailbox/key"):
                assert stat.S_IMODE((tmp_path / made).stat().st_mode) == 0o700
    finally:
        os.umask(before)


@pytest.mark.req("T2")
def test_one_process_at_a_time(tmp_path: Path) -> None:
    path = str(tmp_path / "l.lock")
    child = holder(path)
    lock = Lock(path)
    try:
        assert not lock.try_acquire() and not lock.held
        with pytest.raises(LockBusy, match=r"held by another process \(waited 0.05 s\)"):
            lock.acquire(0.05)
        assert holder_pids(path) == [child.pid]  # a probe, which takes no lock
    finally:
        finish(child)
    assert lock.try_acquire() and lock.held
    lock.release()
    assert not lock.held and holder_pids(path) == []


@pytest.mark.req("T2")
def test_a_lock_goes_with_a_killed_holder(tmp_path: Path) -> None:
    path = str(tmp_path / "l.lock")
    child = holder(path)
    child.kill()
    finish(child)
    with Lock(path, timeout_s=30) as lock:
        assert lock.held


@pytest.mark.req("T2")
@pytest.mark.parametrize("content", [b"", b"garbage \xff\x00", b"1", b"OUR PID", b"{}"])
def test_a_left_over_file_is_no_lock(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "l.lock"
    path.write_bytes(content.replace(b"OUR PID", str(os.getpid()).encode()))
    lock = Lock(str(path))
    assert lock.try_acquire()
    lock.release()


@pytest.mark.req("M29")
def test_a_lock_file_is_private(tmp_path: Path) -> None:
    with Lock(str(tmp_path / "l.lock")):
        assert stat.S_IMODE(os.stat(tmp_path / "l.lock").st_mode) == 0o600


def test_a_lock_fault_is_an_error_and_never_a_free_lock(tmp_path: Path) -> None:
    (tmp_path / "dir.lock").mkdir()
    lock = Lock(str(tmp_path / "dir.lock"), timeout_s=0)
    with pytest.raises(StateError, match="cannot lock") as caught:
        lock.acquire()
    assert not isinstance(caught.value, LockBusy) and not lock.held


def test_waiting_ends_when_the_holder_lets_go(tmp_path: Path) -> None:
    path = str(tmp_path / "l.lock")
    child = holder(path)
    waiter = subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    finish(child)
    assert waiter.stdout is not None and waiter.stdout.readline() == "held\n"
    finish(waiter)


def test_a_probe_of_nothing(tmp_path: Path) -> None:
    assert holder_pids(str(tmp_path / "none.lock")) == []


def test_one_lock_object_keeps_out_the_other_threads_of_its_process(tmp_path: Path) -> None:
    lock = Lock(str(tmp_path / "lock"))
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        for _ in range(20):
            with lock:
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.001)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 80
    assert lock.try_acquire() and not lock.try_acquire()
    lock.release()
    lock.release()
    assert lock.try_acquire()
    lock.release()
