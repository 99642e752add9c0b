"""Long polls that wait for a message, by route; bounded."""

import asyncio
from collections.abc import Iterable

from interlink.errors import InterlinkError


class TooManyWaiters(InterlinkError):
    """The relay has as many long polls waiting as it may."""


class Waiter:
    """One long poll. `wake` before `wait` is not lost."""

    __slots__ = ("_future", "_woken", "route")

    def __init__(self, route: str) -> None:
        self.route = route
        self._woken = False
        self._future: asyncio.Future[None] | None = None

    def wake(self) -> None:
        self._woken = True
        if self._future is not None:
            _end(self._future)

    async def wait(self, seconds: float) -> bool:
        """True when woken, False after `seconds`."""
        if not self._woken:
            loop = asyncio.get_running_loop()
            future = self._future = loop.create_future()
            timer = loop.call_later(seconds, _end, future)
            try:
                await future
            finally:
                timer.cancel()
                self._future = None
        woken, self._woken = self._woken, False
        return woken


def _end(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class Waiters:
    """All long polls. Several may wait on one route (two servers of one session): all are woken."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_route: dict[str, set[Waiter]] = {}
        self._count = 0
        self.stopped = False

    def __len__(self) -> int:
        return self._count

    def add(self, route: str) -> Waiter:
        """A new waiter, to be removed by its owner. Raises TooManyWaiters."""
        if self._count >= self._limit:
            raise TooManyWaiters(f"{self._count} polls are waiting, the most that this relay holds")
        waiter = Waiter(route)
        self._by_route.setdefault(route, set()).add(waiter)
        self._count += 1
        return waiter

    def remove(self, waiter: Waiter) -> None:
        waiting = self._by_route[waiter.route]
        waiting.discard(waiter)
        self._count -= 1
        if not waiting:
            del self._by_route[waiter.route]

    def wake(self, routes: Iterable[str]) -> None:
        """Something arrived for these routes."""
        for route in routes:
            for waiter in self._by_route.get(route, ()):
                waiter.wake()

    def stop(self) -> None:
        """Wake all; from now on nobody waits."""
        self.stopped = True
        self.wake(list(self._by_route))
