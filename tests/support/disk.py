"""Real storage faults: a file system that is small, a user who may not."""

import ctypes
import os
import pickle
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
NOBODY = 65_534


@contextmanager
def small_disk(folder: Path, kib: int) -> Iterator[str | None]:
    """A file system of this size, mounted at `folder`; None where this user or system cannot mount one."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if not sys.platform.startswith("linux"):
        yield None
        return
    libc = ctypes.CDLL(None, use_errno=True)
    where = os.fsencode(folder)
    if libc.mount(b"tmpfs", where, b"tmpfs", 0, f"size={kib}k,mode=0700".encode()) != 0:
        yield None
        return
    try:
        yield str(folder)
    finally:
        libc.umount2(where, 2)  # MNT_DETACH: also while something is still open


def fill_disk(folder: str, leave: int = 0) -> str:
    """Write a file until nothing more fits, but for `leave` bytes. Returns its path."""
    path = os.path.join(folder, "ballast")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    size = 0
    try:
        for block in (65_536, 4096, 1):
            try:
                while True:
                    size += os.write(fd, b"\0" * block)
            except OSError:
                continue
        os.ftruncate(fd, max(0, size - leave))
    finally:
        os.close(fd)
    return path


def as_nobody(root: str, act: Callable[[], T]) -> T:
    """What `act` returns in a child that owns `root` and may nothing else: root's rights pass every mode.

    AssertionError with the child's traceback where it raises. Without root's rights: called right here.
    """
    if os.geteuid() != 0:
        return act()
    for base, folders, names in os.walk(root):
        for name in (base, *(os.path.join(base, n) for n in (*folders, *names))):
            os.chown(name, NOBODY, NOBODY)
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            answer: tuple[bool, object] = (True, act())
        except BaseException:  # noqa: BLE001 - the child's failure, whatever it is, is the answer
            answer = (False, traceback.format_exc())
        with open(send, "wb") as pipe:
            pickle.dump(answer, pipe)
        os._exit(0)
    os.close(send)
    with open(receive, "rb") as pipe:
        good, result = pickle.load(pipe)
    os.waitpid(pid, 0)
    assert good, result
    return result  # type: ignore[no-any-return]
