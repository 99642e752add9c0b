"""The light kernel lock: flock(2) itself, for the files that the listener shares (C3, T2).

Meets `state/locks.py` on the same file (both are flock), but costs neither 9 MB nor 40 ms. Where there is
no fcntl it falls back to that one. The file is never unlinked: what a dead holder left in it does no harm (F9).
"""

import errno
import os
import stat
import time

from interlink.errors import LockBusy, StateError
from interlink.state.files import FILE_MODE, explain, write_all

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_FIRST_PAUSE_S = 0.0005
_LONGEST_PAUSE_S = 0.02


class Flock:
    """One exclusive lock; gone with its process. `with Flock(path):` waits, `try_acquire()` does not.

    Raises StateError where the file cannot be locked (permissions, a directory or link in its place, a file
    system without locks): a lock fault is an error, never an empty result.
    """

    def __init__(self, path: str, timeout_s: float = 30) -> None:
        self.path = path
        self._timeout_s = timeout_s
        self._fd = -1
        self._portable: object | None = None

    @property
    def held(self) -> bool:
        return self._fd >= 0 or self._portable is not None

    def try_acquire(self, *, shared: bool = False) -> bool:
        """True when the lock is ours now. `shared` asks for a reader's lock instead of the exclusive one."""
        if self.held:
            return True
        if fcntl is None:
            return self._try_portable()
        fd = self._open()
        try:
            fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as exc:
            os.close(fd)
            if exc.errno in (errno.EWOULDBLOCK, errno.EAGAIN):
                return False
            raise explain(exc, f"lock {self.path}") from exc
        self._fd = fd
        return True

    def acquire(self, timeout_s: float | None = None) -> None:
        """Wait up to `timeout_s` seconds; LockBusy after that."""
        wait = self._timeout_s if timeout_s is None else timeout_s
        end = time.monotonic() + wait
        pause = _FIRST_PAUSE_S
        while not self.try_acquire():
            left = end - time.monotonic()
            if left <= 0:
                raise LockBusy(f"{self.path} is held by another process (waited {wait:g} s)")
            time.sleep(min(pause, left))
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    def in_place(self) -> bool:
        """False when somebody unlinked or replaced the file while we held it: another could then hold it too."""
        if self._fd < 0:
            return self.held
        try:
            there = os.stat(self.path)
        except OSError:
            return False
        mine = os.fstat(self._fd)
        return (there.st_ino, there.st_dev) == (mine.st_ino, mine.st_dev)

    def write(self, data: bytes) -> None:
        """Leave a note about the holder in the file: for people and probes, never trusted as a lock."""
        if self._fd < 0:
            return
        try:
            os.ftruncate(self._fd, 0)
            os.lseek(self._fd, 0, os.SEEK_SET)
            write_all(self._fd, data)
        except OSError as exc:
            raise explain(exc, f"write {self.path}") from exc

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._portable is not None:
            from interlink.state.locks import Lock

            assert isinstance(self._portable, Lock)
            self._portable.release()
            self._portable = None

    def __enter__(self) -> "Flock":
        self.acquire()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.release()

    def _open(self) -> int:
        # O_NONBLOCK: a pipe in the file's place must not hold us up before we can refuse it.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            fd = os.open(self.path, flags, FILE_MODE)
            try:
                info = os.fstat(fd)
                if not stat.S_ISREG(info.st_mode):
                    raise StateError(f"{self.path} is not a regular file: move it away")
                if info.st_mode & 0o077:
                    os.fchmod(fd, FILE_MODE)
            except (OSError, StateError):
                os.close(fd)
                raise
        except OSError as exc:
            raise explain(exc, f"open the lock file {self.path}") from exc
        return fd

    def _try_portable(self) -> bool:
        from interlink.state.locks import Lock

        lock = Lock(self.path)
        if not lock.try_acquire():
            return False
        self._portable = lock
        return True
