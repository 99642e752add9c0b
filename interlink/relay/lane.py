"""A lane: work done in groups on one thread, while the next group gathers; and that thread.

What arrives while a group is being worked on forms the next one. With slow work (a disk's sync) groups
grow by themselves, with quick work they stay small: no timer, no waiting for company.
"""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Settle = Callable[[Any, BaseException | None], None]


class Worker:
    """One thread that runs calls in order. `concurrent.futures` does this too, for two futures and a turn of the
    loop more a call: a tenth of a send. Make it on a running loop; `close` ends it."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Settle] | None] = queue.SimpleQueue()
        # A daemon: who forgets `close` must not keep the process from ending.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], Result], done: Callable[[Result, BaseException | None], None]) -> None:
        """Run `call` on the thread, then `done(its result, None)` or `done(None, its exception)` on the loop."""
        self._calls.put((call, done))

    async def run(self, call: Callable[[], Result]) -> Result:
        """Run `call` on the thread and wait for it."""
        future: asyncio.Future[Result] = self._loop.create_future()

        def done(result: Result, fault: BaseException | None) -> None:
            if future.done():  # who waited was cancelled
                return
            if fault is None:
                future.set_result(result)
            else:
                future.set_exception(fault)

        self.submit(call, done)
        return await future

    def close(self) -> None:
        """End the thread after the calls that it was given."""
        self._calls.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (entry := self._calls.get()) is not None:
            call, done = entry
            result, fault = None, None
            try:
                result = call()
            except BaseException as exc:  # noqa: BLE001 - handed to `done`, whatever it is
                fault = exc
            self._loop.call_soon_threadsafe(done, result, fault)
            del entry, call, done, result, fault  # nothing of a group is kept alive until the next one


class Lane(Generic[Item, Result]):
    """`work(items)` runs on `worker`; `settle(items, result or exception)` then runs on the event loop.

    Every item that was added is settled exactly once, in order, whatever happens to who added it.
    """

    def __init__(
        self,
        worker: Worker,
        work: Callable[[Sequence[Item]], Result],
        settle: Callable[[Sequence[Item], Result | BaseException], None],
        weight: Callable[[Item], int],
        limit: Callable[[], int],
    ) -> None:
        """`limit()`: the weight that one group may have (one item alone may exceed it)."""
        self._worker = worker
        self._work = work
        self._settle = settle
        self._weight = weight
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._items: deque[Item] = deque()
        self._busy = False
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, item: Item) -> None:
        """Queue one item for the next group."""
        self._items.append(item)
        if not self._busy:
            self._busy = True
            self._idle.clear()
            # In the next turn of the loop, so that requests of this turn share the group.
            self._loop.call_soon(self._start)

    async def drained(self) -> None:
        """Return once nothing is queued or being worked on."""
        await self._idle.wait()

    def _start(self) -> None:
        group = [self._items.popleft()]
        room = self._limit() - self._weight(group[0])
        while self._items:
            room -= self._weight(self._items[0])
            if room < 0:
                break
            group.append(self._items.popleft())
        self._worker.submit(lambda: self._work(group), lambda result, fault: self._finish(group, fault or result))

    def _finish(self, group: list[Item], outcome: Result | BaseException) -> None:
        try:
            self._settle(group, outcome)
        finally:
            if self._items:
                self._start()
            else:
                self._busy = False
                self._idle.set()
