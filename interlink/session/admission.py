"""From decoded messages to durable records: gate, mailbox, replay memory, in this order (G1, G5, G6, M1).

One lock, one write and one synced append a batch. Whatever is returned as anything but KEPT may be
acknowledged to the relay: it is on disk, or known, or refused for good.
"""

import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from interlink import log
from interlink.errors import StateError
from interlink.mailbox import staging
from interlink.mailbox.box import Box, is_local
from interlink.mailbox.record import Local, Record, Tombstone, content_fingerprint
from interlink.mailbox.store import Mailbox
from interlink.session.counters import Refusals
from interlink.settings import Settings
from interlink.state.paths import Layout
from interlink.trust import gate
from interlink.trust.replay import Entry, ReplayMemory, digest_of
from interlink.trust.wire import Message


class Incoming(NamedTuple):
    """One decoded message and the bytes that it arrived with."""

    message: Message
    size: int


class Admitted(NamedTuple):
    """`outcome`: an outcome of `mailbox.staging` or a refusal of `trust.gate`."""

    outcome: str
    petname: str = ""
    record: Record | None = None

    @property
    def settled(self) -> bool:
        """True when the relay may forget it (G6)."""
        return self.outcome != staging.KEPT


class Admission:
    """Admits into one mailbox. All its processes share the files; `counts` are this process's own."""

    def __init__(self, layout: Layout, mailbox: Mailbox, settings: Settings) -> None:
        self.mailbox = mailbox
        self.counts: Counter[str] = Counter()
        self.refusals = Refusals(layout, mailbox.identity, mailbox.session, settings)  # kept for `doctor` (G3)
        self.full = False
        self._layout = layout
        self.settings = settings
        self._memory = ReplayMemory(layout, mailbox.identity, settings)
        self._unread: dict[str, Mailbox] = {}  # other sessions' mailboxes that could not be read yet

    def open(self, now_ms: int) -> None:
        """Make sure that the replay memory knows what our mailbox holds. StateError where it cannot."""
        with self._locked(now_ms) as memory:
            memory.remember(self._recover(self.mailbox.session))

    def admit(self, batch: Sequence[Incoming], petnames: Mapping[str, str], now_ms: int) -> list[Admitted]:
        """Judge and store a batch. What the gate refuses on sight takes no lock and no disk.

        Where storage fails, the rest of the batch is KEPT; StateError where that is all of it.
        """
        me = self.mailbox.identity
        verdicts = [gate.judge(m, me, petnames, _not_asked, now_ms, self.settings) for m, _size in batch]
        results = [Admitted(v.reason, v.petname) for v in verdicts]
        passed = [n for n, verdict in enumerate(verdicts) if verdict.admitted]
        if passed:
            try:
                stored = self._store([batch[n] for n in passed], [verdicts[n].petname for n in passed], now_ms)
            except StateError:
                if len(passed) == len(batch):
                    raise
                stored = [Admitted(staging.KEPT, verdicts[n].petname) for n in passed]
            else:
                self._note_full(stored)
            for n, result in zip(passed, stored, strict=True):
                results[n] = result
        self._count(batch, results)
        self.refusals.flush(now_ms)
        return results

    def _store(self, batch: Sequence[Incoming], petnames: Sequence[str], now_ms: int) -> list[Admitted]:
        """Store what passed the gate but for the last question, whether it is a repeat."""
        with self._locked(now_ms) as memory:
            with self.mailbox.change() as box:
                staging.prune(box, now_ms, self.settings)
                ask = staging.memory_of(box, self.mailbox.session, _asking(memory))
                results = self._stage_all(box, batch, petnames, now_ms, ask)
                if any(r.record is not None for r in results):
                    memory.begin()
            memory.remember(self._entries(batch, results, memory))
        return results

    @contextmanager
    def _locked(self, now_ms: int) -> Iterator[ReplayMemory]:
        """The replay memory for one admission; its faults show as the mailbox's (M17)."""
        with (
            self.mailbox.noting_faults("memory"),
            self._memory.locked(self.mailbox.session, self._recover, now_ms) as memory,
        ):
            yield memory

    def admit_local(self, msg: Message, size: int, local: Local, now_ms: int) -> staging.Staged:
        """Store a message of a local source: no gate, since no key; the state root is the proof (L1)."""
        with self.mailbox.change() as box:
            staging.prune(box, now_ms, self.settings)
            staged = staging.stage(box, msg, msg.sender, size, now_ms, self.settings, secrets.token_hex(8), local)
            if staged.outcome == staging.REPEATED:
                box.dirty = staging.note_repeat(box, msg, now_ms, self.settings, local)
            else:
                box.dirty = staged.outcome != staging.KEPT
        if staged.collided:
            log.event("collision", msg_id=msg.msg_id, sender=msg.sender)
        return staged

    def _stage_all(
        self,
        box: Box,
        batch: Sequence[Incoming],
        petnames: Sequence[str],
        now_ms: int,
        ask: gate.Memory,
    ) -> list[Admitted]:
        results: list[Admitted] = []
        full = False
        for (message, size), petname in zip(batch, petnames, strict=True):
            known = ask(message)
            if known == gate.REPEAT:
                if staging.note_repeat(box, message, now_ms, self.settings):
                    box.dirty = True
                results.append(Admitted(staging.REPEATED, petname))
            elif known:
                results.append(Admitted(known, petname))
            elif full:  # keep the order of what waits: nothing overtakes the first that had no room
                results.append(Admitted(staging.KEPT, petname))
            else:
                staged = staging.stage(box, message, petname, size, now_ms, self.settings, secrets.token_hex(8))
                full = staged.outcome == staging.KEPT
                box.dirty = box.dirty or not full
                if staged.collided:
                    log.event("collision", msg_id=message.msg_id, sender=message.sender[:8])
                results.append(Admitted(staged.outcome, petname, staged.record))
        return results

    def _entries(
        self, batch: Sequence[Incoming], results: Sequence[Admitted], memory: ReplayMemory
    ) -> Iterator[Entry]:
        """What the memory has to know of a batch: what was stored; and a copy that its sender signed later is
        known for as long as that copy could come again."""
        for (message, _size), result in zip(batch, results, strict=True):
            if result.record is not None:
                yield _entry(result.record, self.mailbox.session, self.settings)
            elif result.outcome in (staging.REPEATED, gate.REPLAY):
                digest = digest_of(message.sender, message.msg_id, content_fingerprint(message))
                forget = gate.forget_at_ms(message.ts, message.ts, self.settings)
                yield Entry(forget, digest, memory.session_of(digest) or self.mailbox.session)

    def _recover(self, session: str) -> list[Entry]:
        """What the mailbox of a session remembers. StateError where it cannot be read."""
        mailbox = self.mailbox
        if session != mailbox.session:
            mailbox = self._unread.get(session) or Mailbox(self._layout, mailbox.identity, session, self.settings)
            self._unread[session] = mailbox  # kept while it fails: it parses a corrupt file once
        box = mailbox.read()
        self._unread.pop(session, None)
        entries = [_entry(r, session, self.settings) for r in list(box.records.values()) if r.message.sig]
        entries += [
            _buried(t, session, self.settings) for t in list(box.tombstones.values()) if not is_local(t.sender)
        ]
        return entries

    def _count(self, batch: Sequence[Incoming], results: Sequence[Admitted]) -> None:
        for incoming, result in zip(batch, results, strict=True):
            self.counts[result.outcome] += 1
            if result.outcome in gate.REFUSALS:
                msg = incoming.message
                log.event("refused", reason=result.outcome, sender=msg.sender[:8], msg_id=msg.msg_id)
                expired = result.outcome == gate.EXPIRED
                self.refusals.add(result.outcome, expired_from=msg.sender if expired else "")

    def _note_full(self, results: Sequence[Admitted]) -> None:
        """The last that needed room says whether there is some; repeats and refusals say nothing."""
        needed = [r.outcome == staging.KEPT for r in results if r.outcome in (staging.KEPT, staging.STORED)]
        if needed and needed[-1] != self.full:
            self.full = needed[-1]
            log.event("mailbox_full" if self.full else "mailbox_has_room", session=self.mailbox.session)


def _not_asked(_message: Message) -> str:
    """The memory of a first look: its question is asked under the lock."""
    return ""


def _asking(memory: ReplayMemory) -> Callable[[Message, str], str]:
    def session_of(msg: Message, fp: str) -> str:
        return memory.session_of(digest_of(msg.sender, msg.msg_id, fp))

    return session_of


def _entry(record: Record, session: str, settings: Settings) -> Entry:
    msg = record.message
    fp = record.fp or content_fingerprint(msg)
    forget = gate.forget_at_ms(msg.ts, record.arrived_ms, settings)
    return Entry(forget, digest_of(msg.sender, msg.msg_id, fp), session)


def _buried(tomb: Tombstone, session: str, settings: Settings) -> Entry:
    forget = gate.forget_at_ms(tomb.ts, tomb.arrived_ms, settings)
    return Entry(forget, digest_of(tomb.sender, tomb.own_id, tomb.fp), session)
