"""The history of a run: every event of every party, one JSON object a line, in the order in which they were taken.

An event has `t` (s since the run's start, on the machine's monotonic clock, which containers share), `party`
(`bob.server`, `r1`, `lab` ...), `n` (the party's own count, its clock), `kind`, and what the kind needs.

    history = History.load(path)
    for event in history.of("ack", party="bob.agent"): ...
"""

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def now_ns() -> int:
    """The clock of all parties, ns."""
    return time.monotonic_ns()


class Emitter:
    """Makes a party's events: stamps clock and count. `write` takes the finished event."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def make(self, party: str, kind: str, **data: Any) -> Event:
        """An event that happened now."""
        count = self._counts[party] = self._counts.get(party, 0) + 1
        return {"at_ns": now_ns(), "party": party, "n": count, "kind": kind, **data}


class History:
    """Events in memory, and on disk where a file is given. `begun_ns`: the run's start."""

    def __init__(self, path: Path | None = None, begun_ns: int | None = None) -> None:
        self.begun_ns = now_ns() if begun_ns is None else begun_ns
        self.events: list[Event] = []
        self._file = None if path is None else path.open("a", encoding="utf-8")
        self._own = Emitter()

    def add(self, event: Event) -> Event:
        """Take an event of any party; its `at_ns` becomes `t`."""
        at = event.pop("at_ns")
        row = {"t": round((at - self.begun_ns) / 1e9, 6), **event}
        self.events.append(row)
        if self._file is not None:
            self._file.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
        return row

    def note(self, kind: str, **data: Any) -> Event:
        """An event of the lab itself."""
        return self.add(self._own.make("lab", kind, **data))

    @property
    def now(self) -> float:
        """Seconds since the run's start."""
        return (now_ns() - self.begun_ns) / 1e9

    def close(self) -> None:
        """Flush to disk."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @classmethod
    def load(cls, path: Path) -> "History":
        """A recorded history. OSError, ValueError for what is no history."""
        history = cls()
        history.events = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]
        return history

    def ordered(self) -> list[Event]:
        """All events by time (they arrive from several processes, a little out of order)."""
        return by_time(self.events)

    def of(self, *kinds: str, party: str | None = None, since: float = 0.0, **data: Any) -> list[Event]:
        """Events of these kinds since a time, s, in order; `party`: whole, or a prefix that ends before a dot."""
        wanted = data.items()
        return by_time(
            e
            for e in self.events
            if e["kind"] in kinds and e["t"] >= since and (party is None or is_of(e, party)) and matches(e, wanted)
        )


def by_time(events: Iterable[Event]) -> list[Event]:
    """Events in the order of their times."""
    return sorted(events, key=lambda e: (e["t"], e["party"], e["n"]))


def is_of(event: Event, party: str) -> bool:
    """Whether it is an event of this party or of a part of it (`bob` of `bob.server`)."""
    name: str = event["party"]
    return name == party or name.startswith(party + ".")


def matches(event: Event, wanted: Iterable[tuple[str, Any]]) -> bool:
    """Whether the event has all these values."""
    return all(event.get(key) == value for key, value in wanted)
