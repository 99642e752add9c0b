"""The outbound log on disk (T5): a journal, one line a message, one line a change of state.

`outbox/<identity>/<session>.jsonl` is appended and synced, and compacted when most of it is old. It holds
what is pending and the last `outlog_max` messages.
"""

import os
import threading
from typing import Final

import msgspec

from interlink import log
from interlink.mailbox import states
from interlink.settings import Settings
from interlink.state import files
from interlink.state.locks import Lock
from interlink.state.paths import Layout

COMPACT_BYTES: Final = 1 << 20


class Outgoing(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One outbound message and its state. `accepted_ms`, `reason` as far as known."""

    msg_id: str
    peer: str
    to: str  # public key
    route: str
    text: str
    ts: int
    kind: str = "message"
    status: str | None = None
    task_id: str | None = None
    in_reply_to: str | None = None
    state: str = states.PENDING
    accepted_ms: int | None = None
    reason: str | None = None


class Change(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One line: `queue` with the message, or `state` with its id and new state."""

    op: str  # queue | state
    out: Outgoing | None = None
    msg_id: str = ""
    state: str = ""
    at: int = 0
    reason: str | None = None


_decode = msgspec.json.Decoder(Change)
_encode = msgspec.json.Encoder().encode


class Journal:
    """The outbound log on disk. Blocking; one instance a process, several processes may append."""

    def __init__(self, layout: Layout, identity: str, session: str, settings: Settings) -> None:
        self.path = layout.outbox(identity, session)
        self._layout = layout
        self._lock = Lock(self.path + ".lock")
        self._settings = settings
        self._guard = threading.RLock()
        self.entries: dict[str, Outgoing] = {}
        self._sig: tuple[int, int, int] | None = None
        self.skipped = 0

    def load(self) -> None:
        """Read the journal. A last line cut by a crash is passed over; StateError where it cannot be read."""
        with self._guard:
            sig = files.signature(self.path)
            if sig == self._sig and sig is not None:
                return
            data = files.read_bytes(self.path) or b""
            entries: dict[str, Outgoing] = {}
            skipped = 0
            lines = data.split(b"\n")
            for number, line in enumerate(lines):
                if not line.strip():
                    continue
                try:
                    apply(entries, _decode.decode(line))
                except (msgspec.DecodeError, UnicodeError):
                    if number < len(lines) - 1:
                        skipped += 1
            if skipped and skipped != self.skipped:
                log.event("outbox_lines_skipped", path=self.path, count=skipped)
            self.skipped = skipped
            self.entries = entries
            self._sig = sig

    def append(self, *changes: Change) -> None:
        """Durably add lines, then apply them. StateError where that fails; nothing is applied then."""
        data = b"".join(_encode(c) + b"\n" for c in changes)
        with self._guard:
            files.ensure_dir(os.path.dirname(self.path), self._layout.root)
            with self._lock:
                self.load()
                size = self._sig[1] if self._sig else 0
                self._write(data, size)
                for change in changes:
                    apply(self.entries, change)
                self._sig = files.signature(self.path)
                if size + len(data) > COMPACT_BYTES:
                    self._compact()

    def _write(self, data: bytes, size: int) -> None:
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, files.FILE_MODE)
            try:
                if size and os.pread(fd, 1, size - 1) != b"\n":
                    data = b"\n" + data  # end a line that a crash cut
                try:
                    files.write_all(fd, data)
                    os.fsync(fd)
                except OSError:
                    os.ftruncate(fd, size)
                    raise
            finally:
                os.close(fd)
            if size == 0:
                files.sync_dir(os.path.dirname(self.path))
        except OSError as exc:
            self._sig = None
            raise files.explain(exc, f"write {self.path}") from exc

    def _compact(self) -> None:
        """Keep what is pending and the newest of the log, within count and bytes."""
        done = [o for o in self.entries.values() if o.state != states.PENDING]
        room = self._settings.outbox_max_bytes
        kept: set[str] = set()
        for out in reversed(done[-self._settings.outlog_max :]):
            room -= len(out.text)
            if room < 0:
                break
            kept.add(out.msg_id)
        entries = {k: o for k, o in self.entries.items() if o.state == states.PENDING or k in kept}
        live = sum(len(o.text) + 300 for o in entries.values())
        size = self._sig[1] if self._sig else 0
        if len(entries) == len(self.entries) and size < 2 * live + COMPACT_BYTES:
            return
        data = b"".join(_encode(Change(op="queue", out=o)) + b"\n" for o in entries.values())
        self._sig = files.atomic_write(self.path, data)
        self.entries = entries


def apply(entries: dict[str, Outgoing], change: Change) -> None:
    """Apply one line; a move that is no edge of the states is ignored (S3)."""
    if change.op == "queue" and change.out is not None:
        entries[change.out.msg_id] = change.out
    elif change.op == "state" and change.msg_id in entries:
        out = entries[change.msg_id]
        moved = states.advance(out.state, change.state)
        if moved != out.state:
            out.state = moved
            out.accepted_ms = change.at if moved == states.BUS_ACCEPTED else None
        out.reason = change.reason
