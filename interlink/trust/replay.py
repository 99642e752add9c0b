"""The replay memory of an identity: which messages any of its sessions has stored (G5).

The signature does not bind the session, so a message captured for one session is refused in another.
The memory is a log, `replay/<identity>.log`: a head line, then one line a message: forget time (ms), digest,
session. A later line of the same digest moves its forget time on.

Order within an admission that stores something, all under `replay/<identity>.lock`:
  1. `pending` names the session (so that a process that dies in between is noticed)
  2. the mailbox is committed
  3. the log is appended and synced
  4. `pending` is emptied
A process that finds a session in `pending` merges its mailbox first; after a power cut (another boot id at
the head of the log) it merges all mailboxes of the identity. One that cannot be read stays in `pending`, until
it can. So a crash loses nothing (mailbox first), and nothing that a mailbox holds stays unknown here.
"""

import hashlib
import os
import secrets
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import NamedTuple

from interlink import log
from interlink.errors import StateError, UsageError
from interlink.settings import Settings
from interlink.state import files, process
from interlink.state.locks import Lock
from interlink.state.paths import Layout, check_session

_DIGEST_CHARS = 32
_HEAD_MAX = 200
_NO_BOOT = "none"


class Entry(NamedTuple):
    """One remembered message. `digest` from `digest_of`."""

    forget_ms: int
    digest: str
    session: str


def digest_of(sender: str, msg_id: str, fp: str) -> str:
    """What a message is remembered by: sender key, its own msg_id, content fingerprint."""
    joined = "\0".join((sender, msg_id, fp)).encode("utf-8")
    return hashlib.sha256(joined).hexdigest()[:_DIGEST_CHARS]


# Reads one session's mailbox and gives what it remembers; StateError where it cannot be read.
Recover = Callable[[str], Iterable[Entry]]


class ReplayMemory:
    """The shared memory, held while one batch is admitted:

    with memory.locked(session, recover, now_ms):
        memory.session_of(digest)      # "" or the session that stored it
        memory.begin()                 # only where something will be stored
        ...commit the mailbox...
        memory.remember(entries)
    """

    def __init__(self, layout: Layout, identity: str, settings: Settings) -> None:
        self._layout = layout
        self._identity = identity
        self._settings = settings
        self._path = layout.replay(identity)
        self._pending = layout.replay(identity, "pending")
        self._lock = Lock(layout.replay(identity, "lock"))
        self._known: dict[str, Entry] = {}
        self._offset = 0
        self._head = b""  # first line: the boot, and a random part that changes whenever the log is written anew
        self._boot = ""
        self._now_ms = 0
        self._compact_at = settings.replay_compact_bytes
        self._loaded = False
        self._behind: tuple[str, ...] = ()  # sessions whose mailbox could not be merged yet
        self._session = ""
        self._named: tuple[str, ...] = ()  # what `pending` holds

    def locked(self, session: str, recover: Recover, now_ms: int) -> "_Held":
        """A context manager; StateError where the memory cannot be read or written."""
        return _Held(self, session, recover, now_ms)

    def session_of(self, digest: str) -> str:
        """The session that stored this message, "" where nobody did or its time is over."""
        entry = self._known.get(digest)
        return entry.session if entry is not None and entry.forget_ms >= self._now_ms else ""

    def begin(self) -> None:
        """Say on disk that our session is about to store something. Call before its mailbox is committed."""
        self._mark((*self._behind, self._session))

    def remember(self, entries: Iterable[Entry]) -> None:
        """Append and sync what is new or to be known for longer (one sync a batch, none where nothing is).

        Call after the mailbox is committed. What is known keeps its session.
        """
        new: dict[str, Entry] = {}
        for entry in entries:
            known = new.get(entry.digest) or self._known.get(entry.digest)
            if known is None or entry.forget_ms > known.forget_ms:
                new[entry.digest] = _merged(known, entry, self._now_ms)
        if not new:
            return
        data = b"".join(map(_line, new.values()))
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                files.write_all(fd, data)
                os.fdatasync(fd) if hasattr(os, "fdatasync") else os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as exc:
            self._head = b""  # what is on disk is uncertain: read it again
            raise files.explain(exc, f"append to {self._path}") from exc
        self._offset += len(data)
        self._known |= new

    # -- under the lock -----------------------------------------------------------------------------

    def _enter(self, session: str, recover: Recover, now_ms: int) -> None:
        files.ensure_dir(os.path.dirname(self._path), self._layout.root)
        self._lock.acquire()
        try:
            self._session = session
            self._catch_up(recover, now_ms)
        except BaseException:
            self._lock.release()
            raise

    def _catch_up(self, recover: Recover, now_ms: int) -> None:
        self._now_ms = now_ms
        boot = process.boot_id() or _NO_BOOT
        self._refresh()
        cut = self._boot != boot or (boot == _NO_BOOT and not self._loaded)
        left = self._left_pending()
        found = self._recovered(self._all_sessions() if cut else left, recover)
        if cut or self._offset > self._compact_at:
            self._rewrite((*self._known.values(), *found), boot)
        else:
            self.remember(found)
        self._loaded = True

    def _leave(self, failed: bool) -> None:
        try:
            if not failed and self._named != self._behind:
                self._mark(self._behind)
        finally:
            self._lock.release()

    def _all_sessions(self) -> list[str]:
        try:
            return self._layout.sessions_with_mailbox(self._identity)
        except OSError as exc:
            raise files.explain(exc, "list the mailboxes") from exc

    def _left_pending(self) -> list[str]:
        """Sessions that `pending` names; all of them where it holds something else."""
        data = files.read_bytes(self._pending) or b""
        self._named = tuple(data.decode("ascii", "replace").split())
        try:
            return [check_session(name) for name in self._named]
        except UsageError:
            return self._all_sessions()

    def _recovered(self, sessions: Iterable[str], recover: Recover) -> list[Entry]:
        """What their mailboxes remember. An unreadable one stops nobody else: it is merged when it can be."""
        found: list[Entry] = []
        behind: list[str] = []
        for name in sessions:
            try:
                found += recover(name)
            except StateError as exc:  # that session reports the fault itself
                behind.append(name)
                if name not in self._behind:
                    log.event("replay_memory_incomplete", session=name, error=exc)
        self._behind = tuple(behind)
        return found

    def _mark(self, sessions: Iterable[str]) -> None:
        names = tuple(dict.fromkeys(sessions))
        try:
            fd = os.open(self._pending, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, files.FILE_MODE)
            try:
                files.write_all(fd, "\n".join(names).encode("ascii"))
            finally:
                os.close(fd)
        except OSError as exc:
            raise files.explain(exc, f"write {self._pending}") from exc
        self._named = names

    def _refresh(self) -> None:
        """Read what other processes appended since our last look."""
        try:
            with open(self._path, "rb") as file:
                head = file.readline(_HEAD_MAX)
                size = os.fstat(file.fileno()).st_size
                if head != self._head:
                    self._forget_all(head)
                elif size < self._offset:  # lines are gone: made anew from the mailboxes and what we know
                    self._boot = ""
                    return
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            self._forget_all(b"")
            return
        except OSError as exc:
            raise files.explain(exc, f"read {self._path}") from exc
        end = data.rfind(b"\n") + 1
        if end < len(data):  # a line cut by a crash: the mailbox has its message, `pending` says whose
            self._truncate(self._offset + end)
        for line in data[:end].decode("ascii", "replace").split("\n")[:-1]:
            self._read_line(line)
        if self._loaded and not self._offset:
            self._compact_at = self._double(end)  # somebody has just written it anew
        self._offset += end

    def _forget_all(self, head: bytes) -> None:
        self._known, self._offset, self._head, self._boot = {}, 0, head, ""

    def _read_line(self, line: str) -> None:
        parts = line.split(" ")
        if len(parts) == 3 and parts[0].isdigit() and len(parts[1]) == _DIGEST_CHARS:
            entry = Entry(int(parts[0]), parts[1], parts[2])
            known = self._known.get(entry.digest)
            if known is None or entry.forget_ms > known.forget_ms:
                self._known[entry.digest] = entry
        elif len(parts) == 3 and parts[0] == "boot":
            self._boot = parts[1]
        else:
            self._boot = ""  # damaged: made anew from the mailboxes, and from what can be read

    def _truncate(self, size: int) -> None:
        try:
            os.truncate(self._path, size)
        except OSError as exc:
            raise files.explain(exc, f"repair {self._path}") from exc

    def _rewrite(self, entries: Iterable[Entry], boot: str) -> None:
        kept: dict[str, Entry] = {}
        for entry in entries:
            known = kept.get(entry.digest)
            if entry.forget_ms >= self._now_ms and (known is None or entry.forget_ms > known.forget_ms):
                kept[entry.digest] = _merged(known, entry, self._now_ms)
        head = f"boot {boot} {secrets.token_hex(8)}\n".encode("ascii")
        data = head + b"".join(map(_line, kept.values()))
        files.atomic_write(self._path, data)
        self._known, self._offset, self._head, self._boot = kept, len(data), head, boot
        self._compact_at = self._double(len(data))

    def _double(self, size: int) -> int:
        return max(self._settings.replay_compact_bytes, 2 * size)


def _line(entry: Entry) -> bytes:
    return f"{entry.forget_ms} {entry.digest} {entry.session}\n".encode("ascii")


def _merged(known: Entry | None, entry: Entry, now_ms: int) -> Entry:
    """The longer life; the session that stored it first, while that is remembered."""
    if known is None or known.forget_ms < now_ms:
        return entry
    return entry._replace(session=known.session)


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
