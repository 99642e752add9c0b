"""Supersession, order and collisions: pure functions over records (M4, M14, M20, M23)."""

from collections.abc import Iterable, Sequence

from interlink.mailbox.record import Record, Tombstone
from interlink.trust.wire import Message


def fetch_order(records: Iterable[Record]) -> list[Record]:
    """Unread ones as a fetch returns them: non-progress first, then by arrival (M4)."""
    return sorted((r for r in records if r.unread), key=lambda r: (r.is_update, r.seq))


def supersede(incoming: Record, records: Iterable[Record], tombstones: Iterable[Tombstone]) -> list[Record]:
    """Mark progress that `incoming` supersedes, or `incoming` itself; returns the earlier ones marked (M14).

    A newer update supersedes older progress of its group; a terminal message all progress of its task, also
    what arrives after it. `needs_input` and messages without a task take no part. The iterables may hold
    other records: only those of the same task count.
    """
    changed: list[Record] = []
    if incoming.ephemeral:
        return _supersede_ephemeral(incoming, records)
    group = incoming.group
    if group is None:
        return changed
    if incoming.is_update:
        for tomb in tombstones:
            if tomb.group == group and (not tomb.update or tomb.ts > incoming.message.ts):
                incoming.superseded_by = tomb.msg_id
    for prior in records:
        if prior is incoming or not _same_task(prior.message, incoming.message):
            continue
        late = prior.is_terminal or (prior.is_update and prior.message.ts > incoming.message.ts)
        if incoming.is_update and late:
            incoming.superseded_by = prior.receipt_id
        if prior.is_update and prior.unread and (incoming.is_terminal or prior.message.ts <= incoming.message.ts):
            prior.superseded_by = incoming.receipt_id
            changed.append(prior)
    return changed


def _same_task(a: Message, b: Message) -> bool:
    return a.task_id == b.task_id and a.sender == b.sender and a.reply_to == b.reply_to


def _supersede_ephemeral(incoming: Record, records: Iterable[Record]) -> list[Record]:
    """A later ephemeral message retires those of its sender with the same supersedes key (M23)."""
    assert incoming.local is not None
    if incoming.local.supersedes is None:
        return []
    changed = []
    for prior in records:
        if (
            prior is not incoming
            and prior.unread
            and prior.ephemeral
            and prior.message.sender == incoming.message.sender
            and prior.local is not None
            and prior.local.supersedes == incoming.local.supersedes
        ):
            prior.superseded_by = incoming.receipt_id
            changed.append(prior)
    return changed


def collision_alias(msg_id: str, fp: str) -> str:
    """The receipt id of another message under a known id: the same for every copy of it (M20)."""
    return f"{msg_id}~{fp[:12]}"


def page_after(ordered: Sequence[Record], place: tuple[bool, int] | None) -> list[Record]:
    """The records behind a place in fetch order, (is progress, admission sequence); None = from the start."""
    if place is None:
        return list(ordered)
    return [r for r in ordered if (r.is_update, r.seq) > place]
