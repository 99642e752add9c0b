"""A run as data for the page: lanes, axis, marks, arrows, bars, bands, messages, violations, events by number.

A long run is thinned: like marks that stand close together become one with a count. What proves a violation,
faults, and starts and ends of processes are never thinned.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from interlink_lab.checker import names
from interlink_lab.checker.model import Facts
from interlink_lab.history import Event
from interlink_lab.report import scale
from interlink_lab.report.arrows import Arrow, arrows
from interlink_lab.report.journeys import STEPS, Journey, journeys
from interlink_lab.report.lanes import Lanes, bands, bars
from interlink_lab.report.load import Recorded, identity

MARKS, ARROWS = 2500, 500
"""Drawn at most; what is never thinned comes on top. More arrows than that are one coloured area."""
MESSAGES = 400
VIOLATIONS = 100
LIST_ITEMS = 20
TEXT_CHARS = 2000
BUCKETS = (2000, 1000, 500, 250, 120, 60, 30, 15)
KEPT = (
    "fault",
    "fault.end",
    "exit",
    "start",
    "topology",
    "identities",
    "up",
    "ending",
    "end",
    "leftovers",
    "unsettled",
)


@dataclass
class Mark:
    """An event, or `count` of a kind in one lane that stand close together."""

    event: Event
    lane: int
    count: int
    until: float


class Numbers:
    """Events by number, as anchors name them: `e17` is the 17th of the whole history by time."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._events = list(events)
        self._of = {identity(event): number for number, event in enumerate(self._events, 1)}
        self.used: dict[int, Event] = {}

    def get(self, event: Event) -> int | None:
        """Its number; None for an event that is not in the history."""
        number = self._of.get(identity(event))
        if number is not None:
            self.used.setdefault(number, self._events[number - 1])
        return number

    def all(self, events: Iterable[Event]) -> list[int]:
        return [n for n in (self.get(e) for e in events) if n is not None]


def timeline(run: Recorded) -> dict[str, Any]:
    """Everything that the page shows, as JSON data. ValueError for a history that is not of this lab."""
    try:
        return _timeline(run)
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError(
            f"an event of this history lacks what its kind needs: {type(exc).__name__} {exc}"
        ) from exc


def _timeline(run: Recorded) -> dict[str, Any]:
    facts = Facts(run.history)
    lanes = Lanes(facts)
    numbers = Numbers(facts.events)
    messages = journeys(facts)
    proof = [e for v in run.violations for e in v["events"]]
    keep = {identity(e) for e in proof}
    begin = (facts.first("up") or {"t": 0.0})["t"]
    ways = arrows(facts, lanes, messages)
    moments = [e["t"] for e in facts.events]
    whole, _ = scale.knots(moments, begin, facts.ended)
    shown_marks = marks(facts.events, lanes, keep, whole)
    shown_ways, counts = thinned(ways, keep, whole)
    moments = [m.event["t"] for m in shown_marks] + [t for a in shown_ways for _, t in a.points]
    knots, cuts = scale.knots(moments, begin, facts.ended)
    spans, faults = bars(facts, lanes), bands(facts, lanes)
    told = chosen(messages, {j for a in shown_ways if not a.failed for j in a.journeys[:1]})
    place = {number: at for at, number in enumerate(told)}
    drawn = {
        "lanes": [lane._asdict() for lane in lanes.all],
        "knots": knots,
        "cuts": cuts,
        "proper": [begin, facts.ended],
        "marks": [[numbers.get(m.event), m.lane, m.count, m.until] for m in shown_marks],
        "arrows": [
            {
                "kind": a.kind, "points": a.points, "events": numbers.all(a.events), "label": a.label,
                "messages": [place[j] for j in a.journeys if j in place], "failed": a.failed,
                "inferred": a.inferred,
                "count": count,
            }
            for a, count in zip(shown_ways, counts, strict=True)
        ],
        "bars": [
            {
                "kind": b.kind, "lane": b.lane, "begin": b.begin, "end": b.end, "event": numbers.get(b.event),
                "ends": b.ends, "violent": b.violent,
            }
            for b in spans
        ],
        "bands": [
            {
                "lanes": f.lanes, "begin": f.begin, "end": f.end, "event": numbers.get(f.event),
                "fault": str(f.event["fault"]), "target": str(f.event["target"]),
            }
            for f in faults
        ],
        "messages": [message(messages[n], numbers) for n in told],
    }  # fmt: skip
    said = names()
    different = folded(run.violations)
    wrong = [
        {
            "invariant": v["invariant"],
            "rule": said.get(v["invariant"], ""),
            "text": v["text"],
            "count": v["count"],
            "events": numbers.all(v["events"]),
            "foreign": [cut(e) for e in v["events"] if numbers.get(e) is None],
        }
        for v in different[:VIOLATIONS]
    ]
    notes = list(run.notes)
    if len(facts.events) > len(shown_marks) or len(ways) > len(shown_ways):
        notes.append(
            f"{len(facts.events)} events and {len(ways)} arrows: drawn as {len(shown_marks)} marks and "
            f"{len(shown_ways)} arrows; a mark or an arrow with a number stands for so many"
        )
    if len(messages) > len(told):
        notes.append(f"{len(messages)} messages, {len(told)} are listed: those that are not done first")
    if len(different) > len(wrong):
        notes.append(f"{len(different)} different violations, {len(wrong)} are listed")
    return {
        **head(run, facts, messages),
        **drawn,
        "violations": wrong,
        "invariants": len({v["invariant"] for v in run.violations}),
        "notes": notes,
        "steps": STEPS,
        "lane_of": {n: lanes.of(e) for n, e in numbers.used.items()},
        "events": {n: cut(e) for n, e in sorted(numbers.used.items())},
    }


def head(run: Recorded, facts: Facts, messages: list[Journey]) -> dict[str, Any]:
    """What stands at the top."""
    verdict = run.verdict
    result = "failed" if run.violations else "no verdict" if verdict is None else verdict.result
    return {
        "scenario": verdict.scenario if verdict else run.folder.name,
        "backend": verdict.backend if verdict else str((facts.first("topology") or {}).get("backend", "")),
        "seed": verdict.seed if verdict else (facts.first("topology") or {}).get("seed"),
        "result": result,
        "error": verdict.error if verdict else "",
        "bug": verdict.bug if verdict else "",
        "replay": verdict.replay if verdict else "",
        "seconds": facts.events[-1]["t"] if facts.events else 0.0,
        "counts": {
            "events": len(facts.events),
            "messages": len(messages),
            "done": sum(j.is_done for j in messages),
            "wakes": len(facts.by_kind["wake"]),
            "fetches": len(facts.by_kind["fetch"]),
            "faults": len(facts.faults),
            "violations": len(run.violations),
        },
    }


def folded(violations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that say the same become one, with a `count` and the events of all, each once, by time.

    In the order in which each was first found, an invariant's together.
    """
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for one in violations:
        same = found.setdefault(one["invariant"], {}).setdefault(one["text"], {**one, "events": [], "count": 0})
        same["count"] += 1
        known = {identity(e) for e in same["events"]}
        same["events"] = sorted(
            [*same["events"], *(e for e in one["events"] if identity(e) not in known)], key=lambda e: e["t"]
        )
    return [one for rows in found.values() for one in rows.values()]


def marks(events: list[Event], lanes: Lanes, keep: set[Any], axis: list[scale.Knot]) -> list[Mark]:
    """The events as marks, thinned until few enough."""
    one_by_one = [Mark(e, lanes.of(e), 1, e["t"]) for e in events]
    if len(one_by_one) <= MARKS:
        return one_by_one
    found = one_by_one
    for buckets in BUCKETS:
        groups: dict[Any, Mark] = {}
        found = []
        for event in events:
            if identity(event) in keep or event["kind"] in KEPT:
                found.append(Mark(event, lanes.of(event), 1, event["t"]))
                continue
            key = (event["party"], event["kind"], event.get("event"), bucket(axis, event["t"], buckets))
            mark = groups.get(key)
            if mark is None:
                mark = groups[key] = Mark(event, lanes.of(event), 0, event["t"])
                found.append(mark)
            mark.count += 1
            mark.until = event["t"]
        if len(found) <= MARKS:
            break
    return found


def thinned(ways: list[Arrow], keep: set[Any], axis: list[scale.Knot]) -> tuple[list[Arrow], list[int]]:
    """The arrows and how many each stands for."""
    if len(ways) <= ARROWS:
        return ways, [1] * len(ways)
    found: list[Arrow] = []
    counts: list[int] = []
    for buckets in BUCKETS:
        found, counts = [], []
        groups: dict[Any, int] = {}
        for way in ways:
            proves = any(identity(e) in keep for e in way.events)
            key = (way.kind, way.failed, *((lane, bucket(axis, t, buckets)) for lane, t in way.points))
            if not proves and key in groups:
                at = groups[key]
                counts[at] += 1
                found[at].journeys = [*found[at].journeys, *way.journeys]
                continue
            if not proves:
                groups[key] = len(found)
            found.append(Arrow(**{**way.__dict__, "journeys": list(way.journeys)}))
            counts.append(1)
        if len(found) <= ARROWS:
            break
    return found, counts


def bucket(axis: list[scale.Knot], time: float, buckets: int) -> int:
    """The part of the axis, of `buckets` equal ones."""
    return int(scale.place(axis, time) / (axis[-1][1] or 1.0) * buckets)


def chosen(messages: list[Journey], drawn: set[int]) -> list[int]:
    """The messages that are listed: those not done, those that an arrow begins with, the others; by time again."""
    rank = {True: 1, False: 2}
    first = sorted(
        range(len(messages)), key=lambda n: (rank[n in drawn] if messages[n].is_done else 0, n)
    )  # fmt: skip
    return sorted(first[:MESSAGES])


def message(journey: Journey, numbers: Numbers) -> dict[str, Any]:
    """A row of the table of messages: per step the event's number."""
    return {
        "token": journey.token,
        "sender": journey.sender,
        "receiver": journey.receiver,
        "outcome": journey.outcome,
        "done": journey.is_done,
        "steps": {name: numbers.get(event) for name, event in journey.steps().items()},
        "notices": len(journey.notices),
        "fetches": len(journey.fetches),
    }


def cut(value: Any) -> Any:
    """A value as the page holds it: long texts and lists are cut, and say so."""
    if isinstance(value, dict):
        return {str(k): cut(v) for k, v in value.items()}
    if isinstance(value, list):
        rest = len(value) - LIST_ITEMS
        return [cut(v) for v in value[:LIST_ITEMS]] + ([f"and {rest} more"] if rest > 0 else [])
    if isinstance(value, str) and len(value) > TEXT_CHARS:
        return value[:TEXT_CHARS] + f"… ({len(value)} characters)"
    return value
