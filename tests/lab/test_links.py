"""The lab's TCP proxy: what each mode does to a connection, and that the network is whole again afterwards."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from interlink_lab.node.links import Links

GUARD_S = 60.0  # against hangs, never a measure
SILENCE_S = 0.3  # so long nothing may come; waiting longer could only find more of nothing


class Ground:
    """An echo server, a link to it, and what the link reported."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.heard = b""
        self.links = Links(lambda party, kind, **data: self.events.append({"kind": kind, **data}))
        self.port = 0

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1000):
                self.heard += data
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass  # the link broke it
        finally:
            writer.close()


@asynccontextmanager
async def ground() -> AsyncIterator[Ground]:
    made = Ground()
    server = await asyncio.start_server(made.echo, "127.0.0.1", 0)
    made.port = await made.links.open("l", f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        yield made
    finally:
        made.links.close()
        server.close()


def under(case: Callable[[Ground], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(GUARD_S), ground() as made:
            await case(made)

    asyncio.run(run())


async def says(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: bytes) -> bytes:
    writer.write(text)
    await writer.drain()
    return await reader.readexactly(len(text))


async def silent(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(SILENCE_S):
            return await reader.read(1) == b"never"
    except TimeoutError:
        return True


def test_up_carries_both_ways_and_reports_nothing() -> None:
    async def case(made: Ground) -> None:
        assert await says(*await made.connect(), b"hello") == b"hello"
        assert made.events == []

    under(case)


@pytest.mark.parametrize("mode", ["blackhole", "drop-up"])
def test_what_is_dropped_upward_is_never_heard(mode: str) -> None:
    async def case(made: Ground) -> None:
        await made.links.set("l", mode)
        reader, writer = await made.connect()
        writer.write(b"lost")
        assert await silent(reader)
        assert made.heard == b""
        assert [(e["kind"], e["mode"]) for e in made.events] == [("link.hit", mode)]

    under(case)


def test_dropped_downward_is_heard_and_not_answered() -> None:
    async def case(made: Ground) -> None:
        await made.links.set("l", "drop-down")
        reader, writer = await made.connect()
        writer.write(b"heard")
        assert await silent(reader)
        assert made.heard == b"heard"

    under(case)


@pytest.mark.parametrize("mode", ["blackhole", "drop-up", "drop-down"])
def test_a_connection_with_a_hole_in_it_breaks_when_the_hole_ends(mode: str) -> None:
    async def case(made: Ground) -> None:
        reader, writer = await made.connect()
        assert await says(reader, writer, b"one") == b"one"
        await made.links.set("l", mode)
        writer.write(b"two")
        assert await silent(reader)
        await made.links.set("l", "up")
        with pytest.raises(ConnectionError):
            assert await reader.read(10) == b"", "the stream ends"
            raise ConnectionResetError
        assert await says(*await made.connect(), b"three") == b"three"

    under(case)


def test_reset_breaks_what_is_there_and_each_new_connection() -> None:
    async def case(made: Ground) -> None:
        old = await made.connect()
        assert await says(*old, b"one") == b"one"
        await made.links.set("l", "reset")
        with pytest.raises(ConnectionError):
            await says(*old, b"two")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await says(*await made.connect(), b"three")
        await made.links.set("l", "up")
        assert await says(*await made.connect(), b"four") == b"four"

    under(case)


def test_refused_takes_no_connection_and_keeps_its_port() -> None:
    async def case(made: Ground) -> None:
        await made.links.set("l", "refused")
        with pytest.raises(ConnectionRefusedError):
            await made.connect()
        await made.links.set("l", "up")
        assert await says(*await made.connect(), b"again") == b"again"

    under(case)


def test_slow_delays_each_piece() -> None:
    async def case(made: Ground) -> None:
        await made.links.set("l", "slow", delay_s=0.2)
        loop = asyncio.get_running_loop()
        connection = await made.connect()
        began = loop.time()
        assert await says(*connection, b"slow") == b"slow"
        assert loop.time() - began >= 0.4, "0.2 s in each direction"

    under(case)


def test_an_unknown_mode_is_refused() -> None:
    async def case(made: Ground) -> None:
        with pytest.raises(ValueError, match="no link mode"):
            await made.links.set("l", "sideways")

    under(case)
