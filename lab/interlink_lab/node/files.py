"""Faults of storage, applied to a node's state files: each can be undone."""

import ctypes
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

KINDS = ("corrupt", "truncate", "read-only", "unreadable", "in-the-way")
RENAME_EXCHANGE = 2
AT_FDCWD = -100


class FileFaults:
    """State files below a home, named as the product's documents name them (`mailbox`, `inbox` or a path).

    `corrupt`: bytes in the middle are replaced; `truncate`: the second half is gone; both under the product's own
    lock, so that nothing which was stored in that moment is lost by the lab. `in-the-way`: a file stands where
    the store's folder was (works for root too); `read-only`: no write bit on the folder; `unreadable`: no bit.
    """

    def __init__(self, home: Path) -> None:
        self._root = home / "state" / "interlink"
        self._config = home / "config" / "interlink"
        self._undo: dict[str, Callable[[], bool]] = {}

    def find(self, name: str) -> Path:
        """The newest file of a store (`mailbox`, `pairing`, `failed`, `inbox`), `peers`, or a path."""
        if name == "peers":
            return self._config / "peers.json"
        folder = self._root / name
        if folder.is_dir():
            files = [p for p in folder.rglob("*") if p.is_file() and (name == "inbox" or ".json" in p.suffix)]
            if not files:
                raise ValueError(f"there is no {name} file yet")
            return max(files, key=lambda p: p.stat().st_mtime_ns)
        return self._root / name

    def apply(self, what: str, name: str) -> str:
        """Do it to a file; returns its name. ValueError for what is not there, or has a fault already."""
        if what not in KINDS:
            raise ValueError(f"no file fault {what!r}: one of {', '.join(KINDS)}")
        if name in self._undo:
            raise ValueError(f"{name} has a fault already")
        path = self.find(name)
        {
            "corrupt": self._corrupt,
            "truncate": self._truncate,
            "read-only": self._read_only,
            "unreadable": self._unreadable,
            "in-the-way": self._in_the_way,
        }[what](name, path)
        return path.name

    def mend(self, name: str) -> bool:
        """Undo what was done to a file of this name. False where somebody has changed a damaged file meanwhile
        (M17: a corrupt file is never overwritten)."""
        undo = self._undo.pop(name, None)
        return True if undo is None else undo()

    def mend_all(self) -> None:
        for name in list(self._undo):
            self.mend(name)

    def _damage(self, name: str, path: Path, damage: Callable[[bytes], bytes]) -> None:
        copy = path.with_name(path.name + ".kept-by-the-lab")
        with _locked(path):
            good = path.read_bytes()
            shutil.copy2(path, copy)
            bad = damage(good)
            temp = path.with_name(path.name + ".damaged-by-the-lab")
            temp.write_bytes(bad)
            temp.chmod(0o600)
            temp.replace(path)

        def back() -> bool:
            with _locked(path):
                untouched = path.exists() and _digest(path.read_bytes()) == _digest(bad)
                if untouched:
                    copy.replace(path)
                return untouched

        self._undo[name] = back

    def _corrupt(self, name: str, path: Path) -> None:
        self._damage(name, path, lambda good: good[: len(good) // 3] + b"\x00\xff{" + good[len(good) // 3 + 3 :])

    def _truncate(self, name: str, path: Path) -> None:
        self._damage(name, path, lambda good: good[: len(good) // 2])

    def _read_only(self, name: str, path: Path) -> None:
        self._mode(name, path.parent, 0o500)

    def _unreadable(self, name: str, path: Path) -> None:
        self._mode(name, path, 0)

    def _mode(self, name: str, path: Path, mode: int) -> None:
        before = path.stat().st_mode & 0o7777
        path.chmod(mode)

        def back() -> bool:
            path.chmod(before)
            return True

        self._undo[name] = back

    def _in_the_way(self, name: str, path: Path) -> None:
        """Swap the store's folder for a file: every write below it fails, for root too."""
        folder = path.parent
        aside = self._root.parent / f".{folder.name}.set-aside-by-the-lab"  # not where stores are looked for
        aside.write_bytes(b"in the way")
        exchange(folder, aside)

        def back() -> bool:
            exchange(folder, aside)
            aside.unlink()
            return True

        self._undo[name] = back


def exchange(one: Path, other: Path) -> None:
    """Swap two names at once, so that nobody finds neither (Linux, renameat2). OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(one))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock beside a state file: the product writes under it."""
    lock = path.with_name(path.name + ".lock") if path.name == "peers.json" else path.with_suffix(".lock")
    fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
