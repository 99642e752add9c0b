"""What became of each message: its steps from the call that sent it to its acknowledgement, matched by token,
msg_id, admission number and notice id."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from interlink_lab.checker.model import Facts, Stored
from interlink_lab.checker.notices import Notice, notices
from interlink_lab.history import Event
from interlink_lab.tokens import NOTICE_ID

STEPS = ("sent", "accepted", "stored", "notice", "wake", "fetch", "ack")
SEEN_LATE_S = 1.0  # the watcher sees a change a little later than it is made
GIVEN_UP = ("undeliverable", "expired")


@dataclass
class Journey:
    """One message. Hosts by name, a foreign sender by the start of its key."""

    token: str
    sender: str
    receiver: str
    begin: Event | None = None  # send.begin
    end: Event | None = None  # send.ok, send.fail or send.unknown
    sent: Event | None = None  # the sender's server says that a relay has it
    stored: list[Stored] = field(default_factory=list)
    notices: list[Event] = field(default_factory=list)
    wakes: list[Event] = field(default_factory=list)
    fetches: list[Event] = field(default_factory=list)
    acks: list[Event] = field(default_factory=list)

    @property
    def first(self) -> Event:
        """Its first event."""
        return next(e for e in (self.begin, self.end, *(s.first for s in self.stored)) if e is not None)

    @property
    def outcome(self) -> str:
        """What became of it, as far as this history goes."""
        if self.stored:
            last = self.stored[-1].states[-1]
            if any(s.states[-1][2] for s in self.stored):
                return "superseded"
            if self.acks or any(s.consumed_at is not None for s in self.stored):
                return "acknowledged"
            return last[1] if last[1] in GIVEN_UP else "fetched, not acknowledged" if self.fetches else "unread"
        kind = self.end["kind"] if self.end is not None else ""
        return {"send.ok": "never stored", "send.fail": "refused", "": "call not ended"}.get(kind, "unknown")

    @property
    def is_done(self) -> bool:
        return self.outcome in ("acknowledged", "superseded", "refused")

    def steps(self) -> dict[str, Event]:
        """The first event of each step that it reached."""
        answered = self.end if self.end is not None and self.end["kind"] == "send.ok" else None
        found = {
            "sent": self.begin,
            "accepted": self.sent or answered,
            "stored": self.stored[0].first if self.stored else None,
            **{
                name: rows[0] if rows else None
                for name, rows in (
                    ("notice", self.notices), ("wake", self.wakes), ("fetch", self.fetches), ("ack", self.acks)
                )
            },
        }  # fmt: skip
        return {name: found[name] for name in STEPS if found[name] is not None}  # type: ignore[misc]


def journeys(facts: Facts) -> list[Journey]:
    """All messages, by their first event."""
    found = list(_sent(facts))
    _stored(facts, found)
    _read(facts, found)
    return sorted(found, key=lambda j: (j.first["t"], j.first["party"], j.first["n"]))


def _host(event: Event) -> str:
    return str(event["party"].partition(".")[0])


def _sent(facts: Facts) -> Iterator[Journey]:
    open_: dict[tuple[str, str, int], Journey] = {}
    relayed: dict[tuple[str, str], Event] = {}
    for event in facts.by_kind["log"]:
        if event.get("event") == "sent":
            relayed.setdefault((_host(event), event["fields"].get("msg_id", "")), event)
    for event in facts.of("send.begin", "send.ok", "send.fail", "send.unknown"):
        key = (event["party"], event.get("session", ""), event["call"])
        if event["kind"] == "send.begin":
            made = Journey(event["token"], _host(event), str(event.get("to", "")), begin=event)
            open_[key] = made
            yield made
            continue
        of = open_.pop(key, None)
        if of is None or of.token != event["token"]:
            of = Journey(event["token"], _host(event), str(event.get("to", "")))
            yield of
        of.end = event
        of.sent = relayed.get((of.sender, event.get("msg_id", "")))


def _stored(facts: Facts, found: list[Journey]) -> None:
    hosts = {key: host for host, key in reversed(facts.keys.items())}
    by_id = {(j.sender, j.end["msg_id"]): j for j in found if j.end is not None and j.end.get("msg_id")}
    by_token = {j.token: j for j in reversed(found) if j.token}
    for entry in facts.stored:
        sender = hosts.get(entry.sender, "")
        journey = by_id.get((sender, entry.msg_id)) or by_token.get(entry.token)
        if journey is None:
            name = "local" if entry.local else sender or f"key {entry.sender[:8]}"
            journey = Journey(entry.token or entry.msg_id[:8], name, _host(entry.first))
            found.append(journey)
            by_token.setdefault(entry.token or entry.msg_id, journey)
        journey.stored.append(entry)


def _read(facts: Facts, found: list[Journey]) -> None:
    told = notices(facts)
    woken = wakes_by_notice(facts)
    fetched: dict[tuple[str, str, str], list[Event]] = defaultdict(list)
    for event in facts.of("fetch", "history"):
        for message in event["messages"]:
            fetched[facts.keys.get(_host(event), ""), message["sender"], message["msg_id"]].append(event)
    acked: dict[tuple[str, str, str], list[Event]] = defaultdict(list)
    for event in facts.by_kind["ack"]:
        for receipt in event["receipts"]:
            acked[facts.keys.get(_host(event), ""), receipt["sender"], receipt["msg_id"]].append(event)
    seen = {ident: min(e["t"] for e in rows) for ident, rows in woken.items()}
    for journey in found:
        for entry in journey.stored:
            key = (entry.identity, entry.sender, entry.receipt_id)
            journey.fetches += [e for e in fetched[key] if e not in journey.fetches]
            journey.acks += [e for e in acked[key] if e not in journey.acks]
            for notice in told.get(entry.session, ()):
                if covers(notice, entry, seen.get(notice.ident, notice.at)):
                    journey.notices.append(notice.event)
                    journey.wakes += woken.get(notice.ident, [])


def covers(notice: Notice, entry: Stored, woke_at: float) -> bool:
    """Whether a notice is (also) for this record: handed over while it was unread, and up to its number.

    `woke_at`: when the host had it; the watcher may see the file later than that.
    """
    consumed, at = entry.consumed_at, min(notice.at, woke_at)
    if notice.at < entry.first["t"] - SEEN_LATE_S or (consumed is not None and at > consumed):
        return False
    if entry.progress:
        return False
    return notice.through >= entry.seq if notice.through is not None else notice.at >= entry.first["t"]


def wakes_by_notice(facts: Facts) -> dict[str, list[Event]]:
    """Notice id -> the events in which a host was woken with it, by time."""
    found: dict[str, list[Event]] = defaultdict(list)
    for event in facts.of("wake", "turn"):
        for ident in dict.fromkeys(NOTICE_ID.findall(str(event.get("text", "")))):
            found[ident].append(event)
    return found
