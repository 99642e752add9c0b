"""The queue's tables in SQLite: WAL, synchronous=FULL, one writing and one reading connection (B2).

Blocking calls; `queue.Queue` runs them on threads of its own. `commit` writes a group of requests in one
transaction, and nothing that it reports as stored is lost by a crash of the process or the machine.

A full disk. Deleting rows needs room in the log too, so a disk that our own messages filled would take
no acknowledgement any more, for ever. Therefore a reserve file holds some space back. When a commit
meets a full disk the reserve is given up: acknowledgements go on, sends are refused, freed pages are
handed back to the disk, and once the reserve can be taken again sends are accepted.
"""

import errno
import hmac
import os
import secrets
import sqlite3
import time
from collections.abc import Sequence
from importlib import resources
from typing import NamedTuple

from interlink import log
from interlink.errors import CorruptFile, InterlinkError, StateError
from interlink.settings import Settings
from interlink.state import files

SCHEMA_VERSION = 1
APPLICATION_ID = 0x496E7462  # "Intb": tells our file from any other SQLite database
VACUUM_PAGES = 500  # given back to the disk in one step; small, because it needs room in the log itself
SECRET_BYTES = 12
PAGE_BYTES = 4096


class StoreFault(InterlinkError):
    """The disk did not take a commit or a read: full, failing, or the file is damaged. May pass."""


class PutRow(NamedTuple):
    """One message to store. `ts` in ms since the epoch."""

    route: str
    payload: bytes
    ts: int


class AckRow(NamedTuple):
    """One acknowledgement request: all of `tokens` (sequence, secret) or none."""

    route: str
    tokens: Sequence[tuple[int, str]]


class StoredRow(NamedTuple):
    """One message as stored."""

    seq: int
    secret: str
    ts: int
    payload: bytes


class Committed(NamedTuple):
    """What one group led to. `freed[i]`: payload sizes that acknowledgement i deleted; None: foreign, refused."""

    put_fault: StoreFault | None
    ack_fault: StoreFault | None
    freed: list[list[int] | None]
    seconds: float


class Tables:
    """One open queue file; `path` None keeps it in memory. Raises StateError or CorruptFile on opening."""

    def __init__(self, path: str | None, settings: Settings) -> None:
        self.path = path
        self._settings = settings
        self._reserved = path is None
        self.healthy = True
        self.group_bytes = settings.relay_group_bytes
        try:
            try:
                self._open()
            except sqlite3.OperationalError:
                # On a full disk even the log's index file may have no room: that is what the reserve is for.
                if path is None or not os.path.exists(self._reserve_path()):
                    raise
                _unlink(self._reserve_path())
                self._open()
        except sqlite3.DatabaseError as exc:
            raise _opening_error(path, exc) from exc
        except OSError as exc:
            raise files.explain(exc, f"open the queue {path}") from exc
        if path is not None and not self._take_reserve():
            log.event("relay_storage_tight", warning="the disk has no room for the reserve: sends are refused")

    def _open(self) -> None:
        self._write_db = self._read_db = _connect(self.path)
        try:
            self._prepare()
            row = self._write_db.execute("SELECT value FROM counter WHERE name = 'seq'").fetchone()
            self.last_seq = int(row[0])
            # Messages and payload bytes by route, for the caps.
            rows = self._write_db.execute("SELECT route, count(*), sum(size) FROM message GROUP BY route")
            self.counts: dict[str, list[int]] = {route: [count, size] for route, count, size in rows}
            if self.path is not None:
                files.tighten(self.path)
                files.sync_dir(os.path.dirname(self.path))
                self._read_db = _connect(self.path)
                self._read_db.execute("PRAGMA query_only = 1")
        except BaseException:
            self._write_db.close()
            raise

    def _prepare(self) -> None:
        db = self._write_db
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        tables = int(db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
        ours = int(db.execute("PRAGMA application_id").fetchone()[0]) == APPLICATION_ID
        if version > SCHEMA_VERSION and ours:
            raise CorruptFile(
                f"{self.path} has queue version {version}, this program knows {SCHEMA_VERSION}: "
                "use the newer program, or another --db"
            )
        if tables and not ours:
            raise CorruptFile(f"{self.path} is a database of another program: choose another --db")
        if not tables:
            # Before the first table exists: lets a drained queue give its pages back to the disk.
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA fullfsync = 1")
        db.execute("PRAGMA checkpoint_fullfsync = 1")
        db.execute(f"PRAGMA journal_size_limit = {self._settings.relay_group_bytes}")
        if not tables:
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            schema = resources.files("interlink.relay").joinpath("schema.sql").read_text("utf-8")
            db.executescript(f"BEGIN IMMEDIATE;\n{schema}\nPRAGMA user_version = {SCHEMA_VERSION};\nCOMMIT;")

    # Writing

    def commit(self, puts: Sequence[PutRow], acks: Sequence[AckRow]) -> Committed:
        """Store and delete in one transaction; never raises for the disk's faults, it reports them.

        When the transaction fails, acknowledgements are tried once more without the sends: they free room.
        """
        began = time.perf_counter()
        fault: StoreFault | None = None
        wanted = len(puts)
        if not self._reserved and not self._regain():
            puts = ()
            fault = StoreFault("the relay's disk is full")
        freed: list[list[int] | None] = []
        ack_fault: StoreFault | None = None
        try:
            freed = self._transaction(puts, acks)
        except sqlite3.Error as exc:
            fault = self._failed(exc)
            if acks:
                try:
                    freed = self._transaction((), acks)
                except sqlite3.Error as second:
                    ack_fault = self._failed(second)
        self._note_health(fault or ack_fault)
        return Committed(fault if wanted else None, ack_fault, freed, time.perf_counter() - began)

    def _transaction(self, puts: Sequence[PutRow], acks: Sequence[AckRow]) -> list[list[int] | None]:
        db = self._write_db
        db.execute("BEGIN IMMEDIATE")
        last = self.last_seq
        if puts:
            random = secrets.token_urlsafe(SECRET_BYTES * len(puts))
            step = len(random) // len(puts)
            rows = []
            for i, (route, payload, ts) in enumerate(puts):
                last += 1
                rows.append((last, route, random[i * step : (i + 1) * step], ts, len(payload), payload))
            db.executemany("INSERT INTO message VALUES (?, ?, ?, ?, ?, ?)", rows)
        if puts or not acks:  # neither: a probe of the disk, which has to write something
            db.execute("UPDATE counter SET value = ? WHERE name = 'seq'", (last,))
        freed = [self._acknowledge(ack, last) for ack in acks]
        db.execute("COMMIT")
        self.last_seq = last
        return freed

    def _acknowledge(self, ack: AckRow, last_seq: int) -> list[int] | None:
        """Sizes deleted, or None (nothing deleted) where one token is not of this route.

        A token whose message is gone was acknowledged before: counts as done. While the message is there
        the secret must fit. A sequence never given out is nobody's.
        """
        db = self._write_db
        found: dict[int, int] = {}
        for seq, secret in ack.tokens:
            if seq > last_seq:
                return None
            row = db.execute("SELECT route, secret, size FROM message WHERE seq = ?", (seq,)).fetchone()
            if row is not None:
                if row[0] != ack.route or not hmac.compare_digest(row[1].encode(), secret.encode()):
                    return None
                found[seq] = row[2]
        db.executemany("DELETE FROM message WHERE seq = ?", [(seq,) for seq in found])
        return list(found.values())

    def _failed(self, exc: sqlite3.Error) -> StoreFault:
        if self._write_db.in_transaction:
            try:
                self._write_db.execute("ROLLBACK")
            except sqlite3.Error as second:
                log.event("relay_rollback_failed", error=second)
        if getattr(exc, "sqlite_errorname", "") == "SQLITE_FULL" and self.path is not None:
            self._give_up_reserve()
            return StoreFault("the relay's disk is full")
        return StoreFault(f"the relay's storage failed: {exc}")

    def _note_health(self, fault: StoreFault | None) -> None:
        healthy = fault is None
        if healthy != self.healthy:
            self.healthy = healthy
            if fault is not None:
                log.event("relay_storage_failing", error=fault, warning="senders are told to try again")
            else:
                log.event("relay_storage_recovered")

    # Reading

    def read(self, route: str, limit: int, max_bytes: int) -> list[StoredRow]:
        """The first messages of a route in order: at most `limit`, and `max_bytes` of payload (one may exceed).

        Raises StoreFault.
        """
        found: list[StoredRow] = []
        room = max_bytes
        try:
            # Closed at once: an open cursor would keep the log from being recycled.
            cursor = self._read_db.execute(
                "SELECT seq, secret, ts, payload FROM message WHERE route = ? ORDER BY seq LIMIT ?", (route, limit)
            )
            try:
                for row in cursor:
                    stored = StoredRow(*row)
                    room -= len(stored.payload)
                    if found and room < 0:
                        break
                    found.append(stored)
            finally:
                cursor.close()
        except sqlite3.Error as exc:
            raise StoreFault(f"the relay's storage failed: {exc}") from exc
        return found

    def close(self) -> None:
        """Empty the log into the file and close. Faults are logged: what was committed stays committed."""
        try:
            if self.path is not None:
                self._read_db.close()
                self._write_db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._write_db.close()
        except sqlite3.Error as exc:
            log.event("relay_close_failed", error=exc)

    # The reserve

    def _reserve_path(self) -> str:
        return f"{self.path}.reserve"

    def _take_reserve(self) -> bool:
        """Hold space back: the setting, or half of what is free where that is less. False: too little to go on.

        The log must fit into the reserve, with the largest message: its limits follow the reserve's size.
        """
        path = self._reserve_path()
        wanted = self._settings.relay_reserve_bytes
        size = min(wanted, _free_bytes(path) // 2)
        try:
            if size < min(wanted, 2 * self._settings.message_max_bytes):
                raise OSError(errno.ENOSPC, "no room for the reserve")
            if size:
                _allocate(path, size)
            pages = max(64, size // 4 // PAGE_BYTES) if size else 1000
            self._write_db.execute(f"PRAGMA wal_autocheckpoint = {pages}").fetchall()
        except (OSError, sqlite3.Error):
            _unlink(path)  # the caller says what this means
            return False
        self.group_bytes = (
            min(self._settings.relay_group_bytes, size // 2) if size else self._settings.relay_group_bytes
        )
        self._reserved = True
        return True

    def _give_up_reserve(self) -> None:
        if self._reserved:
            self._reserved = False
            _unlink(self._reserve_path())
            log.event("relay_reserve_used", warning="the disk is full: acknowledgements go on, sends are refused")
        self._shrink()

    def _regain(self) -> bool:
        """Try to have the reserve again. True when sends may be accepted."""
        self._shrink()
        if not self._take_reserve():
            return False
        log.event("relay_reserve_regained")
        return True

    def _shrink(self) -> None:
        """Hand freed pages and the log back to the disk, as far as it lets us."""
        for pragma in (
            "wal_checkpoint(TRUNCATE)",
            f"incremental_vacuum({VACUUM_PAGES})",
            "wal_checkpoint(TRUNCATE)",
        ):
            try:
                self._write_db.execute(f"PRAGMA {pragma}").fetchall()
            except sqlite3.Error:
                return  # the disk is still full: the caller sees that by the reserve, the next call tries again


def _connect(path: str | None) -> sqlite3.Connection:
    if path is not None:
        # Made by us first, so that it is private from its first byte; the log files take its mode over.
        fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), files.FILE_MODE)
        os.close(fd)
    db = sqlite3.connect(path or ":memory:", isolation_level=None, check_same_thread=False, timeout=5)
    return db


def _opening_error(path: str | None, exc: sqlite3.DatabaseError) -> StateError:
    name = getattr(exc, "sqlite_errorname", "")
    if name in ("SQLITE_NOTADB", "SQLITE_CORRUPT"):
        return CorruptFile(
            f"{path} is not a queue file or is damaged ({exc}): move it away, or choose another --db"
        )
    return StateError(f"cannot open the queue {path}: {exc}")


def _free_bytes(path: str) -> int:
    """Free space where `path` is, counting the file itself as free."""
    if not hasattr(os, "statvfs"):
        return 1 << 62
    info = os.statvfs(os.path.dirname(path))
    kept = files.signature(path)
    return info.f_bavail * info.f_frsize + (kept[1] if kept else 0)


def _allocate(path: str, size: int) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), files.FILE_MODE)
    try:
        if size:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(fd, 0, size)
            else:
                files.write_all(fd, bytes(size))
        os.ftruncate(fd, size)
    finally:
        os.close(fd)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return  # already gone, or the disk will tell with the next commit
