"""The mailbox on disk: one snapshot, replaced atomically, one write a batch (M1, M15 to M17).

    with mailbox.change() as box:      # lock, newest content
        ...                            # mutate
        box.dirty = True               # commit at the end: temporary file, sync, rename, sync

Reading needs no lock: the file is replaced whole. The parsed content is cached by (inode, size, mtime),
so that an idle second costs a stat (M9). A corrupt file is never overwritten; a copy is set aside (M17).
All functions block; sessions call them in a worker thread.
"""

import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from interlink import log
from interlink.errors import CorruptFile, StateError
from interlink.mailbox import notice as notices
from interlink.mailbox import states
from interlink.mailbox.box import Box, is_local
from interlink.mailbox.record import Notice, Record, Tombstone
from interlink.mailbox.rules import fetch_order, page_after
from interlink.mailbox.staging import Acknowledged, Receipt
from interlink.mailbox.staging import acknowledge as consume
from interlink.settings import Settings
from interlink.state import files
from interlink.state.locks import Lock
from interlink.state.paths import Layout


class View(NamedTuple):
    """Which records this user sees now: senders on the allowlist, own key, local sources (G7)."""

    identity: str
    petnames: Mapping[str, str]  # public key -> petname
    now_ms: int

    def sees(self, record: Record) -> bool:
        """False for unread mail of a removed peer (quarantined) and an ephemeral message past its life."""
        expires = record.local.expires_ms if record.local is not None else None
        return self.trusts(record.message.sender) and (expires is None or expires > self.now_ms)

    def trusts(self, sender: str) -> bool:
        """True for a sender on the allowlist, our own key and a local source."""
        return sender == self.identity or sender in self.petnames or is_local(sender)

    def name(self, record: Record | Tombstone) -> str:
        """The petname that the user has for the sender now, else the one at arrival."""
        sender = record.message.sender if isinstance(record, Record) else record.sender
        return self.petnames.get(sender) or record.peer


class Page(NamedTuple):
    """Records of one fetch, and how many unread ones lie behind them."""

    records: list[Record]
    more: int
    unread: int


class Handoff(NamedTuple):
    """A reservation to hand to the host now; `waiting` = the attention-worthy records that it covers."""

    notice: Notice
    waiting: list[Record]
    progress: int  # unread progress beside them


class Mailbox:
    """One identity's and session's mailbox. Several processes may use the same file."""

    def __init__(self, layout: Layout, identity: str, session: str, settings: Settings) -> None:
        self.identity = identity
        self.session = session
        self.path = layout.mailbox(identity, session)
        self.settings = settings
        self._layout = layout
        self._lock = Lock(layout.mailbox_lock(identity, session))
        self._guard = threading.RLock()
        self._box: Box | None = None
        self._sig: tuple[int, int, int] | None = None
        self._durable: tuple[int, int, int] | None = None  # the version that is known to be on disk for good
        self._bad: tuple[tuple[int, int, int], CorruptFile] | None = None  # what was found not to parse
        self._faults: dict[str, str] = {}  # kind of work -> present fault

    @property
    def fault(self) -> str:
        """The present storage fault, one line; "" when all is well. A failed write stays until one succeeds,
        whatever is read meanwhile (M17)."""
        return next(iter(self._faults.values()), "")

    # -- content ------------------------------------------------------------------------------------

    def signature(self) -> tuple[int, int, int] | None:
        """Changes whenever the file does: one stat (M9)."""
        return files.signature(self.path)

    def read(self) -> Box:
        """The present content, not to be changed. StateError or CorruptFile where it cannot be read."""
        with self._guard, self.noting_faults("read"):
            sig = files.signature(self.path)
            if self._box is None or sig != self._sig:
                self._box = None
                self._box = self._load(sig)
            return self._box

    def _load(self, sig: tuple[int, int, int] | None) -> Box:
        # A file that is replaced after the look at it is newer than `sig` says: the next look reads it again.
        if self._bad is not None and self._bad[0] == sig:
            raise type(self._bad[1])(str(self._bad[1]))
        data = files.read_bytes(self.path)
        if data is None:
            self._sig = None
            return Box(self.identity, self.session)
        try:
            box = Box.decode(data, self.identity, self.session, self.path)
        except CorruptFile as exc:
            if sig is not None and (not exc.keep_copy or self._keep_copy(data)):
                self._bad = (sig, exc)
            raise
        self._sig = sig
        return box

    def _keep_copy(self, data: bytes) -> bool:
        copy = f"{self.path}.corrupt-{hashlib.sha256(data).hexdigest()[:8]}"
        try:
            if files.signature(copy) is None:
                files.atomic_write(copy, data)
                log.event("mailbox_corrupt", session=self.session, copy=copy)
        except StateError as exc:  # the file itself is not touched either way
            log.event("mailbox_corrupt", session=self.session, copy="none", error=exc)
            return False
        return True

    @contextmanager
    def change(self) -> Iterator[Box]:
        """The newest content under the lock; committed at the end when `box.dirty` was set.

        After any failure the memory is dropped and the file is what it was. Raises StateError.
        """
        with self._guard:
            with self.noting_faults("lock"):
                files.ensure_dir(os.path.dirname(self.path), self._layout.root)
                self._lock.acquire()
            try:
                box = self.read()
                box.dirty = False
                yield box
                if box.dirty:
                    with self.noting_faults("write"):
                        self._sig = files.atomic_write(self.path, box.encode())
                elif self._sig != self._durable:
                    self._make_durable()
                self._durable = self._sig
                box.dirty = False
            except BaseException:
                self._box = self._sig = None
                raise
            finally:
                self._lock.release()

    def _make_durable(self) -> None:
        """Whoever put the file there may have ended before the rename was synced. What we say of its content
        ("stored before", "acknowledged before") must survive a power cut as well (M1)."""
        try:
            files.sync_dir(os.path.dirname(self.path))
        except OSError as exc:
            raise files.explain(exc, f"sync the folder of {self.path}") from exc

    @contextmanager
    def noting_faults(self, doing: str) -> Iterator[None]:
        """Keep the fault of one kind of work (lock, read, write, memory), and say when it comes and goes."""
        try:
            yield
        except StateError as exc:
            text, old = str(exc), self._faults.pop(doing, "")
            if text not in self._faults.values():  # else an inner one has noted it
                self._faults[doing] = text
                if text != old:
                    log.event("mailbox_fault", session=self.session, error=text)
            raise
        if self._faults.pop(doing, "") and not self._faults:
            log.event("mailbox_ok", session=self.session)

    # -- reading ------------------------------------------------------------------------------------

    def fetch(self, view: View, limit: int, after: tuple[str, str] | None = None) -> Page:
        """Current unread messages in stable order; consumes nothing, writes nothing (M4)."""
        with self._guard:
            box = self.read()
            ordered = [r for r in fetch_order(box.records.values()) if view.sees(r)]
            page = page_after(ordered, self._place(box, after))
            return Page(page[:limit], max(0, len(page) - limit), len(ordered))

    @staticmethod
    def _place(box: Box, after: tuple[str, str] | None) -> tuple[bool, int] | None:
        if after is None:
            return None
        record = box.records.get(after)
        if record is not None:
            return (record.is_update, record.seq)
        tomb = box.tombstones.get(after)
        return None if tomb is None else (tomb.update, tomb.seq)

    def find(self, msg_id: str, sender: str | None = None) -> list[Record | Tombstone]:
        """Records and tombstones with this message or receipt id."""
        with self._guard:
            box = self.read()
            found: list[Record | Tombstone] = [
                r for r in box.records.values() if msg_id in (r.receipt_id, r.own_id)
            ]
            found += [t for t in box.tombstones.values() if msg_id in (t.msg_id, t.own_id)]
            return [f for f in found if sender is None or f.key[0] == sender]

    def history(self, sender: str) -> list[Record | Tombstone]:
        """Everything kept of one sender, by (ts, message id); a tombstone has no body any more."""
        with self._guard:
            box = self.read()
            kept: list[Record | Tombstone] = [r for r in box.records.values() if r.message.sender == sender]
            kept += [t for t in box.tombstones.values() if t.sender == sender]
        return sorted(kept, key=lambda k: (k.message.ts if isinstance(k, Record) else k.ts, k.key[1]))

    def quarantined(self, view: View) -> int:
        """Unread messages of senders that are no longer on the allowlist (G7)."""
        with self._guard:
            return sum(1 for r in self.read().records.values() if r.unread and not view.trusts(r.message.sender))

    def watermark(self) -> int:
        """Every attention-worthy message with a lower admission sequence is consumed (C11)."""
        with self._guard:
            box = self.read()
            return min((r.seq for r in box.records.values() if r.attention), default=box.head.next_seq)

    # -- consuming ----------------------------------------------------------------------------------

    def acknowledge(self, receipts: list[Receipt], now_ms: int) -> Acknowledged:
        """Consume exactly these receipts, durably, with one write (M5, M13)."""
        with self.change() as box:
            result = consume(box, receipts, now_ms, self.settings)
            box.dirty = result.newly > 0
        return result

    # -- notices ------------------------------------------------------------------------------------

    def reserve(self, view: View, new_id: str, *, taking_over: bool = False) -> Handoff | None:
        """The notice to hand off now, reserved durably before it is returned; None where none is due (M7)."""
        with self._guard:
            if not taking_over and not self._step(self.read(), view, new_id, False).changed:
                return None
        with self.change() as box:
            step = self._step(box, view, new_id, taking_over)
            if step.changed:
                box.head.notice = step.notice
                box.dirty = True
            if not step.handoff or step.notice is None:
                return None
            seen = [r for r in box.records.values() if r.unread and view.sees(r)]
            waiting = [r for r in seen if r.attention and r.seq <= step.notice.through]
            return Handoff(step.notice, waiting, sum(1 for r in seen if r.is_update))

    def _step(self, box: Box, view: View, new_id: str, taking_over: bool) -> notices.Step:
        unread = [r.seq for r in box.records.values() if r.attention and view.sees(r)]
        return notices.step(
            box.head.notice,
            unread,
            view.now_ms,
            self.settings.notice_schedule_s,
            new_id,
            taking_over=taking_over,
        )

    def settle(self, notice_id: str, state: str, now_ms: int, *, definite_failure: bool) -> bool:
        """Write what became of a handoff: the reservation's state and the states of what it covers (S3).

        False where the reservation was released or replaced meanwhile: nothing is changed then. ValueError for
        a state that no handoff leads to.
        """
        if state not in states.HANDOFFS:
            raise ValueError(f"a handoff does not end in {state!r}")
        with self.change() as box:
            current = box.head.notice
            if current is None or current.id != notice_id:
                return False
            box.head.notice = notices.settle(
                current, state, now_ms, self.settings.notice_schedule_s, definite_failure=definite_failure
            )
            for record in box.records.values():
                if record.attention and record.seq <= current.through:
                    moved = states.advance(record.state, state)
                    if moved != record.state:
                        record.state = moved
                        box.put(record)
            box.dirty = True
            return True

    def next_look_ms(self) -> int | None:
        """When the reservation has to be looked at again if the file does not change; None = not at all."""
        with self._guard:
            notice = self.read().head.notice
            return None if notice is None else notice.retry_at

    def update(self, mutate: Callable[[Box], bool]) -> None:
        """Run a change that says whether it changed anything."""
        with self.change() as box:
            box.dirty = mutate(box)
