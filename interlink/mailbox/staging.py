"""Admission into a mailbox in memory: repeats, collisions, room, supersession (M14 to M16, M20 to M27).

Works on a `Box`; the caller holds the locks, commits the file and remembers what is returned.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from interlink.mailbox import states
from interlink.mailbox.box import Box, is_local
from interlink.mailbox.notice import bring_forward
from interlink.mailbox.record import Local, Record, Resume, Tombstone, content_fingerprint
from interlink.mailbox.rules import collision_alias, supersede
from interlink.settings import Settings
from interlink.trust import gate
from interlink.trust.wire import Message

# Outcomes of one arrival. All but KEPT are acknowledged to the relay (G6).
STORED = "stored"
REPEATED = gate.REPEAT
UNDELIVERABLE = "undeliverable"
KEPT = "kept"  # no room: stays on the relay


class Staged(NamedTuple):
    """`outcome`: STORED, REPEATED, UNDELIVERABLE or KEPT; `record` for the first and third."""

    outcome: str
    record: Record | None = None
    collided: bool = False


class Known(NamedTuple):
    """What the box itself says of a message: its record or tombstone, or the alias it has to take."""

    found: Record | Tombstone | None
    alias: str | None


def source_of(local: Local | None) -> str:
    """What of the source belongs to the fingerprint: a sequence number tells two equal messages apart (M27)."""
    return "" if local is None or local.seq is None else f"seq:{local.seq}"


def look_up(box: Box, msg: Message, fp: str) -> Known:
    """Whether the box has this message, under its own id or an alias. A live record is authoritative (M20).

    The alias is looked at even where the id itself is free: what once stood there may be forgotten. One that
    another message has as its own id is taken: then the alias of the alias.
    """
    place: str | None = None
    receipt_id = msg.msg_id
    while True:
        there = box.at(msg.sender, receipt_id)
        if there is not None and there.fp == fp and there.own_id == msg.msg_id:
            return Known(there, None)
        if there is None:
            place = place or receipt_id
            if receipt_id != msg.msg_id:
                return Known(None, place if place != msg.msg_id else None)
        receipt_id = collision_alias(receipt_id, fp)


def memory_of(box: Box, session: str, session_of: Callable[[Message, str], str]) -> gate.Memory:
    """The gate's question to the memory: the box first, then the identity's replay memory (G5)."""

    def ask(msg: Message) -> str:
        fp = content_fingerprint(msg)
        if look_up(box, msg, fp).found is not None:
            return gate.REPEAT
        where = session_of(msg, fp)
        if not where:
            return ""
        return gate.REPEAT if where == session else gate.REPLAY

    return ask


def stage(
    box: Box,
    msg: Message,
    petname: str,
    size: int,
    now_ms: int,
    settings: Settings,
    delivery_id: str,
    local: Local | None = None,
) -> Staged:
    """Put one admitted message into the box. `size` = bytes as it arrived. Never evicts an unread one."""
    fp = content_fingerprint(msg, source_of(local))
    known = look_up(box, msg, fp)
    if known.found is not None:
        return Staged(REPEATED)
    record = Record(
        message=msg,
        peer=petname,
        state=states.RECEIVER_STORED,
        delivery_id=delivery_id,
        arrived_ms=now_ms,
        fp=fp,
        alias=known.alias,
        local=local,
    )
    need = encoded_size(record)
    if size > settings.message_max_bytes or need > settings.mailbox_max_bytes:
        return _set_aside(box, record, size, now_ms, settings)  # no emptying would ever make room for it
    if not make_room(box, need, settings):
        return Staged(KEPT)
    record.seq = box.next_seq()
    for changed in supersede(record, *_rivals(box, record)):
        changed.done_ms = now_ms
        box.put(changed)
    if record.superseded_by is not None:
        record.done_ms = now_ms
    if _resumed(box, record, now_ms):
        record.state = states.advance(record.state, states.RECEIVER_ACKNOWLEDGED)
        record.done_ms = now_ms
    if known.alias is not None:
        box.count("collisions")
    box.put(record)
    return Staged(STORED, record, known.alias is not None)


def _rivals(box: Box, record: Record) -> tuple[Iterable[Record], Iterable[Tombstone]]:
    """What supersession has to look at."""
    return (box.records.values(), ()) if record.ephemeral else box.of_task(record.group)


def _set_aside(box: Box, record: Record, size: int, now_ms: int, settings: Settings) -> Staged:
    """An oversized one: known by its ids from now on, its body is not kept (M22)."""
    record.message = msgspec.structs.replace(record.message, text="")
    record.state = states.UNDELIVERABLE
    record.size = size
    record.done_ms = now_ms
    record.seq = box.next_seq()
    box.put(record)
    _bury(box, record, settings)
    box.count("undeliverable")
    return Staged(UNDELIVERABLE, record)


def note_repeat(box: Box, msg: Message, now_ms: int, settings: Settings, local: Local | None = None) -> bool:
    """A repeat of a stored message. True when the box changed.

    Made anew by its sender (later time, another signature) while still unread: its next notice comes
    sooner, once (M24). From a local source without a sequence number: counted (M27).
    """
    found = look_up(box, msg, content_fingerprint(msg, source_of(local))).found
    if local is not None and local.seq is None:
        box.count("suppressed")
        return True
    if not isinstance(found, Record) or not found.attention or found.resent_ms is not None:
        return False
    if msg.ts <= found.message.ts or msg.sig == found.message.sig or box.head.notice is None:
        return False
    sooner = bring_forward(box.head.notice, now_ms, settings.renotify_min_s)
    if sooner is None:
        return False
    box.head.notice = sooner
    found.resent_ms = msg.ts
    box.put(found)
    return True


def make_room(box: Box, need: int, settings: Settings) -> bool:
    """Bury consumed records, the one consumed first at first, until `need` bytes fit. False, and nothing
    is buried, where that would not do (M16)."""
    left = len(box.records) - box.consumed_count
    if left >= settings.mailbox_max_records or box.bytes - box.done_bytes + need > settings.mailbox_max_bytes:
        return False
    while len(box.records) >= settings.mailbox_max_records or box.bytes + need > settings.mailbox_max_bytes:
        oldest = box.first_consumed()
        if oldest is None:
            return False
        _bury(box, oldest, settings)
    return True


def _bury(box: Box, record: Record, settings: Settings) -> None:
    """Reduce a record to its tombstone; beyond their cap the oldest tombstones go (M16)."""
    box.bury(record)
    while len(box.tombstones) > settings.tombstone_max:
        box.forget(next(iter(box.tombstones.values())))


def encoded_size(record: Record) -> int:
    """Bytes that a record will take in the file, for `make_room`."""
    # The sequence number and state are not set yet; their growth is below this margin.
    return len(msgspec.json.encode(record)) + 64


def prune(box: Box, now_ms: int, settings: Settings) -> None:
    """Consumed records and tombstones past the replay window go; ephemeral ones past their life too (M16, M23).

    Looks through the box at most every `prune_every_s`: what is due stays invisible meanwhile. Reaches the
    disk with the next change; until then the file may hold what is past its time, which changes nothing.
    """
    if 0 <= now_ms - box.pruned_ms < settings.prune_every_s * 1000:
        return
    box.pruned_ms = now_ms
    for record in list(box.records.values()):
        expires = record.local.expires_ms if record.local is not None else None
        if record.unread and expires is not None and expires <= now_ms:
            record.superseded_by = "expired"
            record.done_ms = now_ms
            _bury(box, record, settings)
        elif not record.unread:
            ts, done = record.message.ts, record.done_ms
            if _forget_at_ms(record.message.sender, ts, record.arrived_ms, done, settings) < now_ms:
                box.drop(record)
    for tomb in list(box.tombstones.values()):
        if _forget_at_ms(tomb.sender, tomb.ts, tomb.arrived_ms, tomb.done_ms, settings) < now_ms:
            box.forget(tomb)
    if any(r.until_ms < now_ms for r in box.head.resumes):
        box.head.resumes = [r for r in box.head.resumes if r.until_ms >= now_ms]


def _forget_at_ms(sender: str, ts: int, arrived_ms: int, done_ms: int | None, settings: Settings) -> int:
    """When a consumed one may go. No signature bounds how late a local source repeats itself: what it sent is
    known for a time of its own, from when it was consumed (L2)."""
    if is_local(sender):
        return max(arrived_ms, done_ms or 0) + int(settings.local_memory_s * 1000)
    return gate.forget_at_ms(ts, arrived_ms, settings)


def _resumed(box: Box, record: Record, now_ms: int) -> bool:
    """True for a sibling of a resume group that was acknowledged before (M26)."""
    if record.local is None or record.local.resume_id is None:
        return False
    return any(
        r.sender == record.message.sender and r.resume_id == record.local.resume_id and r.until_ms >= now_ms
        for r in box.head.resumes
    )


class Receipt(NamedTuple):
    """What an acknowledgement names: one message, or one delivery of it (M5, M19)."""

    sender: str
    msg_id: str
    delivery_id: str | None = None


class Acknowledged(NamedTuple):
    """Counts of receipts, and the resume ids that were retired by them."""

    newly: int
    already: int
    unknown: int
    resumed: tuple[str, ...] = ()


def acknowledge(box: Box, receipts: list[Receipt], now_ms: int, settings: Settings) -> Acknowledged:
    """Consume exactly these receipts (M5). Idempotent; an unknown one changes nothing."""
    newly = already = unknown = 0
    resumed: list[str] = []
    for receipt in receipts:
        found = box.at(receipt.sender, receipt.msg_id)
        if found is None or (receipt.delivery_id is not None and receipt.delivery_id != found.delivery_id):
            unknown += 1
        elif isinstance(found, Record) and states.allowed(found.state, states.RECEIVER_ACKNOWLEDGED):
            _consume(box, found, now_ms)
            newly += 1
            resume_id = found.local.resume_id if found.local else None
            if resume_id is not None:
                _retire_siblings(box, found.message.sender, resume_id, now_ms, settings)
                resumed.append(resume_id)
        else:
            already += 1
    if box.head.notice is not None and newly and not _covers_any(box):
        box.head.notice = None  # M8: released with the last message that it covered
    return Acknowledged(newly, already, unknown, tuple(resumed))


def _consume(box: Box, record: Record, now_ms: int) -> None:
    record.state = states.advance(record.state, states.RECEIVER_ACKNOWLEDGED)
    record.done_ms = record.done_ms or now_ms
    box.put(record)


def _covers_any(box: Box) -> bool:
    notice = box.head.notice
    return notice is not None and any(r.attention and r.seq <= notice.through for r in box.records.values())


def _retire_siblings(box: Box, sender: str, resume_id: str, now_ms: int, settings: Settings) -> None:
    for record in list(box.records.values()):
        sibling = record.local is not None and record.local.resume_id == resume_id
        if sibling and record.message.sender == sender and record.state != states.RECEIVER_ACKNOWLEDGED:
            _consume(box, record, now_ms)
    until = now_ms + int(settings.resume_memory_s * 1000)
    box.head.resumes = [r for r in box.head.resumes if (r.sender, r.resume_id) != (sender, resume_id)]
    box.head.resumes.append(Resume(sender=sender, resume_id=resume_id, until_ms=until))
