"""A session's Claude inbox: records appended by the server, read once and in order by the listener (C6, C7, C11).

Files of `inbox/<session>.*`:
  jsonl     one JSON object a line, ended by byte 0x0A alone
  cursor    decimal byte offset of what the listener has handed over; missing = 0, beyond the file = 0
  io-lock   held for every append, and for every read and commit
  consumed  decimal N: all attention-worthy messages with an admission sequence below N are consumed
  owner     the identity key that this inbox belongs to
Durability: `append` returns after the record (and a new file's name) is on disk; a process that dies in
between leaves at most a partial last line, which no reader consumes and the next append repairs.
`commit` replaces the cursor atomically. Repeats are possible, gaps are not.

Light on purpose: the listener imports this file.
"""

import os
import stat
from collections.abc import Iterator, Mapping

from interlink.errors import StateError
from interlink.state import files
from interlink.state.flock import Flock
from interlink.state.paths import KEY_CHARS, KEY_LEN, Layout, check_identity

# The sender of notices; every other sender is that of a legacy message with its body in the line.
NOTICE_SENDER = "Interlink"
MAX_RECORDS = 64
MAX_BYTES = 256 << 10
_CHUNK = 1 << 16


class Batch:
    """What one read returned: `records` are the usable ones of the bytes `start` to `end`.

    `notes` are plain sentences about what the reader had to pass over or mend.
    """

    __slots__ = ("end", "notes", "records", "start")

    def __init__(self, records: list[dict[str, object]], start: int, end: int, notes: list[str]) -> None:
        self.records = records
        self.start = start
        self.end = end
        self.notes = notes


def append(layout: Layout, session: str, record: Mapping[str, object]) -> None:
    """Add one record and sync it; a partial last line is repaired first (C6, C7).

    Raises StateError where it cannot be written: the file then ends as before.
    """
    line = _encode(record)
    path = layout.inbox(session)
    prepare(layout)
    with Flock(layout.inbox(session, "io-lock")):
        try:
            fd = os.open(path, _flags(os.O_RDWR | os.O_CREAT | os.O_APPEND), files.FILE_MODE)
            try:
                size = _regular_size(fd, path)
                base, line = _repair(fd, size, line, layout, session)
                try:
                    files.write_all(fd, line)
                    os.fsync(fd)
                except OSError:
                    os.ftruncate(fd, base)
                    raise
            finally:
                os.close(fd)
            if size == 0:
                files.sync_dir(layout.inbox_dir())
        except OSError as exc:
            raise files.explain(exc, f"append to {path}") from exc


def read(
    layout: Layout,
    session: str,
    *,
    max_records: int = MAX_RECORDS,
    max_bytes: int = MAX_BYTES,
    lock_wait_s: float = 30,
) -> Batch:
    """The records behind the cursor: at most `max_records`, and none after `max_bytes` were reached (C7).

    One record alone may be longer. Changes nothing; `commit(batch.end)` consumes. Lines that are blank or no
    record are passed over, with a note. Raises StateError (unreadable file), LockBusy after `lock_wait_s`.
    """
    path = layout.inbox(session)
    records: list[dict[str, object]] = []
    notes: list[str] = []
    if files.signature(path) is None:
        return Batch(records, 0, 0, notes)
    with Flock(layout.inbox(session, "io-lock"), lock_wait_s):
        try:
            fd = os.open(path, _flags(os.O_RDONLY))
            try:
                start = end = _start(layout, session, fd, _regular_size(fd, path), notes)
                unusable = 0
                for line, end in _lines(fd, start):
                    record = _decode(line)
                    if record is not None:
                        records.append(record)
                    elif line.strip():
                        unusable += 1
                    if len(records) >= max_records or end - start >= max_bytes:
                        break
            finally:
                os.close(fd)
        except OSError as exc:
            raise files.explain(exc, f"read {path}") from exc
    if unusable:
        notes.append(f"passed over {unusable} unusable line{'s' if unusable > 1 else ''} of the inbox file")
    return Batch(records, start, end, notes)


def commit(layout: Layout, session: str, end: int, *, lock_wait_s: float = 30) -> None:
    """Everything before byte `end` is consumed: an atomic, synced replacement of the cursor (C7).

    Never moves back, unless the file became shorter than the cursor. Raises StateError: the cursor is as before.
    """
    with Flock(layout.inbox(session, "io-lock"), lock_wait_s):
        found = files.signature(layout.inbox(session))
        size = found[1] if found else 0
        now = _read_number(layout.inbox(session, "cursor"))
        if end > size or (now is not None and end <= now <= size):
            return
        files.atomic_write(layout.inbox(session, "cursor"), b"%d" % end)


def read_cursor(layout: Layout, session: str) -> int:
    """The byte offset of what is consumed; 0 where there is no usable one. Takes no lock."""
    return _read_number(layout.inbox(session, "cursor")) or 0


def set_consumed(layout: Layout, session: str, sequence: int) -> None:
    """Every attention-worthy message with an admission sequence below `sequence` is consumed (C11).

    Advisory and not synced: an older value only lets a notice wake once more. Whoever restarts the sequence
    of a mailbox must call this before the next notice.
    """
    path = layout.inbox(session, "consumed")
    if _read_number(path) == sequence:
        return
    prepare(layout)
    with Flock(layout.inbox(session, "io-lock")):
        files.atomic_write(path, b"%d" % sequence, durable=False)


def consumed(layout: Layout, session: str) -> int:
    """What `set_consumed` said last; 0 where there is nothing usable."""
    return _read_number(layout.inbox(session, "consumed")) or 0


def claim(layout: Layout, session: str, identity: str) -> None:
    """Bind the session's inbox to one identity key; StateError for a second one (C6)."""
    check_identity(identity)
    path = layout.inbox(session, "owner")
    prepare(layout)
    with Flock(layout.inbox(session, "io-lock")):
        owner = (files.read_bytes(path) or b"").decode("ascii", "replace").strip()
        if owner == identity:
            return
        if len(owner) == KEY_LEN and all(c in KEY_CHARS for c in owner):
            raise StateError(
                f"the inbox of session {session} belongs to another identity ({owner[:8]}): "
                f"choose another --session, or remove {path} if that identity is gone for good"
            )
        files.atomic_write(path, identity.encode("ascii"))


def prepare(layout: Layout) -> None:
    """Make or check the inbox directory. Raises StateError (M29)."""
    files.ensure_root(layout.root)
    files.ensure_dir(layout.inbox_dir(), layout.root)


def _encode(record: Mapping[str, object]) -> bytes:
    import json

    if not (isinstance(record.get("sender"), str) and isinstance(record.get("content"), str)):
        raise ValueError("an inbox record needs a sender and a content")
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def _decode(line: bytes) -> dict[str, object] | None:
    import json

    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict) and isinstance(value.get("sender"), str) and isinstance(value.get("content"), str):
        return value
    return None


def _flags(access: int) -> int:
    for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"):
        access |= getattr(os, name, 0)
    return access


def _regular_size(fd: int, path: str) -> int:
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        raise StateError(f"{path} is not a regular file: move it away")
    return info.st_size


def _repair(fd: int, size: int, line: bytes, layout: Layout, session: str) -> tuple[int, bytes]:
    """Where the file is cut back to if the write fails, and what to write.

    A partial last line is removed: its append never returned. One that is whole but for its newline gets it,
    and so does one that the cursor already points into.
    """
    start = _line_start(fd, size)
    if start == size:
        return size, line
    from interlink import log

    cursor = _read_number(layout.inbox(session, "cursor")) or 0
    if _decode(_read_at(fd, start, size - start)) is not None or start < cursor <= size:
        log.event("inbox_line_ended", session=session, bytes=size - start)
        return size, b"\n" + line
    os.ftruncate(fd, start)
    log.event("inbox_repaired", session=session, bytes_dropped=size - start)
    return start, line


def _start(layout: Layout, session: str, fd: int, size: int, notes: list[str]) -> int:
    path = layout.inbox(session, "cursor")
    cursor = _read_number(path)
    if cursor is None:
        if files.signature(path) is not None:
            notes.append("the inbox cursor was not a number: reading from the beginning, so records may repeat")
        return 0
    if cursor > size:
        return 0
    # A cursor inside a line (not one of ours) would lose that line: begin with it.
    return _line_start(fd, cursor)


def _line_start(fd: int, end: int) -> int:
    """The offset behind the last newline before `end`."""
    while end > 0:
        begin = max(0, end - _CHUNK)
        at = _read_at(fd, begin, end - begin).rfind(b"\n")
        if at >= 0:
            return begin + at + 1
        end = begin
    return 0


def _lines(fd: int, offset: int) -> Iterator[tuple[bytes, int]]:
    """Complete lines from `offset` on, without their newline, each with the offset behind it."""
    parts: list[bytes] = []
    os.lseek(fd, offset, os.SEEK_SET)
    while chunk := os.read(fd, _CHUNK):
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            parts.append(piece)
            line = b"".join(parts)
            parts = []
            offset += len(line) + 1
            yield line, offset
        parts.append(rest)


def _read_at(fd: int, offset: int, length: int) -> bytes:
    os.lseek(fd, offset, os.SEEK_SET)
    parts = []
    while length > 0 and (chunk := os.read(fd, length)):
        parts.append(chunk)
        length -= len(chunk)
    return b"".join(parts)


def _read_number(path: str) -> int | None:
    text = (files.read_bytes(path) or b"").strip()
    return int(text) if text.isdigit() and len(text) <= 18 else None
