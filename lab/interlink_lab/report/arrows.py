"""The arrows of the timeline: send, relay, notice, wake, fetch, ack; a way over lanes and its events."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from interlink_lab.checker.model import Facts
from interlink_lab.checker.notices import notices
from interlink_lab.history import Event
from interlink_lab.report.journeys import Journey, wakes_by_notice
from interlink_lab.report.lanes import Lanes
from interlink_lab.tokens import NOTICE_ID

KINDS = ("send", "relay", "notice", "wake", "fetch", "ack")
FAILED = ("send.fail", "send.unknown", "fetch.failed", "fetch.lost", "ack.failed")


@dataclass
class Arrow:
    """`points`: (lane, time in s). `failed`: no answer came. `journeys`: positions in the list of messages.

    A `relay` arrow whose way over the relay is drawn is `inferred`: with one relay there is no other way.
    """

    kind: str
    points: list[tuple[int, float]]
    events: list[Event]
    label: str
    journeys: list[int] = field(default_factory=list)
    failed: bool = False
    inferred: bool = False


def arrows(facts: Facts, lanes: Lanes, messages: list[Journey]) -> list[Arrow]:
    """All arrows, by time."""
    found = [
        *_sends(lanes, messages),
        *_relayed(lanes, messages),
        *_notices(facts, lanes, messages),
        *_calls(facts, lanes, messages),
    ]
    return sorted(found, key=lambda a: (a.points[0][1], KINDS.index(a.kind)))


def _sends(lanes: Lanes, messages: list[Journey]) -> Iterator[Arrow]:
    for number, journey in enumerate(messages):
        begin, end = journey.begin, journey.end
        if begin is None or journey.sender not in lanes.hosts:
            continue
        at = [e for e in (journey.sent, end) if e is not None and e["t"] >= begin["t"]]
        last = at[0] if at else begin
        failed = end is None or end["kind"] in FAILED
        yield Arrow(
            "send",
            [(lanes.agent(journey.sender), begin["t"]), (lanes.server(journey.sender), last["t"])],
            [e for e in (begin, end) if e is not None],
            f"{journey.token} sent to {journey.receiver}" + (": no state came back" if failed else ""),
            [number],
            failed,
        )


def _relayed(lanes: Lanes, messages: list[Journey]) -> Iterator[Arrow]:
    for number, journey in enumerate(messages):
        start = journey.sent or journey.end or journey.begin
        if start is None or journey.sender not in lanes.hosts:
            continue
        out = lanes.server(journey.sender)
        begun = start["t"] if journey.end is None or journey.end["kind"] == "send.ok" else journey.first["t"]
        relay = lanes.index[lanes.relays[0]] if len(lanes.relays) == 1 else None
        copies = [s for s in journey.stored if not s.local]
        for entry in copies:
            at = entry.first["t"]
            left = min(begun, at)
            points = [(out, left), (lanes.of(entry.first), at)]
            if relay is not None:
                wait = (at - left) / 4
                points[1:1] = [(relay, left + wait), (relay, at - wait)]
            events = [start, entry.first]
            yield Arrow("relay", points, events, f"{journey.token} by relay", [number], False, relay is not None)
        taken = journey.end is not None and journey.end["kind"] == "send.ok"
        if not copies and relay is not None and taken and start["kind"] in ("log", "send.ok"):
            yield Arrow(
                "relay", [(out, begun), (relay, begun)], [start], f"{journey.token} accepted, never stored",
                [number], True, True,
            )  # fmt: skip


def _notices(facts: Facts, lanes: Lanes, messages: list[Journey]) -> Iterator[Arrow]:
    of_event: dict[int, list[int]] = {}
    for number, journey in enumerate(messages):
        for event in journey.notices:
            of_event.setdefault(id(event), []).append(number)
    woken = wakes_by_notice(facts)
    fired: dict[str, list[Event]] = {}
    for event in facts.by_kind["exit"]:
        if event["party"].endswith(".listener"):
            for ident in dict.fromkeys(NOTICE_ID.findall(str(event.get("text", "")))):
                fired.setdefault(ident, []).append(event)
    for rows in notices(facts).values():
        for row in rows:
            numbers = of_event.get(id(row.event), [])
            source = lanes.of(row.event)
            exits = fired.get(row.ident, [])
            wakes = woken.get(row.ident, [])
            for event in exits:
                yield _arrow("notice", lanes, row.event, event, source, f"notice {row.ident}", numbers)
            for event in wakes:
                before = [e for e in exits if e["t"] <= event["t"]]
                if before:
                    yield _arrow(
                        "wake", lanes, before[-1], event, lanes.of(before[-1]), f"wake {row.ident}", numbers
                    )
                else:
                    yield _arrow("notice", lanes, row.event, event, source, f"notice {row.ident}", numbers)


def _arrow(kind: str, lanes: Lanes, a: Event, b: Event, source: int, label: str, numbers: list[int]) -> Arrow:
    return Arrow(kind, [(source, min(a["t"], b["t"])), (lanes.of(b), b["t"])], [a, b], label, numbers)


def _calls(facts: Facts, lanes: Lanes, messages: list[Journey]) -> Iterator[Arrow]:
    """Calls of the agent: to the server, and what came back."""
    of_event: dict[int, list[int]] = {}
    for number, journey in enumerate(messages):
        for event in (*journey.fetches, *journey.acks):
            of_event.setdefault(id(event), []).append(number)
    open_: dict[tuple[str, str, int], Event] = {}
    for event in facts.of(
        "fetch.begin", "ack.begin", "fetch", "ack", "fetch.failed", "fetch.lost", "ack.failed"
    ):  # fmt: skip
        kind, _, how = event["kind"].partition(".")
        key = (event["party"], event.get("session", ""), event["call"])
        if how == "begin":
            open_[key] = event
            continue
        begun = open_.get(key)
        host = event["party"].partition(".")[0]
        if begun is None or host not in lanes.hosts:
            continue
        agent, server = lanes.agent(host), lanes.server(host)
        middle = (begun["t"] + event["t"]) / 2
        failed = event["kind"] in FAILED
        points = [(agent, begun["t"]), (server, middle)]
        if kind == "fetch" and not failed:
            points = [(server, middle), (agent, event["t"])]
        count = len(event.get("messages", event.get("receipts", ())))
        what = f"{count} fetched" if kind == "fetch" else f"{count} acknowledged"
        told = {"lost": "the answer was lost", "failed": "the call failed"}.get(how, what)
        yield Arrow(kind, points, [begun, event], f"{kind}: {told}", of_event.get(id(event), []), failed)
