"""Named points: the moment at which the next event of some kind reaches the history."""

from collections.abc import Generator
from typing import Any

import anyio

from interlink_lab.history import Event, is_of, matches
from interlink_lab.run import LabFailed, Run


class Point:
    """Await it: the first such event since it was made. LabFailed where none comes within the guard time."""

    def __init__(self, run: Run, kind: str, party: str | None, data: dict[str, Any]) -> None:
        self._run = run
        self._kind, self._party, self._data = kind, party, data
        self._reached = anyio.Event()
        self.event: Event | None = None
        run.hooks.append(self._take)

    def _take(self, event: Event) -> None:
        if event["kind"] != self._kind or (self._party is not None and not is_of(event, self._party)):
            return
        if matches(event, self._data.items()):
            self.event = event
            self._run.hooks.remove(self._take)
            self._reached.set()

    async def wait(self, guard_s: float | None = None) -> Event:
        """The event. `guard_s` (None: the run's patience) is against hangs, never a measure."""
        guard_s = self._run.patience_s if guard_s is None else guard_s
        with anyio.move_on_after(guard_s):
            await self._reached.wait()
        if self.event is None:
            self.drop()
            raise LabFailed(f"waited {guard_s:g} s for {self._kind} of {self._party} {self._data}")
        return self.event

    def drop(self) -> None:
        """Wait for it no more."""
        if self._take in self._run.hooks:
            self._run.hooks.remove(self._take)

    def __await__(self) -> Generator[Any, Any, Event]:
        return self.wait().__await__()


def at(run: Run, kind: str, party: str | None = None, **data: Any) -> Point:
    """The next event of this kind, of a party or its parts, with these values (`event="stored"` of a log line)."""
    return Point(run, kind, party, data)
