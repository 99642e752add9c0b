"""The replay memory of an identity: which messages any of its sessions has stored (G5).

The signature does not bind the session, so a message captured for one session is refused in another.
The memory is a log, `replay/<identity>.log`, one line a message: forget time (ms), digest, session.

Order within an admission, all under `replay/<identity>.lock`:
  1. `pending` names the session (so that a process that dies in between is noticed)
  2. the mailbox is committed
  3. the log is appended and synced
  4. `pending` is emptied
A process that finds `pending` set merges that session's mailbox first; after a power cut (another boot
id at the head of the log) it merges all mailboxes of the identity. So a crash loses nothing (mailbox
first), and nothing that a mailbox holds is ever unknown here.
"""

import hashlib
import os
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import NamedTuple

from interlink.errors import StateError
from interlink.state import files
from interlink.state.locks import Lock
from interlink.state.paths import Layout, check_session

COMPACT_BYTES = 1 << 20
_DIGEST_CHARS = 32


class Entry(NamedTuple):
    """One remembered message. `digest` from `digest_of`."""

    forget_ms: int
    digest: str
    session: str


def digest_of(sender: str, msg_id: str, fp: str) -> str:
    """What a message is remembered by: sender key, its own msg_id, content fingerprint."""
    joined = "\0".join((sender, msg_id, fp)).encode("utf-8")
    return hashlib.sha256(joined).hexdigest()[:_DIGEST_CHARS]


# Reads one session's mailbox (None: all of the identity) and yields what it remembers.
Recover = Callable[[str | None], Iterable[Entry]]


class ReplayMemory:
    """The shared memory, held while one batch is admitted:

    with memory.locked(session, recover, now_ms):
        memory.session_of(digest)      # "" or the session that stored it
        ...commit the mailbox...
        memory.remember(entries)
    """

    def __init__(self, layout: Layout, identity: str) -> None:
        self._layout = layout
        self._path = layout.replay(identity)
        self._pending = layout.replay(identity, "pending")
        self._lock = Lock(layout.replay(identity, "lock"))
        self._known: dict[str, Entry] = {}
        self._offset = 0
        self._inode = 0
        self._boot = ""

    def locked(self, session: str, recover: Recover, now_ms: int) -> "_Held":
        """A context manager; StateError where the memory cannot be read."""
        return _Held(self, session, recover, now_ms)

    def session_of(self, digest: str) -> str:
        """The session that stored this message, "" where nobody did."""
        entry = self._known.get(digest)
        return entry.session if entry else ""

    def remember(self, entries: Iterable[Entry]) -> None:
        """Append and sync (one sync a batch). Call after the mailbox is committed."""
        new = [e for e in entries if e.digest not in self._known]
        if not new:
            return
        data = "".join(f"{e.forget_ms} {e.digest} {e.session}\n" for e in new).encode("ascii")
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                files.write_all(fd, data)
                os.fdatasync(fd) if hasattr(os, "fdatasync") else os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as exc:
            self._inode = 0  # what is on disk is uncertain: read it again
            raise files.explain(exc, f"append to {self._path}") from exc
        self._offset += len(data)
        for entry in new:
            self._known[entry.digest] = entry

    # -- under the lock -----------------------------------------------------------------------------

    def _enter(self, session: str, recover: Recover, now_ms: int) -> None:
        files.ensure_dir(os.path.dirname(self._path), self._layout.root)
        self._lock.acquire()
        try:
            boot = _boot_id()
            self._refresh()
            if self._boot != boot:
                self._rewrite((*self._known.values(), *recover(None)), boot, now_ms)
            pending = files.read_bytes(self._pending) or b""
            if pending:
                crashed = check_session(pending.decode("ascii", "replace"))
                self.remember(recover(crashed))
            if self._offset > COMPACT_BYTES:
                live = sum(1 for e in self._known.values() if e.forget_ms >= now_ms)
                if live * 2 < len(self._known):
                    self._rewrite(tuple(self._known.values()), boot, now_ms)
            self._mark(session)
        except BaseException:
            self._lock.release()
            raise

    def _leave(self, failed: bool) -> None:
        try:
            if not failed:
                self._mark("")
        finally:
            self._lock.release()

    def _mark(self, session: str) -> None:
        try:
            fd = os.open(self._pending, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, files.FILE_MODE)
            try:
                files.write_all(fd, session.encode("ascii"))
            finally:
                os.close(fd)
        except OSError as exc:
            raise files.explain(exc, f"write {self._pending}") from exc

    def _refresh(self) -> None:
        """Read what other processes appended since our last look."""
        sig = files.signature(self._path)
        if sig is None:
            self._known, self._offset, self._inode, self._boot = {}, 0, 0, ""
            return
        if sig[0] != self._inode or sig[1] < self._offset:
            self._known, self._offset, self._inode, self._boot = {}, 0, sig[0], ""
        if sig[1] == self._offset:
            return
        try:
            with open(self._path, "rb") as log:
                log.seek(self._offset)
                data = log.read()
        except OSError as exc:
            raise files.explain(exc, f"read {self._path}") from exc
        end = data.rfind(b"\n") + 1
        if end < len(data):  # a line cut by a crash: the mailbox has its message, `pending` says whose
            self._truncate(self._offset + end)
        for line in data[:end].decode("ascii", "replace").split("\n"):
            self._read_line(line)
        self._offset += end

    def _read_line(self, line: str) -> None:
        if line.startswith("boot "):
            self._boot = line[5:]
            return
        parts = line.split(" ")
        if len(parts) == 3 and parts[0].isdigit() and len(parts[1]) == _DIGEST_CHARS:
            self._known[parts[1]] = Entry(int(parts[0]), parts[1], parts[2])

    def _truncate(self, size: int) -> None:
        try:
            os.truncate(self._path, size)
        except OSError as exc:
            raise files.explain(exc, f"repair {self._path}") from exc

    def _rewrite(self, entries: Iterable[Entry], boot: str, now_ms: int) -> None:
        kept = {e.digest: e for e in entries if e.forget_ms >= now_ms}
        lines = [f"boot {boot}\n", *(f"{e.forget_ms} {e.digest} {e.session}\n" for e in kept.values())]
        data = "".join(lines).encode("ascii")
        files.atomic_write(self._path, data)
        sig = files.signature(self._path)
        if sig is None:
            raise StateError(f"{self._path} vanished while it was written")
        self._known, self._offset, self._inode, self._boot = kept, len(data), sig[0], boot


class _Held:
    def __init__(self, memory: ReplayMemory, session: str, recover: Recover, now_ms: int) -> None:
        self._args = (memory, session, recover, now_ms)

    def __enter__(self) -> ReplayMemory:
        memory, session, recover, now_ms = self._args
        memory._enter(session, recover, now_ms)
        return memory

    def __exit__(
        self, kind: type[BaseException] | None, _exc: BaseException | None, _tb: TracebackType | None
    ) -> None:
        # After a failure `pending` stays: the next holder merges our mailbox, whatever got as far as the disk.
        self._args[0]._leave(failed=kind is not None)


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as f:
            return f.read().strip()
    except OSError:
        return "none"
