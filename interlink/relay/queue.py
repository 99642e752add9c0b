"""The relay's queue: what the HTTP server knows of storage (B2).

One durable FIFO a route; a message stays until it is acknowledged. Requests that arrive together share
one commit. Another engine (a replicated one) is a class with the six public methods of `Queue`, in place
of this one: nothing else of the relay knows about SQLite.

Counts and bytes are kept in memory, taken before a commit and given back when it fails, so that the caps
hold to the message whatever is under way.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from interlink.errors import InterlinkError
from interlink.relay.lane import Lane, Worker
from interlink.relay.tables import AckRow, Committed, PutRow, StoredRow, StoreFault, Tables
from interlink.settings import Settings

SEQ_DIGITS = 20
ROW_BYTES = 128  # what one message costs beside its payload and route, for the cap of the whole relay


class QueueFull(InterlinkError):
    """A cap is reached. Nothing was stored and nothing evicted; the sender keeps the message."""


class ForeignAck(InterlinkError):
    """An ack token is not one of this route. Nothing was acknowledged."""


class Message(NamedTuple):
    """One waiting message: its payload as sent, `ts` of acceptance in ms, and its ack token."""

    payload: bytes
    ts: int
    token: str


class Stats(NamedTuple):
    """What waits: messages, payload bytes, recipients."""

    messages: int
    bytes: int
    routes: int


class _Request:
    """A row on its way to the disk, and the future that its request waits for."""

    __slots__ = ("future", "row")

    def __init__(self, row: PutRow | AckRow, future: "asyncio.Future[int]") -> None:
        self.row = row
        self.future = future


class _Read:
    __slots__ = ("future", "limit", "max_bytes", "route", "weight")

    def __init__(
        self, route: str, limit: int, max_bytes: int, weight: int, future: "asyncio.Future[list[StoredRow]]"
    ) -> None:
        self.route = route
        self.limit = limit
        self.max_bytes = max_bytes
        self.weight = weight
        self.future = future


class Queue:
    """The queue in one SQLite file; `path` None: in memory, lost at the end. Make it on a running loop.

    `on_arrival(routes)` is called on the loop after each commit that stored something; `on_commit(seconds,
    requests)` after every commit. Raises StateError or CorruptFile where the file cannot be used.
    """

    def __init__(
        self,
        path: str | None,
        settings: Settings,
        on_arrival: Callable[[Iterable[str]], None] = lambda routes: None,
        on_commit: Callable[[float, int], None] = lambda seconds, requests: None,
    ) -> None:
        self._settings = settings
        self._on_arrival = on_arrival
        self._on_commit = on_commit
        self._loop = asyncio.get_running_loop()
        self._tables = Tables(path, settings)
        self._depth = self._tables.counts
        self._messages = sum(count for count, _ in self._depth.values())
        self._bytes = sum(size for _, size in self._depth.values())
        self._cost = self._bytes + sum(_cost(route) * count for route, (count, _) in self._depth.items())
        self._writer = Worker("relay-write")
        # In memory there is one connection, so both lanes use the same thread.
        self._reader = self._writer if path is None else Worker("relay-read")
        self._writes = Lane(self._writer, self._commit, self._settle, _weight, lambda: self._tables.group_bytes)
        # Reads of one group are in memory together: what they may bring is bounded as one large answer is.
        self._reads = Lane(
            self._reader, self._read, self._answer, lambda read: read.weight, lambda: settings.relay_batch_bytes
        )

    # The six methods

    async def put(self, route: str, payload: bytes) -> None:
        """Store one message; returns once it is on disk. Raises QueueFull or StoreFault: nothing is stored."""
        self._admit(route, len(payload))
        future: asyncio.Future[int] = self._loop.create_future()
        self._writes.add(_Request(PutRow(route, payload, time.time_ns() // 1_000_000), future))
        await future

    async def head(self, route: str, limit: int, max_bytes: int) -> list[Message]:
        """The first messages of a route, in order, without removing them. Raises StoreFault.

        At most `limit`, and at most `max_bytes` of payload (the first may exceed).
        """
        depth = self._depth.get(route)
        if depth is None:
            return []
        future: asyncio.Future[list[StoredRow]] = self._loop.create_future()
        self._reads.add(_Read(route, limit, max_bytes, min(depth[1], max_bytes), future))
        return [Message(row.payload, row.ts, make_token(route, row.seq, row.secret)) for row in await future]

    async def ack(self, route: str, tokens: Sequence[str]) -> int:
        """Delete the messages of these tokens, all or none; returns how many were still there.

        Durable when it returns. Raises ForeignAck when one token is not of this route, StoreFault.
        """
        parsed = [parse_token(route, token) for token in tokens]
        future: asyncio.Future[int] = self._loop.create_future()
        self._writes.add(_Request(AckRow(route, parsed), future))
        return await future

    async def healthy(self) -> bool:
        """True when the last commit worked; after a failed one this tries another."""
        if not self._tables.healthy:
            await self._writer.run(lambda: self._tables.commit((), ()))
        return self._tables.healthy

    def stats(self) -> Stats:
        """Counts of what waits, without touching the disk."""
        return Stats(self._messages, self._bytes, len(self._depth))

    async def close(self) -> None:
        """Finish what is under way and close the file."""
        await self._writes.drained()
        await self._reads.drained()
        await self._writer.run(self._tables.close)
        self._writer.close()
        if self._reader is not self._writer:
            self._reader.close()

    # Caps

    def _admit(self, route: str, size: int) -> None:
        settings = self._settings
        count, used = self._depth.get(route, (0, 0))
        if count >= settings.relay_queue_max_messages:
            raise QueueFull(f"the recipient has {count} messages waiting, the most that this relay keeps for one")
        if used + size > settings.relay_queue_max_bytes:
            raise QueueFull(
                f"the recipient has {used} bytes waiting; {size} more would pass the "
                f"{settings.relay_queue_max_bytes} that this relay keeps for one"
            )
        if self._cost + size + _cost(route) > settings.relay_max_bytes:
            raise QueueFull(f"the relay holds {self._cost} bytes, and may hold {settings.relay_max_bytes}")
        self._count(route, 1, size)

    def _count(self, route: str, messages: int, size: int) -> None:
        entry = self._depth.setdefault(route, [0, 0])
        entry[0] += messages
        entry[1] += size
        if entry[0] == 0:
            del self._depth[route]
        self._messages += messages
        self._bytes += size
        self._cost += size + messages * _cost(route)

    # On the threads

    def _commit(self, group: Sequence[_Request]) -> Committed:
        puts = [request.row for request in group if isinstance(request.row, PutRow)]
        acks = [request.row for request in group if isinstance(request.row, AckRow)]
        return self._tables.commit(puts, acks)

    def _read(self, group: Sequence[_Read]) -> list[list[StoredRow] | StoreFault]:
        found: list[list[StoredRow] | StoreFault] = []
        for read in group:
            try:
                found.append(self._tables.read(read.route, read.limit, read.max_bytes))
            except StoreFault as exc:
                found.append(exc)
        return found

    # Back on the loop

    def _settle(self, group: Sequence[_Request], outcome: Committed | BaseException) -> None:
        if isinstance(outcome, Committed):
            put_fault, ack_fault, freed = outcome.put_fault, outcome.ack_fault, iter(outcome.freed)
            self._on_commit(outcome.seconds, len(group))
        else:  # a defect: the thread raised. The requests must not hang, the loop reports it.
            put_fault = ack_fault = StoreFault(f"the relay failed: {outcome!r}")
            freed = iter(())
        arrived = set()
        for request in group:
            row, future = request.row, request.future
            if isinstance(row, PutRow):
                if put_fault is not None:
                    self._count(row.route, -1, -len(row.payload))
                    _fail(future, put_fault)
                else:
                    arrived.add(row.route)
                    _resolve(future, 1)
            elif ack_fault is not None:
                _fail(future, ack_fault)
            else:
                sizes = next(freed)
                if sizes is None:
                    _fail(future, _foreign())
                else:
                    if sizes:
                        self._count(row.route, -len(sizes), -sum(sizes))
                    _resolve(future, len(sizes))
        if arrived:
            self._on_arrival(arrived)
        if isinstance(outcome, BaseException):
            raise outcome

    def _answer(self, group: Sequence[_Read], outcome: list[list[StoredRow] | StoreFault] | BaseException) -> None:
        if isinstance(outcome, BaseException):
            for read in group:
                _fail(read.future, StoreFault(f"the relay failed: {outcome!r}"))
            raise outcome
        for read, found in zip(group, outcome, strict=True):
            if isinstance(found, StoreFault):
                _fail(read.future, found)
            elif not read.future.done():
                read.future.set_result(found)


def make_token(route: str, seq: int, secret: str) -> str:
    """The ack token: route, NUL, 20-digit sequence, an unguessable end."""
    return f"{route}\0{seq:0{SEQ_DIGITS}d}{secret}"


def parse_token(route: str, token: str) -> tuple[int, str]:
    """(sequence, secret) of a token of this route. Raises ForeignAck for any other text."""
    prefix = route + "\0"
    digits = token[len(prefix) : len(prefix) + SEQ_DIGITS]
    if not token.startswith(prefix) or len(digits) != SEQ_DIGITS or not (digits.isascii() and digits.isdigit()):
        raise _foreign()
    return int(digits), token[len(prefix) + SEQ_DIGITS :]


def _foreign() -> ForeignAck:
    return ForeignAck("an ack is not a token of this recipient: nothing was acknowledged")


def _cost(route: str) -> int:
    return ROW_BYTES + len(route)


def _weight(request: _Request) -> int:
    row = request.row
    return len(row.payload) if isinstance(row, PutRow) else ROW_BYTES * len(row.tokens)


def _resolve(future: "asyncio.Future[int]", value: int) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: "asyncio.Future[int] | asyncio.Future[list[StoredRow]]", fault: InterlinkError) -> None:
    if not future.done():
        future.set_exception(type(fault)(str(fault)))  # one of its own: a shared one would collect tracebacks
