"""Mail of a session that no host uses any more goes into another session (M30).

What moves: records and tombstones, each with its receipt, delivery id, state and times; the resume memory; what
no relay has taken of the outbox (a server of NEW sends it when it starts the next time). What stays: the log of
what was sent, the counters, and mail that still waits at a relay for the old session: a server started with
`--session OLD` gets it.

    adopt lock -> notifier lock of OLD -> replay memory complete -> lock OLD -> lock NEW
       -> commit NEW -> commit OLD

So a message may be in both for a moment, and is never in none; after a crash the same command completes it: what
NEW has already is known by sender, id and content. No server of OLD can start to send notices meanwhile, and two
adoptions never wait for each other's mailboxes. The replay memory names OLD for what moved: a copy that comes for
OLD, NEW or any other session is a repeat or a replay all the same.
"""

import os
from typing import NamedTuple

import msgspec

from interlink import inbox
from interlink.errors import StateError, UsageError
from interlink.mailbox import staging, states
from interlink.mailbox.box import Box, Key, tombstone_of
from interlink.mailbox.record import Record, Resume, Tombstone
from interlink.mailbox.store import Mailbox
from interlink.outlog import Change, Journal
from interlink.session import known
from interlink.session.admission import Admission
from interlink.settings import Settings
from interlink.state import files
from interlink.state.locks import Lock, holder_pids
from interlink.state.paths import Layout, check_session
from interlink.trust.wire import Message


class Adopted(NamedTuple):
    """What moved: unread messages, consumed ones, unsent ones. `already` were in NEW. `left` had no room there.

    `renamed`: receipts that changed, since NEW has another message under that receipt.
    """

    unread: int
    consumed: int
    unsent: int
    already: int
    left: int
    renamed: int


class _Moved(NamedTuple):
    unread: int
    consumed: int
    already: int
    renamed: int
    keys: list[Key]  # taken out of OLD
    left: int


def adopt(layout: Layout, identity: str, old: str, new: str, settings: Settings, now_ms: int) -> Adopted:
    """Move everything of session `old` into `new`. Returns once it is on disk; may be repeated.

    Raises UsageError (the same session, nothing there), StateError (a server uses OLD, the disk).
    """
    if old == new:
        raise UsageError(f"{old} cannot be adopted into itself: name the session that takes its mail with --into")
    parts = (layout.mailbox(identity, old), layout.outbox(identity, old))
    if not any(map(files.signature, parts)):
        raise UsageError(f"session {old} has no mailbox of this identity: see `interlink status`")
    check_session(new)
    files.ensure_root(layout.root)
    files.ensure_dir(layout.mailbox_dir(identity), layout.root)
    alone = Lock(os.path.join(layout.mailbox_dir(identity), ".adopt-lock"))
    notifier = Lock(layout.notifier_lock(identity, old))
    with alone:
        if not notifier.try_acquire():
            raise StateError(_in_use(layout, identity, old))
        try:
            if any((one.identity, one.session) == (identity, old) for one in known.running(layout)):
                raise StateError(_in_use(layout, identity, old))
            moved = _move(layout, identity, old, new, settings, now_ms)
            unsent = _move_unsent(layout, identity, old, new, settings, now_ms)
        finally:
            notifier.release()
    return Adopted(moved.unread, moved.consumed, unsent, moved.already, moved.left, moved.renamed)


def _in_use(layout: Layout, identity: str, session: str) -> str:
    servers = [r.process.pid for r in known.running(layout) if (r.identity, r.session) == (identity, session)]
    pids = servers or holder_pids(layout.notifier_lock(identity, session))
    by = f" (process {', '.join(map(str, pids))})" if pids else ""
    return f"session {session} is in use by a running server{by}: its own agent reads that mail; nothing was moved"


def _move(layout: Layout, identity: str, old: str, new: str, settings: Settings, now_ms: int) -> _Moved:
    source = Mailbox(layout, identity, old, settings)
    target = Mailbox(layout, identity, new, settings)
    # A crash may have left the memory without the last messages of OLD: it recovers them from OLD's file alone.
    Admission(layout, source, settings).open(now_ms)
    with source.change() as a:
        with target.change() as b:
            merged = _merge_resumes(a, b, now_ms)
            moved = transfer(a, b, settings)
            changed = b.dirty = merged or bool(moved.keys)
        for key in moved.keys:
            entry = a.at(*key)
            if isinstance(entry, Record):
                a.drop(entry)
            elif entry is not None:
                a.forget(entry)
        if not moved.left:
            a.head.resumes, a.head.notice = [], None
        a.dirty = changed
    if files.signature(layout.inbox(old)) is not None:
        inbox.set_consumed(layout, old, source.watermark())  # notices of what moved wake nobody there
    return moved


def transfer(a: Box, b: Box, settings: Settings) -> _Moved:
    """Put copies of what `a` has into `b`, in order of admission, until an unread one finds no room."""
    unread = consumed = already = renamed = 0
    keys: list[Key] = []
    entries: list[Record | Tombstone] = [*a.records.values(), *a.tombstones.values()]
    entries.sort(key=lambda e: e.seq)
    for number, entry in enumerate(entries):
        probe = entry.message if isinstance(entry, Record) else _probe(entry)
        seen = staging.look_up(b, probe, entry.fp)
        if seen.found is not None:
            _settle_twin(b, entry, seen.found)
            already += 1
        else:
            receipt_id = _free_receipt(b, entry, seen.alias)
            placed = _place(b, entry, receipt_id, settings)
            if placed is None:
                left = sum(1 for e in entries[number:] if isinstance(e, Record) and e.unread)
                return _Moved(unread, consumed, already, renamed, keys, left)
            renamed += receipt_id != entry.key[1]
            unread += placed
            consumed += not placed
        keys.append(entry.key)
    return _Moved(unread, consumed, already, renamed, keys, 0)


def _probe(tomb: Tombstone) -> Message:
    return Message(sender=tomb.sender, to="", text="", ts=tomb.ts, msg_id=tomb.own_id)


def _free_receipt(b: Box, entry: Record | Tombstone, alias: str | None) -> str:
    """The receipt that it had, unless another message has it there (M20)."""
    return entry.key[1] if b.at(*entry.key) is None else alias or entry.own_id


def _place(b: Box, entry: Record | Tombstone, receipt_id: str, settings: Settings) -> bool | None:
    """Put one into the box: True an unread one, False a consumed one, None where an unread one has no room."""
    other_id = receipt_id if receipt_id != entry.own_id else None
    if isinstance(entry, Tombstone):
        source_id = entry.own_id if other_id else None
        b.put_tombstone(msgspec.structs.replace(entry, msg_id=receipt_id, source_id=source_id, seq=b.next_seq()))
        return False
    record = msgspec.structs.replace(entry, alias=other_id)
    fits = staging.make_room(b, staging.encoded_size(record), settings)
    if not fits and record.unread:
        return None
    record.seq = b.next_seq()
    if fits:
        b.put(record)
    else:
        b.put_tombstone(tombstone_of(record))
    return record.unread


def _settle_twin(b: Box, entry: Record | Tombstone, twin: Record | Tombstone) -> None:
    """The same delivery, left in both by a crash: what was acknowledged in either is acknowledged."""
    same = isinstance(twin, Record) and twin.delivery_id == entry.delivery_id
    if same and entry.state == states.RECEIVER_ACKNOWLEDGED and twin.state != entry.state:
        assert isinstance(twin, Record)
        twin.state = states.advance(twin.state, states.RECEIVER_ACKNOWLEDGED)
        twin.done_ms = twin.done_ms or entry.done_ms
        b.put(twin)


def _merge_resumes(a: Box, b: Box, now_ms: int) -> bool:
    """Late siblings are retired in NEW as they would have been in OLD (M26). True when NEW changed."""
    there = {(r.sender, r.resume_id): r for r in b.head.resumes}
    new: list[Resume] = []
    for one in a.head.resumes:
        same = there.get((one.sender, one.resume_id))
        if one.until_ms >= now_ms and (same is None or same.until_ms < one.until_ms):
            new.append(one)
    gone = {(r.sender, r.resume_id) for r in new}
    b.head.resumes = [r for r in b.head.resumes if (r.sender, r.resume_id) not in gone] + new
    return bool(new)


def _move_unsent(layout: Layout, identity: str, old: str, new: str, settings: Settings, now_ms: int) -> int:
    """Give NEW what no relay has taken of OLD's outbox: into NEW first, then out of OLD (T5)."""
    source = Journal(layout, identity, old, settings)
    source.load()
    waiting = [out for out in source.entries.values() if out.state == states.PENDING]
    if not waiting:
        return 0
    target = Journal(layout, identity, new, settings)
    target.load()
    fresh = [out for out in waiting if out.msg_id not in target.entries]
    if fresh:
        target.append(*(Change(op="queue", out=out) for out in fresh))
    reason = f"moved to session {new}"
    source.append(
        *(Change(op="state", msg_id=o.msg_id, state=states.EXPIRED, at=now_ms, reason=reason) for o in waiting)
    )
    return len(waiting)
