"""What the checks share: the history as facts, and what a failed check says."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from interlink_lab.history import Event, History

Key = tuple[str, str]  # (sender key, msg_id or alias), what a receipt names


class Violation(NamedTuple):
    """A failed check. `events`: the few that prove it."""

    invariant: str
    text: str
    events: list[Event]


Check = Callable[["Facts"], Iterator[Violation]]


@dataclass
class Stored:
    """One mailbox record over time. `states`: (time, state, superseded by), as it was seen to change."""

    session: str
    identity: str
    sender: str
    msg_id: str
    delivery_id: str
    seq: int
    token: str
    task: str
    status: str
    local: bool
    first: Event
    alias: str = ""
    ts: int = 0
    reply_to: str = ""
    ephemeral: bool = False
    moved_at: float | None = None
    asked_at: float | None = None  # when the agent first gave its receipt back
    states: list[tuple[float, str, str]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    @property
    def receipt_id(self) -> str:
        return self.alias or self.msg_id

    @property
    def stored_from(self) -> float:
        """When it may have been stored already: looks at the files come late on a busy machine."""
        return float(self.first["t"] - self.first.get("late", 0.0))

    @property
    def consumed_from(self) -> float | None:
        """When it may have been consumed already."""
        for (at, state, superseded), event in zip(self.states, self.events, strict=True):
            if state == "receiver_acknowledged" or superseded:
                return float(at - event.get("late", 0.0))
        return self.moved_at

    @property
    def progress(self) -> bool:
        return self.status == "update"

    @property
    def quiet(self) -> bool:
        """Wakes nobody (M14, M23)."""
        return self.progress or self.ephemeral

    @property
    def consumed_at(self) -> float | None:
        """When it was first seen consumed, or was moved into another session."""
        for at, state, superseded in self.states:
            if state == "receiver_acknowledged" or superseded:
                return at
        return self.moved_at


class Facts:
    """A history, arranged. Times in s since the run's start."""

    def __init__(self, history: History) -> None:
        self.events = history.ordered()
        self.by_kind: dict[str, list[Event]] = defaultdict(list)
        for event in self.events:
            self.by_kind[event["kind"]].append(event)
        self._begins: dict[tuple[str, int], list[Event]] = defaultdict(list)
        for event in self.of("fetch.begin", "ack.begin", "history.begin"):
            self._begins[event["party"], event["call"]].append(event)
        topology = self.first("topology") or {}
        self.hosts: dict[str, dict[str, Any]] = topology.get("hosts", {})
        self.relays: list[str] = topology.get("relays", [])
        self.other: bool = topology.get("other", False)  # programs of another make
        self.schedule_s: list[float] = topology.get("schedule_s", [30.0])
        identities = self.first("identities") or {}
        self.keys: dict[str, str] = identities.get("keys", {})
        self.stored = self._records()
        self.by_session: dict[str, list[Stored]] = defaultdict(list)
        for entry in self.stored:
            self.by_session[entry.session].append(entry)
        # The server's line behind each handoff, by the notice's id.
        self.told = {e["fields"].get("id"): e for e in self.by_kind["log"] if e["event"] == "notice"}
        self.faults = self._faults()
        self.ended = (self.first("ending") or (self.events[-1] if self.events else {"t": 0.0}))["t"]

    def first(self, kind: str) -> Event | None:
        """The first event of a kind."""
        return self.by_kind[kind][0] if self.by_kind[kind] else None

    def of(self, *kinds: str) -> list[Event]:
        """Events of these kinds, by time."""
        return sorted(
            (e for kind in kinds for e in self.by_kind[kind]), key=lambda e: (e["t"], e["party"], e["n"])
        )

    def _records(self) -> list[Stored]:
        found: dict[tuple[Any, ...], Stored] = {}
        for event in self.by_kind["record"]:
            ident = tuple(event[k] for k in ("identity", "session", "sender", "msg_id", "delivery_id"))
            entry = found.get(ident)
            if entry is None:
                entry = found[ident] = Stored(
                    session=event["session"], identity=event["identity"], sender=event["sender"],
                    msg_id=event["msg_id"], delivery_id=event["delivery_id"], seq=event["seq"] or 0,
                    token=event["token"], task=event["task"], status=event["status"], local=event["local"],
                    first=event, alias=event.get("alias", ""),
                    ts=event.get("ts", 0),
                    reply_to=event.get("reply_to", ""),
                    ephemeral=event.get("ephemeral", False),
                )  # fmt: skip
            entry.states.append((event["t"], event["state"], event["superseded_by"]))
            entry.events.append(event)
        self._adopted(found)
        self._other_evidence(found)
        return sorted(found.values(), key=lambda s: (s.identity, s.session, s.seq))

    def _other_evidence(self, found: dict[tuple[Any, ...], Stored]) -> None:
        """A look at the files comes late on a busy machine: the server's `stored` line and the agent's
        acknowledgement may have been sooner."""
        told = {(self.keys.get(e["party"].partition(".")[0]), e["fields"].get("msg_id")): e
                for e in reversed(self.by_kind["log"]) if e["event"] == "stored"}  # fmt: skip
        asked: dict[tuple[str, str, str], float] = {}
        for event in self.by_kind["ack.begin"]:
            identity = self.keys.get(event["party"].partition(".")[0], "")
            for receipt in event["receipts"]:
                asked.setdefault((identity, receipt["sender"], receipt["msg_id"]), event["t"])
        where = {(e.identity, e.receipt_id): e for e in sorted(found.values(), key=lambda e: -e.first["t"])}
        for entry in found.values():
            log = told.get((entry.identity, entry.receipt_id))
            came = where[entry.identity, entry.receipt_id] is entry  # into another session it was adopted later
            if came and log is not None and log["t"] < entry.first["t"]:
                entry.first = {**entry.first, "t": log["t"], "seen_at": entry.first["t"]}
            entry.asked_at = asked.get((entry.identity, entry.sender, entry.receipt_id))

    def _adopted(self, found: dict[tuple[Any, ...], Stored]) -> None:
        """What is gone from a session and is in another one under its delivery id was moved there (M30)."""
        sessions: dict[tuple[str, str, str], set[str]] = defaultdict(set)
        for entry in found.values():
            sessions[entry.identity, entry.sender, entry.delivery_id].add(entry.session)
        for event in self.by_kind["record.gone"]:
            gone = found.get(tuple(event[k] for k in ("identity", "session", "sender", "msg_id", "delivery_id")))
            if gone is not None and len(sessions[gone.identity, gone.sender, gone.delivery_id]) > 1:
                gone.moved_at = event["t"]

    def _faults(self) -> list[tuple[float, float, Event]]:
        """(begin, end, event) of each fault; one that is not ended lasts to the end, a moment that hit nothing is
        none."""
        missed = {event["id"] for event in self.by_kind["fault.missed"]}
        open_: dict[int, Event] = {}
        spans: list[tuple[float, float, Event]] = []
        for event in self.of("fault", "fault.end"):
            if event["kind"] == "fault":
                if event.get("lasts", True):
                    open_[event["id"]] = event
                elif event["id"] not in missed:
                    spans.append((event["t"], event["t"], event))
            elif event["id"] in open_:
                begun = open_.pop(event["id"])
                spans.append((begun["t"], event["t"], begun))
        end = self.events[-1]["t"] if self.events else 0.0
        spans += [(event["t"], end, event) for event in open_.values()]
        return sorted(spans, key=lambda s: s[0])

    def faulty(self, begin: float, end: float, *targets: str, kinds: tuple[str, ...] = ()) -> bool:
        """Whether a fault of these targets (none: any) and kinds (none: any) touches the span.

        One of a moment, a kill, excuses nothing: the ends and starts of processes say what it may bring.
        """
        return any(
            a <= end and b >= begin and e.get("lasts", True)
            for a, b, e in self.faults
            if (not targets or e["target"].partition(".")[0] in targets) and (not kinds or e["fault"] in kinds)
        )

    def mates(self, host: str) -> set[str]:
        """The host, and those that have its key."""
        key = self.keys.get(host)
        return {host} | {other for other, its in self.keys.items() if its == key}

    def serves(self, host: str, at: float) -> str | None:
        """The session that the host's server served at a time, by its log."""
        found = None
        for event in self.by_kind["log"]:
            if event["t"] > at:
                break
            if event["event"] == "session" and event["party"] == f"{host}.server":
                found = event["fields"].get("id")
        return found

    def trusted(self, host: str, at: float) -> set[str]:
        """Keys whose messages the host may store at a time: by the topology, by later `trust` events, its own."""
        allowed = {self.keys.get(host, "")}
        for event in self.of("identities", "trust"):
            if event["t"] > at:
                break
            if event["kind"] == "identities":
                allowed |= set(event["trusts"].get(host, ()))
            elif event["host"] == host:
                allowed |= set(event["keys"])
        return allowed

    def quarantined(self, entry: Stored, at: float) -> bool:
        """Whether the sender was no peer at that time (G7)."""
        current: set[str] | None = None
        host = entry.first["party"].partition(".")[0]
        for event in self.of("identities", "trust"):
            if event["t"] > at:
                break
            if event["kind"] == "identities":
                current = set(event["trusts"].get(host, ()))
            elif event["host"] == host:
                current = set(event["keys"])
        if entry.local or current is None or entry.sender == entry.identity:
            return False
        return entry.sender not in current

    def began(self, answer: Event) -> Event | None:
        """What began the call that this event answers: the last one before it, since a host that starts again
        counts its calls from the beginning."""
        found = None
        for event in self._begins[answer["party"], answer["call"]]:
            if event["t"] <= answer["t"]:
                found = event
        return found

    def begun_at(self, sent: Event) -> float:
        """When the call began that ended with this event."""
        for event in self.by_kind["send.begin"]:
            same = all(event[k] == sent[k] for k in ("party", "call", "token"))
            if same and event["t"] <= sent["t"]:
                return float(event["t"])
        return float(sent["t"])

    def restarted(self, host: str, begin: float, end: float) -> bool:
        """Whether a server of the host started or ended in the span."""
        return any(begin <= e["t"] <= end and e["party"] == f"{host}.server" for e in self.of("start", "exit"))
