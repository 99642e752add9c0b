"""A lane: work done in groups on one thread, while the next group gathers.

What arrives while a group is being worked on forms the next one. With slow work (a disk's sync) groups
grow by themselves, with quick work they stay small: no timer, no waiting for company.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Lane(Generic[Item, Result]):
    """`work(items)` runs on `executor`; `settle(items, result or exception)` then runs on the event loop.

    Every item that was added is settled exactly once, in order, whatever happens to who added it.
    """

    def __init__(
        self,
        executor: Executor,
        work: Callable[[Sequence[Item]], Result],
        settle: Callable[[Sequence[Item], Result | BaseException], None],
        weight: Callable[[Item], int],
        limit: Callable[[], int],
    ) -> None:
        """`limit()`: the weight that one group may have (one item alone may exceed it)."""
        self._executor = executor
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
        future = self._loop.run_in_executor(self._executor, self._work, group)
        future.add_done_callback(lambda done: self._finish(group, done))

    def _finish(self, group: list[Item], done: "asyncio.Future[Result]") -> None:
        try:
            self._settle(group, done.exception() or done.result())
        finally:
            if self._items:
                self._start()
            else:
                self._busy = False
                self._idle.set()
