"""Invariants of delivery: stored once, fetchable until acknowledged, never again, in order, nobody unknown."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from interlink_lab.checker.model import Facts, Stored, Violation
from interlink_lab.history import Event

ORDER_BREAKERS = ("reorder", "delay", "duplicate", "lose-ack")
FORGED = "m:forged"  # tokens of messages that the lab forged
REFUSED_STATES = ("expired",)


def accepted_is_stored_once(facts: Facts) -> Iterator[Violation]:
    """accepted-stored-once: what `send_message` took is stored by its receiver exactly once (M1, G5, T5)."""
    by_key: dict[tuple[str, str], list[Stored]] = defaultdict(list)
    for entry in facts.stored:
        by_key[entry.sender, entry.msg_id].append(entry)
    if facts.first("ending") is None:
        return  # the run was cut off: nothing can be said about what is under way
    for sent in _accepted(facts):
        sender = facts.keys.get(sent["party"].partition(".")[0], "")
        copies = [c for c in by_key[sender, sent["msg_id"]] if c.token in ("", sent["token"])]
        distinct = {(c.identity, c.session, c.delivery_id) for c in copies if not c.alias}
        if not copies and sent["state"] not in REFUSED_STATES and not _excused(facts, sent):
            yield Violation(
                "accepted-stored-once", f"{sent['token']} was accepted ({sent['state']}) and never stored", [sent]
            )
        moved = {c.delivery_id for c in copies}
        if len(distinct) > 1 and len(moved) > 1:
            yield Violation(
                "accepted-stored-once",
                f"{sent['token']} was stored {len(distinct)} times",
                [sent, *(c.first for c in copies)],
            )


def _accepted(facts: Facts) -> Iterator[Event]:
    """What a server or, for messages that the lab made, a relay took."""
    yield from facts.by_kind["send.ok"]
    for event in facts.by_kind["raw.send"]:
        if event["status"] == 202 and not event["forged"]:
            yield {**event, "state": "bus_accepted"}


def forged_is_never_stored(facts: Facts) -> Iterator[Violation]:
    """forged-never-stored: no record has the text of a message whose signature does not hold (G1, G2)."""
    forged = {e["token"]: e for e in facts.by_kind["raw.send"] if e["forged"]}
    for entry in facts.stored:
        if entry.token in forged:
            yield Violation("forged-never-stored", f"{entry.token} was stored", [forged[entry.token], entry.first])


def _excused(facts: Facts, sent: Event) -> bool:
    """Messages that a scenario said beforehand will not arrive (`expect` events name their tokens)."""
    return any(sent["token"] in e.get("lost", ()) for e in facts.by_kind["expect"])


def unknown_is_not_doubled(facts: Facts) -> Iterator[Violation]:
    """stored-once: no message id of one sender is stored twice, whoever sent it (G5, M20)."""
    seen: dict[tuple[str, str, str], Stored] = {}
    for entry in facts.stored:
        key = (entry.identity, entry.sender, entry.receipt_id)
        other = seen.setdefault(key, entry)
        if other is not entry and other.delivery_id != entry.delivery_id and not entry.local:
            yield Violation(
                "stored-once", f"{entry.token or entry.msg_id} has two records", [other.first, entry.first]
            )


def _fetches(facts: Facts) -> Iterator[tuple[Event, Event]]:
    """(begin, answer) of each fetch that came back; an acknowledgement with fetch_next is one too."""
    for event in facts.by_kind["fetch"]:
        begin = facts.began(event)
        if begin is not None:
            yield begin, event


def stored_is_fetchable(facts: Facts) -> Iterator[Violation]:
    """stored-fetchable: a whole fetch has every record that was stored before it and is not consumed (M4, M6)."""
    for begin, answer in _fetches(facts):
        if answer["more"] or answer.get("after") or begin["kind"] == "ack.begin":
            continue
        served = facts.serves(answer["party"].partition(".")[0], answer["t"])
        shown = {(m["sender"], m["msg_id"]) for m in answer["messages"]}
        for entry in facts.by_session.get(served or answer["session"], ()):
            if entry.first["t"] >= begin["t"] or (entry.sender, entry.receipt_id) in shown:
                continue
            consumed = entry.consumed_from
            if consumed is not None and min(consumed, entry.asked_at or consumed) <= answer["t"] + SEEN_LATE_S:
                continue
            if entry.states[-1][1] in ("undeliverable", "expired") or facts.quarantined(entry, answer["t"]):
                continue
            yield Violation(
                "stored-fetchable",
                f"{entry.token or entry.msg_id} was stored at {entry.first['t']:.3f} s and is not in the fetch",
                [entry.first, begin, answer],
            )


SEEN_LATE_S = 1.0  # the watcher sees a change of a file a little later than it is made


def acknowledged_never_again(facts: Facts) -> Iterator[Violation]:
    """acked-never-again: what was acknowledged before a fetch began is not in it, after restarts too (M5, M13)."""
    acked: dict[tuple[str, str, str, str], Event] = {}
    answers = facts.of("ack", "fetch", "history")
    for event in answers:
        identity = facts.keys.get(event["party"].partition(".")[0], "")
        if event["kind"] == "ack":
            if event["unknown"]:
                continue  # which of them it was cannot be told
            for receipt in event["receipts"]:
                acked.setdefault(
                    (identity, receipt["sender"], receipt["msg_id"], receipt.get("delivery_id", "")), event
                )
            continue
        if event["kind"] == "history":
            continue  # shows consumed messages too
        began = facts.began(event)
        for message in event["messages"]:
            key = (identity, message["sender"], message["msg_id"], message.get("delivery_id", ""))
            ack = acked.get(key)
            if ack is not None and began is not None and ack["t"] < began["t"]:
                yield Violation(
                    "acked-never-again", f"{message['token'] or message['msg_id']} came back", [ack, began, event]
                )


def stranger_never_stored(facts: Facts) -> Iterator[Violation]:
    """stranger-never-stored: records are of keys that the host trusts, its own, or local sources (G1)."""
    identities = facts.first("identities")
    if identities is None:
        return
    for event in facts.of("record"):
        host = event["party"].partition(".")[0]
        allowed = facts.trusted(host, event["t"])
        if event["new"] and not event["local"] and event["sender"] not in allowed:
            yield Violation("stranger-never-stored", f"{host} stored a message of {event['sender'][:8]}", [event])
        elif event["token"].startswith(FORGED):
            yield Violation("stranger-never-stored", f"{host} stored the forged {event['token']}", [event])


def fetch_keeps_order(facts: Facts) -> Iterator[Violation]:
    """fetch-order: in each fetch one sender's messages come as they were admitted, progress apart (M4)."""
    seqs = {(s.identity, s.sender, s.receipt_id, s.delivery_id): s for s in facts.stored}
    for answer in facts.by_kind["fetch"]:
        identity = facts.keys.get(answer["party"].partition(".")[0], "")
        last: dict[tuple[str, str], Stored] = {}
        progress_seen = False
        for message in answer["messages"]:
            entry = seqs.get((identity, message["sender"], message["msg_id"], message.get("delivery_id", "")))
            if entry is None:
                continue
            if progress_seen and not entry.progress:
                yield Violation("fetch-order", f"{entry.token} is behind progress", [entry.first, answer])
            progress_seen = progress_seen or entry.progress
            key = (entry.sender, str(entry.progress) + entry.session)
            before = last.get(key)
            if before is not None and before.seq > entry.seq:
                yield Violation("fetch-order", f"{entry.token} is behind {before.token}", [entry.first, answer])
            last[key] = entry


def admission_keeps_order(facts: Facts) -> Iterator[Violation]:
    """sender-order: one sender's messages are admitted as they were sent, where nothing between reorders them.

    A message that a relay has keeps its place whoever starts again; one that was moved into another session (M30)
    has a new one.
    """
    if len(facts.relays) != 1:
        return
    copies = Counter((s.sender, s.msg_id) for s in facts.stored)
    stored = {(s.sender, s.msg_id): s for s in facts.stored if not s.alias and copies[s.sender, s.msg_id] == 1}
    for host, key in facts.keys.items():
        last: dict[str, tuple[Event, Stored]] = {}
        for sent in facts.by_kind["send.ok"]:
            if sent["party"].partition(".")[0] != host or (key, sent["msg_id"]) not in stored:
                continue
            entry = stored[key, sent["msg_id"]]
            before = last.get(entry.session)
            if (
                before is not None
                and before[1].seq > entry.seq
                and before[0]["t"] < facts.begun_at(sent)
                and not facts.faulty(
                    before[0]["t"] - 5, max(sent["t"], before[1].first["t"], entry.first["t"]) + 5
                )
                and not facts.restarted(host, facts.begun_at(before[0]), sent["t"])
                and before[0]["state"] == sent["state"] == "bus_accepted"
            ):
                yield Violation(
                    "sender-order", f"{sent['token']} was admitted before {before[0]['token']}", [before[0], sent]
                )
            last[entry.session] = (sent, entry)


def relays_are_drained(facts: Facts) -> Iterator[Violation]:
    """relay-drained: once everything is consumed, nothing waits in a relay for a session that a server polls (G6).

    The run asks at its end (`waiting`), for as long as a server may pause; where a fault is on, nothing is said.
    """
    for event in facts.by_kind["waiting"]:
        if event["count"] and not facts.faulty(facts.ended, facts.ended):
            text = f"{event['count']} messages wait in {event['relay']} for the session of {event['host']}"
            yield Violation("relay-drained", text, [event])


CHECKS = (
    accepted_is_stored_once,
    forged_is_never_stored,
    unknown_is_not_doubled,
    stored_is_fetchable,
    acknowledged_never_again,
    stranger_never_stored,
    fetch_keeps_order,
    admission_keeps_order,
    relays_are_drained,
)
