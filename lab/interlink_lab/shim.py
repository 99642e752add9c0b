"""Starts a program of the product with a clock and a disk that the lab can bend; the program itself is untouched.

    python -m interlink_lab.shim FOLDER MODULE [ARGUMENT]...

`FOLDER/clock` holds an offset of the wall clock in ms, `FOLDER/sync` a delay of each sync in ms; both are read as
they are needed, a missing file is 0. Monotonic time, timers and sleeps are the machine's own.
"""

import os
import runpy
import sys
import time
from collections.abc import Callable


def _number(path: str) -> int:
    try:
        with open(path, "rb") as file:
            return int(file.read() or b"0")
    except (FileNotFoundError, ValueError):
        return 0


def bend(folder: str) -> None:
    """Put the bent clock and sync in place for this process."""
    clock, sync = folder + "/clock", folder + "/sync"
    real_ns, real_sync, sleep = time.time_ns, os.fsync, time.sleep

    def time_ns() -> int:
        return real_ns() + _number(clock) * 1_000_000

    def now() -> float:
        return time_ns() / 1e9

    def slow(do: Callable[[int], None]) -> Callable[[int], None]:
        def synced(fd: int) -> None:
            delay = _number(sync)
            if delay:
                sleep(delay / 1000)
            do(fd)

        return synced

    time.time_ns, time.time = time_ns, now
    os.fsync = slow(real_sync)  # type: ignore[assignment]
    if hasattr(os, "fdatasync"):
        os.fdatasync = slow(os.fdatasync)  # type: ignore[assignment]


if __name__ == "__main__":
    bend(sys.argv[1])
    module = sys.argv[2]
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
