"""One listener a session (C3): who holds the lock, and whether a newcomer should wait for it.

The lock is the kernel's. What its holder writes into the file only tells a newcomer whether that is a listener
of its own host (then there is nothing to do), or one that a dead or other host left (then it may end soon).
"""

import time
from collections.abc import Callable

from interlink.state import files
from interlink.state.flock import Flock
from interlink.state.process import Process

_NO_HOST = "-"
_PAUSE_S = 0.05


class Holder:
    """What a lock file says of its last holder: the listener, and its host where that is known."""

    __slots__ = ("host", "listener")

    def __init__(self, listener: Process, host: Process | None) -> None:
        self.listener = listener
        self.host = host


def take(path: str, host: Process | None, wait_s: float, wanted: Callable[[], bool]) -> Flock | None:
    """The lock; None where another listener has it, so that the caller has nothing to do.

    None at once for a listener of the same host, after `wait_s` seconds for any other, and when `wanted`
    turns false. Raises StateError for a lock that cannot be taken at all.
    """
    lock = Flock(path)
    end = time.monotonic() + wait_s
    while wanted():
        if lock.try_acquire():
            if lock.in_place():
                lock.write(f"{Process.me().text} {host.text if host else _NO_HOST}\n".encode("ascii"))
                return lock
            lock.release()
        elif _same_host(read_holder(path), host) or time.monotonic() >= end:
            return None
        else:
            time.sleep(_PAUSE_S)
    return None


def read_holder(path: str) -> Holder | None:
    """What the file says; None for no file, or one that no listener of ours wrote. Takes no lock."""
    words = (files.read_bytes(path) or b"")[:512].decode("ascii", "replace").split()
    if len(words) != 2:
        return None
    listener, host = Process.parse(words[0]), Process.parse(words[1])
    if listener is None or (host is None and words[1] != _NO_HOST):
        return None
    return Holder(listener, host)


def _same_host(holder: Holder | None, host: Process | None) -> bool:
    # A dead listener's note is a left-over: the real holder has not written its own yet.
    if holder is None or not holder.listener.alive():
        return False
    return holder.host == host and (host is None or host.alive())
