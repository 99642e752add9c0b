"""The text of tool answers, in the shape that agents and scripts know (wire.md): records, receipts, pages."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from interlink.mailbox.record import Record, Tombstone
from interlink.mailbox.store import View
from interlink.outlog import Outgoing
from interlink.text import attribute, block, clean_line, defang

FOOTER_ROOM = 1_200  # bytes kept free for what follows the records
BODY_CUT_MIN = 1_000


class Rendered(NamedTuple):
    """`shown` records are in the text; the rest did not fit."""

    text: str
    shown: list[Record]


def receipt(record: Record) -> dict[str, str]:
    """What acknowledges this record, and this delivery of it alone (M5, M19)."""
    sender, msg_id = record.key
    out = {"sender": sender, "msg_id": msg_id}
    if record.delivery_id:
        out["delivery_id"] = record.delivery_id
    return out


def receipt_line(record: Record) -> str:
    """`[STATE] Receipt: {...}`; clients split at `] Receipt: ` and parse the rest of the line."""
    state = f"superseded by {attribute(record.superseded_by)}" if record.superseded_by else record.state
    return f"[{state}] Receipt: {json.dumps(receipt(record), ensure_ascii=False, separators=(',', ':'))}"


def body_lines(peer: str, record: Record, body: str, note: str = "") -> str:
    """A record without its receipt line; `body` may be a part of it, `note` then says which."""
    msg = record.message
    return (
        block(peer, record.receipt_id, defang(body), msg.task_id or "", msg.status or "", msg.in_reply_to or "")
        + note
    )


def cut_utf8(data: bytes, offset: int, length: int) -> tuple[int, int]:
    """(start, end) of at most `length` bytes from `offset`, moved to character borders."""
    start = min(offset, len(data))
    while start < len(data) and data[start] & 0xC0 == 0x80:
        start += 1
    end = min(len(data), start + length)
    while end < len(data) and end > start and data[end] & 0xC0 == 0x80:
        end -= 1
    return start, end


def render_page(records: Sequence[Record], view: View, more: int, max_bytes: int) -> Rendered:
    """As many records as fit into `max_bytes`; one long body is cut and says how to read on (M4)."""
    parts: list[str] = []
    shown: list[Record] = []
    room = max_bytes - FOOTER_ROOM
    for record in records:
        part = f"{receipt_line(record)}\n{body_lines(view.name(record), record, record.message.text)}"
        size = len(part.encode("utf-8")) + 2
        if size > room:
            if shown:
                break
            part = _cut_record(record, view, room)
            size = room
        parts.append(part)
        shown.append(record)
        room -= size
    left = more + len(records) - len(shown)
    return Rendered("\n\n".join((*parts, _footer(shown, left))), shown)


def _cut_record(record: Record, view: View, room: int) -> str:
    data = record.message.text.encode("utf-8")
    # Defanging may add bytes; half of the room is safe, since only `<` grows (by three bytes of ten or more).
    start, end = cut_utf8(data, 0, max(BODY_CUT_MIN, (room - BODY_CUT_MIN) // 2))
    sender, msg_id = record.key
    call = json.dumps({"sender": sender, "msg_id": msg_id, "offset": end}, ensure_ascii=False)
    note = f"\n[bytes {start} to {end} of {len(data)}; read on with read_message({call})]"
    return (
        f"{receipt_line(record)}\n{body_lines(view.name(record), record, data[start:end].decode('utf-8'), note)}"
    )


def _footer(shown: Sequence[Record], left: int) -> str:
    if not shown:
        return ""
    ask = "Act on these, then acknowledge their receipts with acknowledge_messages."
    if not left:
        return f"{ask} Nothing else is unread."
    last = json.dumps(receipt(shown[-1]), ensure_ascii=False, separators=(",", ":"))
    return (
        f"{ask} {left} more unread: acknowledge these and fetch again "
        f"(acknowledge_messages with fetch_next=true does both), or page with receive_messages(after={last})."
    )


NOTHING_UNREAD = "No unread messages; no reply to anybody is needed."


def read_part(record: Record, view: View, offset: int, length: int | None, max_bytes: int) -> str:
    """One part of a long body (M4): its place in bytes, and how to read on."""
    data = record.message.text.encode("utf-8")
    most = (max_bytes - FOOTER_ROOM) // 2
    start, end = cut_utf8(data, offset, min(length or most, most))
    if end == start < len(data):  # the length is shorter than one character: give that one
        end = start + 1
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end += 1
    sender, msg_id = record.key
    call = json.dumps({"sender": sender, "msg_id": msg_id, "offset": end}, ensure_ascii=False)
    note = f"\n[bytes {start} to {end} of {len(data)}" + (
        f"; read on with read_message({call})]" if end < len(data) else "; this is the end]"
    )
    return (
        f"{receipt_line(record)}\n{body_lines(view.name(record), record, data[start:end].decode('utf-8'), note)}"
    )


def history_in(entry: Record | Tombstone, view: View, max_body: int) -> str:
    """An inbound entry of a conversation."""
    if isinstance(entry, Tombstone):
        return f"[{entry.state}] {attribute(entry.msg_id)} from {attribute(view.name(entry))}: body no longer kept"
    data = entry.message.text.encode("utf-8")
    start, end = cut_utf8(data, 0, max_body)
    note = f"\n[bytes {start} to {end} of {len(data)}; the rest with read_message]" if end < len(data) else ""
    return f"{receipt_line(entry)}\n{body_lines(view.name(entry), entry, data[:end].decode('utf-8'), note)}"


def history_out(out: Outgoing, max_body: int) -> str:
    """An outbound entry of a conversation."""
    data = out.text.encode("utf-8")
    _, end = cut_utf8(data, 0, max_body)
    extra = "".join(
        f' {key}="{attribute(value)}"'
        for key, value in (("task", out.task_id), ("status", out.status), ("in_reply_to", out.in_reply_to))
        if value is not None
    )
    note = f"\n[{end} of {len(data)} bytes]" if end < len(data) else ""
    name = attribute(clean_line(out.peer, 64))
    return (
        f"[{out.state}] sent\n[interlink message to {name}]:\n"
        f'<interlink to="{name}" msg_id="{attribute(out.msg_id)}"{extra}>\n'
        f"{defang(data[:end].decode('utf-8'))}\n</interlink>{note}"
    )
