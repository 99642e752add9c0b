"""A mailbox in two forms for elsewhere: JSON lines with all that it holds, and the file of the Rust system.

A line is an object with `kind`:
  record     receipt {sender, msg_id, delivery_id}, source_id (where the receipt has an alias), peer, state,
             superseded_by, seq, arrived_ms, done_ms, fingerprint, size (of a body that was set aside),
             local {seq, class, supersedes, resume_id, expires_ms}, message (as on the wire, with its signature)
  tombstone  the same without size, local and message; besides ts, update, group
Every line also has identity and session.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from interlink.mailbox import states
from interlink.mailbox.box import Box, is_local
from interlink.mailbox.record import Local, Record, Tombstone

Line = dict[str, Any]


def lines(box: Box) -> Iterator[Line]:
    """Everything in the mailbox, by admission."""
    entries: list[Record | Tombstone] = [*box.records.values(), *box.tombstones.values()]
    for entry in sorted(entries, key=lambda e: e.seq):
        yield _record(box, entry) if isinstance(entry, Record) else _tombstone(box, entry)


def _common(box: Box, entry: Record | Tombstone, kind: str) -> Line:
    sender, msg_id = entry.key
    return {
        "kind": kind,
        "identity": box.head.identity,
        "session": box.head.session,
        "receipt": {"sender": sender, "msg_id": msg_id, "delivery_id": entry.delivery_id},
        "source_id": entry.own_id if entry.own_id != msg_id else None,
        "peer": entry.peer,
        "state": entry.state,
        "superseded_by": entry.superseded_by,
        "seq": entry.seq,
        "arrived_ms": entry.arrived_ms,
        "done_ms": entry.done_ms,
        "fingerprint": entry.fp,
    }


def _record(box: Box, record: Record) -> Line:
    out = _common(box, record, "record")
    out["size"] = record.size
    out["local"] = None if record.local is None else _local(record.local)
    out["message"] = msgspec.to_builtins(record.message)
    return out


def _local(local: Local) -> Line:
    fields = msgspec.structs.asdict(local)
    return {"class": fields.pop("klass"), **fields}


def _tombstone(box: Box, tomb: Tombstone) -> Line:
    return _common(box, tomb, "tombstone") | {"ts": tomb.ts, "update": tomb.update, "group": tomb.group}


def rust_form(box: Box) -> tuple[bytes, dict[str, int]]:
    """(the file of the Rust system, what it leaves out and how often). wire.md has the form.

    Its notice is left out as well: that system makes a new one while something is unread.
    """
    records: list[Line] = []
    dropped = dict.fromkeys(
        ("messages of local sources", "tombstones", "receipts under an alias", "resume ids", "notices"), 0
    )
    for record in sorted(box.records.values(), key=lambda r: r.seq):
        if is_local(record.message.sender):
            dropped["messages of local sources"] += 1
            continue
        dropped["receipts under an alias"] += record.alias is not None
        records.append(
            {
                "message": record.message,
                "peer": record.peer,
                "state": record.state if record.state != states.UNDELIVERABLE else states.RECEIVER_ACKNOWLEDGED,
                "superseded_by": record.superseded_by,
            }
        )
    dropped["tombstones"] = len(box.tombstones)
    dropped["resume ids"] = len(box.head.resumes)
    dropped["notices"] = int(box.head.notice is not None)
    data = msgspec.json.encode({"records": records, "notice": None})
    return data + b"\n", {what: number for what, number in dropped.items() if number}
