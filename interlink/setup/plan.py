"""Changes to files of a person: planned, shown as a diff, then written all, each old content backed up (T2)."""

import difflib
import os
import stat
import time
from collections.abc import Sequence
from typing import NamedTuple

from interlink.errors import SetupError
from interlink.state import files

_CONTEXT_LINES = 1  # neighbours may hold what is nobody's business


class Change(NamedTuple):
    """One file: `old` None = it is new, `new` None = it goes. `brief`: where it is new its name says enough."""

    path: str
    old: bytes | None
    new: bytes | None
    brief: bool = False


class Plan(NamedTuple):
    """`changes` in the order in which they are written, `notes` for the person, `then`: what is left to do."""

    changes: list[Change]
    notes: list[str]
    then: list[str]


def change(path: str, new: bytes | None, *, brief: bool = False) -> list[Change]:
    """The change that gives a file this content: none where it has it. A link is followed. Raises StateError."""
    real = os.path.realpath(path)
    old = files.read_bytes(real)
    return [] if old == new else [Change(real, old, new, brief)]


def diff(changes: Sequence[Change]) -> str:
    """What would change, for a person to read."""
    parts = []
    for one in changes:
        if one.brief and one.old is None:
            parts.append(f"new file {one.path}\n")
            continue
        old, new = _lines(one.old), _lines(one.new)
        before = one.path if one.old is not None else os.devnull
        after = one.path if one.new is not None else os.devnull
        lines = difflib.unified_diff(old, new, before, after, n=_CONTEXT_LINES)
        parts.append("".join(line if line.endswith("\n") else line + "\n" for line in lines))
    return "\n".join(parts)


def apply(changes: Sequence[Change]) -> list[str]:
    """Write all of them; the paths of the backups. Raises StateError.

    SetupError, and nothing is changed, where a file is not any more what the person was shown.
    """
    for one in changes:
        if files.read_bytes(one.path) != one.old:
            raise SetupError(f"{one.path} was changed by another program just now: run this again")
    backups = [_back_up(one.path, one.old) for one in changes if one.old is not None]
    for one in changes:
        _write(one)
    return backups


def _lines(data: bytes | None) -> list[str]:
    return (data or b"").decode("utf-8", "replace").splitlines(keepends=True)


def _mode(path: str) -> int:
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        return files.FILE_MODE


def _back_up(path: str, data: bytes) -> str:
    """Copy the old content to `<path>.<time>.bak`, a name that no file has yet."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    copy, number = f"{path}.{stamp}.bak", 1
    while os.path.lexists(copy):
        number += 1
        copy = f"{path}.{stamp}-{number}.bak"
    files.atomic_write(copy, data, mode=_mode(path) & 0o700)
    return copy


def _write(one: Change) -> None:
    try:
        if one.new is None:
            os.unlink(one.path)
            return
        files.make_dirs(os.path.dirname(one.path))
        mode = _mode(one.path)
        files.atomic_write(one.path, one.new, mode=mode)
        if _mode(one.path) != mode:
            os.chmod(one.path, mode)  # the umask took bits that the file had
    except OSError as exc:
        raise files.explain(exc, f"change {one.path}") from exc
