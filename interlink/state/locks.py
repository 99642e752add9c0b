"""Kernel locks on sidecar files (T2): gone with the process, also on SIGKILL; left-over files do no harm (F9).

filelock does the locking (flock(2) where there is one), mode 0600, never a soft lock. The listener has
its own few lines instead (`listener/lock.py`), since importing filelock costs 9 MB.
"""

import os
import threading
import time

from interlink.errors import LockBusy, StateError
from interlink.state.files import FILE_MODE, explain, make_dirs


class Lock:
    """One exclusive lock. `with Lock(path):` waits; `try_acquire()` does not.

    It keeps out the other threads of this process too, which filelock alone lets in; it is not re-entrant.
    Raises StateError where the lock file cannot be used (permissions, a directory in its place, a file
    system without locks): a lock fault is an error, never an empty result.
    """

    def __init__(self, path: str, timeout_s: float = 30) -> None:
        from filelock import FileLock  # here, since it is slow to load and who only looks needs no lock

        self.path = path
        self._timeout_s = timeout_s
        self._lock = FileLock(path, mode=FILE_MODE, fallback_to_soft=False, thread_local=False)
        self._guard = threading.Lock()

    @property
    def held(self) -> bool:
        return self._lock.is_locked

    def acquire(self, timeout_s: float | None = None) -> None:
        """Wait up to `timeout_s` seconds; LockBusy after that."""
        wait = self._timeout_s if timeout_s is None else timeout_s
        end = time.monotonic() + wait
        if not (self._guard.acquire(timeout=wait) if wait > 0 else self._guard.acquire(blocking=False)):
            raise LockBusy(f"{self.path} is held by this process (waited {wait:g} s)")
        try:
            self._acquire(max(0.0, end - time.monotonic()), wait)
        except BaseException:
            self._guard.release()
            raise

    def _acquire(self, left_s: float, wait: float) -> None:
        from filelock import Timeout

        try:
            make_dirs(os.path.dirname(self.path) or os.curdir)  # filelock would make them for all to read (M29)
            self._lock.acquire(timeout=left_s, poll_interval=0.005)
        except Timeout as exc:
            raise LockBusy(f"{self.path} is held by another process (waited {wait:g} s)") from exc
        except (OSError, NotImplementedError) as exc:
            raise _fault(exc, self.path) from exc

    def try_acquire(self) -> bool:
        """True when the lock is ours now."""
        try:
            self.acquire(0)
        except LockBusy:
            return False
        return True

    def release(self) -> None:
        """Let go of it; nothing where it is not held."""
        if self._lock.is_locked:
            self._lock.release()
            self._guard.release()

    def __enter__(self) -> "Lock":
        self.acquire()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.release()


def _fault(exc: OSError | NotImplementedError, path: str) -> StateError:
    if isinstance(exc, OSError):
        return explain(exc, f"lock {path}")
    return StateError(f"cannot lock {path}: this file system has no locks; use a local directory")


def holder_pids(path: str) -> list[int] | None:
    """Process ids that hold a kernel lock on this file, read from the kernel's table; no lock is taken.

    None where the system has no such table. For `interlink doctor`.
    """
    try:
        info = os.stat(path)
        with open("/proc/locks", encoding="ascii", errors="replace") as table:
            lines = table.readlines()
    except FileNotFoundError:
        return None if not os.path.exists("/proc/locks") else []
    except OSError:
        return None
    wanted = f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x}:{info.st_ino}"
    pids = []
    for line in lines:
        fields = line.split()
        if len(fields) >= 6 and "->" not in fields and fields[5] == wanted:
            pids.append(int(fields[4]))
    return pids
