"""The messaging tools: arguments in, text out. The rules are in `session` and `mailbox` (M4 to M6, M12, S1)."""

from typing import Any

from anyio import to_thread

from interlink.errors import UsageError
from interlink.mailbox import states
from interlink.mailbox.record import Record, Tombstone
from interlink.mailbox.staging import Receipt
from interlink.outlog import Outgoing
from interlink.session import presence
from interlink.session.session import Session
from interlink.tools import arguments as args
from interlink.tools import render
from interlink.tools.surface import Answer


def _limit(session: Session, given: int | None) -> int:
    highest = session.settings.fetch_max
    limit = session.settings.fetch_default if given is None else given
    if not 1 <= limit <= highest:
        raise UsageError(f"limit {limit} is out of range: use 1 to {highest}")
    return limit


async def cancel_task(session: Session, a: args.CancelTask) -> Answer:
    message = args.SendMessage(
        to=a.to, text=a.reason or "Canceled.", session=a.session, task_id=a.task_id, status="canceled"
    )
    return await send_message(session, message)


async def send_message(session: Session, a: args.SendMessage) -> Answer:
    if a.status is not None and a.task_id is None:
        raise UsageError("a message with a status belongs to a task: give its task_id. Nothing was sent.")
    target = await session.target(a.to, a.session, a.in_reply_to)
    out, state = await session.send(target, a.text, status=a.status, task_id=a.task_id, in_reply_to=a.in_reply_to)
    to = f"{target.petname} (session {target.session})"
    note = f" {target.note}." if target.note else ""
    if state == states.BUS_ACCEPTED:
        said = (
            f"Sent to {to}: state bus_accepted, msg_id {out.msg_id}. "
            "A relay has it; whether it was read is unknown."
        )
    elif state == states.PENDING:
        why = f" ({out.reason})" if out.reason else ""
        said = (
            f"Kept for {to}: state pending, msg_id {out.msg_id}. No relay has taken it yet{why}; it is on disk "
            "and is tried again by itself. Do not send it again."
        )
    else:
        said = f"Not sent to {to}: state {state}, msg_id {out.msg_id}: {out.reason or states.MEANING[state]}."
    return Answer(said + note, is_error=state == states.EXPIRED)


async def receive_messages(session: Session, a: args.ReceiveMessages) -> Answer:
    limit = _limit(session, a.limit)
    after = (a.after.sender, a.after.msg_id) if a.after else None
    return Answer(await _page(session, limit, after))


async def _page(session: Session, limit: int, after: tuple[str, str] | None) -> str:
    view = session.view()
    page = await to_thread.run_sync(session.mailbox.fetch, view, limit, after)
    warnings = await session.warnings()
    if not page.records:
        behind = f" behind that receipt; {page.unread} before it" if after and page.unread else ""
        return "\n".join((render.NOTHING_UNREAD if not behind else f"No unread messages{behind}.", *warnings))
    shown = render.render_page(page.records, view, page.more, session.settings.answer_max_bytes)
    return "\n\n".join((shown.text, *warnings))


async def read_message(session: Session, a: args.ReadMessage) -> Answer:
    view = session.view()
    found = await to_thread.run_sync(session.mailbox.find, a.msg_id, a.sender)
    for entry in found:
        if isinstance(entry, Record) and entry.receipt_id == a.msg_id and view.sees(entry):
            limit = session.settings.answer_max_bytes
            return Answer(render.read_part(entry, view, a.offset, a.length, limit))
    if any(isinstance(entry, Tombstone) for entry in found):
        raise UsageError("that message was consumed and its body is no longer kept")
    raise UsageError("no message of that sender and msg_id is here: use a receipt from receive_messages")


async def acknowledge_messages(session: Session, a: args.AcknowledgeMessages) -> Answer:
    receipts = [Receipt(r.sender, r.msg_id, r.delivery_id) for r in a.messages]
    most = max(session.settings.mailbox_max_records, 1)
    if len(receipts) > most:
        raise UsageError(f"{len(receipts)} receipts in one call: use at most {most}")
    result = await session.acknowledge(receipts)
    text = (
        f"{result.newly} newly acknowledged; {result.already} already acknowledged and {result.unknown} unknown "
        "receipts are unchanged."
    )
    counts = {"newly": result.newly, "already": result.already, "unknown": result.unknown}
    if a.fetch_next:
        return Answer(f"{text}\n\n{await _page(session, session.settings.fetch_default, None)}")
    return Answer(text, counts)


async def conversation_history(session: Session, a: args.ConversationHistory) -> Answer:
    limit = _limit(session, a.limit)
    petname, key = presence.whose(a.peer, session.peers.current(), session.identity.public)
    view = session.view()
    inbound = [(_ts(e), e.key[1], e) for e in await to_thread.run_sync(session.mailbox.history, key)]
    outbound = [(o.ts, o.msg_id, o) for o in session.journal.entries.values() if o.to == key]
    entries: list[tuple[int, str, Record | Tombstone | Outgoing]] = [*inbound, *outbound]
    entries.sort(key=lambda e: (e[0], e[1]))
    shown: list[str] = []
    returned: list[Record] = []
    room = session.settings.answer_max_bytes - render.FOOTER_ROOM
    for _ts_ms, _id, entry in reversed(entries[-limit:]):
        body = max(render.BODY_CUT_MIN, room // 3)
        text = (
            render.history_out(entry, body)
            if isinstance(entry, Outgoing)
            else render.history_in(entry, view, body)
        )
        room -= len(text.encode("utf-8")) + 2
        if room < 0 and shown:
            break
        shown.append(text)
        if isinstance(entry, Record):
            returned.append(entry)
    left = len(entries) - len(shown)
    lines = [f"{len(shown)} of {len(entries)} messages with {petname}, oldest first."] if shown else []
    if a.consume:
        # Durable before the answer leaves (M12); a lost answer is recovered by reading history again.
        result = await session.acknowledge([Receipt(*r.key, r.delivery_id or None) for r in returned])
        lines.append(f"{result.newly} newly acknowledged by this call.")
    if not shown:
        return Answer(f"No messages with {petname} are kept here.")
    if left:
        lines.append(f"{left} older ones are not shown: give a larger limit, up to {session.settings.fetch_max}.")
    return Answer("\n\n".join((" ".join(lines), *reversed(shown))))


def _ts(entry: Record | Tombstone) -> int:
    return entry.message.ts if isinstance(entry, Record) else entry.ts


async def message_status(session: Session, a: args.MessageStatus) -> Answer:
    found = await to_thread.run_sync(session.mailbox.find, a.msg_id)
    if found:
        entry = found[0]
        peer = session.view_name(entry)
        superseded = f" Superseded by {entry.superseded_by}." if entry.superseded_by else ""
        text = f"{a.msg_id} from {peer}: {entry.state} ({states.MEANING[entry.state]}).{superseded}"
        more = f" {len(found) - 1} more messages have this id." if len(found) > 1 else ""
        return Answer(
            text + more,
            _status(a.msg_id, "inbound", entry.state, peer, superseded_by=entry.superseded_by),
        )
    out = session.outbound(a.msg_id)
    if out is not None:
        reason = f" Last problem: {out.reason}." if out.reason and out.state != states.BUS_ACCEPTED else ""
        text = (
            f"{a.msg_id} to {out.peer}: {out.state} ({states.MEANING[out.state]}). "
            f"Receiver acknowledgement: unknown.{reason}"
        )
        return Answer(text, _status(a.msg_id, "outbound", out.state, out.peer, reason=out.reason))
    raise UsageError(f"no message {a.msg_id[:80]!r} is known here: neither received, nor among the last sent")


def _status(msg_id: str, direction: str, state: str, peer: str, **more: str | None) -> dict[str, Any]:
    base = {"msg_id": msg_id, "direction": direction, "state": state, "peer": peer}
    base["proves"] = states.MEANING[state]
    return {**base, **{k: v for k, v in more.items() if v is not None}}


async def list_pending(session: Session, _a: args.Nothing) -> Answer:
    waiting = session.pending()
    rows = [
        {"msg_id": o.msg_id, "to": o.peer, "session": o.route.partition("#")[2], "reason": o.reason or ""}
        for o in waiting
    ]
    relays = [
        f"relay {s.url}: {'up' if s.up else 'not answered yet' if s.up is None else 'down, ' + s.error}"
        for s in session.relays.status()
    ]
    if not rows:
        return Answer("\n".join(("Nothing is pending: a relay took every message.", *relays)), {"pending": []})
    lines = [f"{len(rows)} pending, tried again by themselves:"]
    lines += [
        f"- {r['msg_id']} to {r['to']} (session {r['session']}): {r['reason'] or 'waiting'}" for r in rows[:100]
    ]
    if len(rows) > 100:
        lines.append(f"- and {len(rows) - 100} more")
    return Answer("\n".join((*lines, *relays)), {"pending": rows[:100], "total": len(rows)})
