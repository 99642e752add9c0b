"""No process of a test outlives it: found by the test's own home in its environment, ended by pid (Linux)."""

import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

ENDING_S = 20.0  # what a host that was just ended may still take; a guard, never a measure


class Left(NamedTuple):
    """One process that is still there."""

    pid: int
    command: str


def of(mark: str) -> list[Left]:
    """Processes, apart from this one, that were started with `mark` in their environment. Zombies are none."""
    found = []
    for folder in Path("/proc").iterdir() if Path("/proc/self").exists() else ():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                found.append(Left(int(folder.name), words.decode("utf-8", "replace").strip()[:300]))
        except OSError:
            continue  # it has ended, or is another user's
    return [left for left in found if left.command]


def end(mark: str) -> list[Left]:
    """What is left after a while, each killed by its pid."""
    limit = time.monotonic() + ENDING_S
    while (left := of(mark)) and time.monotonic() < limit:
        time.sleep(0.05)
    for one in left:
        try:
            os.kill(one.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return left
