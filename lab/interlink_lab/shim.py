"""Starts a program of the product with a clock and a disk that the lab can bend; the program itself is untouched.

    python -m interlink_lab.shim FOLDER MODULE [ARGUMENT]...

`FOLDER/clock` holds an offset of the wall clock in ms, `FOLDER/sync` a delay of each sync in ms, `FOLDER/full` is
1 while no file can grow; all are read as they are needed, a missing file is 0. Monotonic time, timers and sleeps
are the machine's own. What took effect is told once a change, in `FOLDER/bent.log`.
"""

import errno
import os
import runpy
import stat
import sys
import time
from collections.abc import Callable
from typing import Any


def _number(path: str) -> int:
    try:
        with open(path, "rb") as file:
            return int(file.read() or b"0")
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return 0


def bend(folder: str) -> None:
    """Put the bent clock, sync and write in place for this process."""
    clock, sync, full = folder + "/clock", folder + "/sync", folder + "/full"
    real_ns, real_sync, real_write, sleep = time.time_ns, os.fsync, os.write, time.sleep
    told: dict[str, int] = {}

    def tell(what: str, value: int) -> int:
        """Say in the log that a value took effect here; it is told again only after a change."""
        if value != told.get(what, 0):
            told[what] = value
            fd = os.open(folder + "/bent.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                real_write(fd, b"event=bent what=%s value=%d pid=%d\n" % (what.encode(), value, os.getpid()))
            finally:
                os.close(fd)
        return value

    def time_ns() -> int:
        return real_ns() + tell("clock", _number(clock)) * 1_000_000

    def now() -> float:
        return time_ns() / 1e9

    def slow(do: Callable[[int], None]) -> Callable[[int], None]:
        def synced(fd: int) -> None:
            delay = tell("sync", _number(sync))
            if delay:
                sleep(delay / 1000)
            do(fd)

        return synced

    def write(fd: int, data: Any) -> int:
        if fd > 2 and stat.S_ISREG(os.fstat(fd).st_mode) and tell("full", _number(full)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real_write(fd, data)

    time.time_ns, time.time = time_ns, now
    os.fsync = slow(real_sync)  # type: ignore[assignment]
    os.write = write
    if hasattr(os, "fdatasync"):
        os.fdatasync = slow(os.fdatasync)  # type: ignore[assignment]


if __name__ == "__main__":
    bend(sys.argv[1])
    module = sys.argv[2]
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
