"""Faults of storage, applied to a node's state files: each can be undone."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

KINDS = ("corrupt", "truncate", "read-only", "unreadable", "in-the-way")


class FileFaults:
    """State files below a home, named as the product's documents name them (`mailbox`, `inbox` or a path).

    `corrupt`: bytes in the middle are replaced; `truncate`: the second half is gone; `in-the-way`: a folder of
    another user's making stands where the temporary file goes (works for root too); `read-only`: no write bit.
    """

    def __init__(self, home: Path) -> None:
        self._root = home / "state" / "interlink"
        self._config = home / "config" / "interlink"
        self._undo: dict[str, Callable[[], None]] = {}

    def find(self, name: str) -> Path:
        """The newest file of a store (`mailbox`, `pairing`, `failed`, `inbox`), `peers`, `relay`, or a path."""
        if name == "peers":
            return self._config / "peers.json"
        if name == "relay":
            return self._root / "bus" / "queue.db"
        folder = self._root / name
        if folder.is_dir():
            files = [p for p in folder.rglob("*.json*") if p.is_file() and not p.name.endswith("lock")]
            if not files:
                raise ValueError(f"there is no {name} file yet")
            return max(files, key=lambda p: p.stat().st_mtime_ns)
        return self._root / name

    def apply(self, what: str, name: str) -> str:
        """Do it to a file; returns its path below the root. ValueError for what is not there."""
        if what not in KINDS:
            raise ValueError(f"no file fault {what!r}: one of {', '.join(KINDS)}")
        path = self.find(name)
        {
            "corrupt": self._corrupt,
            "truncate": self._truncate,
            "read-only": self._read_only,
            "unreadable": self._unreadable,
            "in-the-way": self._in_the_way,
        }[what](name, path)
        return path.name

    def mend(self, name: str) -> None:
        """Undo what was done to a file of this name; nothing where nothing was."""
        undo = self._undo.pop(name, None)
        if undo is not None:
            undo()

    def mend_all(self) -> None:
        for name in list(self._undo):
            self.mend(name)

    def _keep(self, name: str, path: Path) -> None:
        copy = path.with_name(path.name + ".kept-by-the-lab")
        shutil.copy2(path, copy)

        def back() -> None:
            copy.replace(path)

        self._undo[name] = back

    def _corrupt(self, name: str, path: Path) -> None:
        self._keep(name, path)
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.seek(size // 3)
            file.write(b"\x00\xff{")

    def _truncate(self, name: str, path: Path) -> None:
        self._keep(name, path)
        os.truncate(path, path.stat().st_size // 2)

    def _read_only(self, name: str, path: Path) -> None:
        mode = path.parent.stat().st_mode & 0o7777
        path.parent.chmod(0o500)
        self._undo[name] = lambda: path.parent.chmod(mode)

    def _unreadable(self, name: str, path: Path) -> None:
        mode = path.stat().st_mode & 0o7777
        path.chmod(0)
        self._undo[name] = lambda: path.chmod(mode)

    def _in_the_way(self, name: str, path: Path) -> None:
        """Swap the store's folder for a file: every write below it fails, for root too."""
        folder = path.parent
        aside = folder.with_name(folder.name + ".set-aside-by-the-lab")
        folder.rename(aside)
        folder.write_bytes(b"in the way")

        def back() -> None:
            folder.unlink()
            aside.rename(folder)

        self._undo[name] = back
