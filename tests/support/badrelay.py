"""A fake relay that misbehaves as scripted: raw asyncio on 127.0.0.1, in the test's own process.

    async with BadRelay(recv=[one("hi"), hold()], ack=status(422)) as fake:
        ... Relays([fake.url], settings) ...
        await fake.seen("/ack", 1)

Each path has one way to answer, or a list of them whose last one stays. Paths without one behave.
"""

import asyncio
import contextlib
import functools
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

HANG_GUARD_S = 60.0


class Seen(NamedTuple):
    """A request as the fake got it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    at: float


Way = Callable[[Seen, asyncio.StreamWriter], Awaitable[None]]


def raw(data: bytes) -> Way:
    """These bytes, then the end of the connection."""

    async def way(_seen: Seen, out: asyncio.StreamWriter) -> None:
        out.write(data)
        await out.drain()
        out.close()

    return way


def status(code: int, body: bytes = b"", **headers: str) -> Way:
    """A whole answer; header names with _ for -."""
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    head = "\r\n".join([f"HTTP/1.1 {code} X", f"content-length: {len(body)}", *lines])

    async def way(_seen: Seen, out: asyncio.StreamWriter) -> None:
        out.write(head.encode("latin-1") + b"\r\n\r\n" + body)
        await out.drain()

    return way


def answer(obj: object, **headers: str) -> Way:
    """A JSON answer with status 200."""
    return status(200, json.dumps(obj).encode(), content_type="application/json", **headers)


def envelope(payload: object, ack: object) -> dict[str, object]:
    """One message of the list form."""
    return {"envelope": {"payload": payload, "ts": 1}, "ack": ack}


def many(*entries: object) -> Way:
    """An answer to a poll in the list form."""
    return answer({"status": "messages", "messages": list(entries)})


def one(payload: object, ack: str = "a1") -> Way:
    """An answer to a poll in the single form."""
    return answer({"status": "message", **envelope(payload, ack)})


def nothing() -> Way:
    """`timeout`, at once and whatever was asked for."""
    return answer({"status": "timeout"})


def hold() -> Way:
    """A good long poll without a message."""

    async def way(seen: Seen, out: asyncio.StreamWriter) -> None:
        await asyncio.sleep(int(seen.query.get("timeout_ms", "25000")) / 1000)
        await nothing()(seen, out)

    return way


def silent() -> Way:
    """The connection stays open, and not one byte comes."""

    async def way(_seen: Seen, _out: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    return way


def reset(after: bytes = b"") -> Way:
    """Some bytes, then a connection reset."""

    async def way(_seen: Seen, out: asyncio.StreamWriter) -> None:
        out.write(after)
        await out.drain()
        out.transport.abort()

    return way


def drip(head: bytes, piece: bytes, every_s: float = 0.01) -> Way:
    """A beginning, then one piece after the other without end."""

    async def way(_seen: Seen, out: asyncio.StreamWriter) -> None:
        out.write(head)
        while True:
            out.write(piece)
            await out.drain()
            await asyncio.sleep(every_s)

    return way


def gated(gate: asyncio.Event, way: Way) -> Way:
    """The same, once the gate is open."""

    async def later(seen: Seen, out: asyncio.StreamWriter) -> None:
        await gate.wait()
        await way(seen, out)

    return later


class BadRelay:
    """The fake. `requests` holds what it got, in order; `connections` counts those that it took."""

    def __init__(self, **ways: Way | list[Way]) -> None:
        self.requests: list[Seen] = []
        self.connections = 0
        self.url = ""
        self._ways: dict[str, list[Way]] = {
            "/recv": [hold()],
            "/ack": [status(200)],
            "/send": [status(202)],
            "/announce": [status(202)],
            "/unregister": [status(202)],
            "/roster": [answer({"roster": []})],
        }
        for name, way in ways.items():
            self.set(name, way)
        self._server: asyncio.Server | None = None
        self._port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def set(self, name: str, way: Way | list[Way]) -> None:
        """From now on `/name` answers so."""
        self._ways["/" + name] = list(way) if isinstance(way, list) else [way]

    async def start(self) -> None:
        """Listen; on the same port as before, if there was one."""
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"

    async def stop(self) -> None:
        """Refuse connections from now on, and cut those that there are."""
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> "BadRelay":
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    def got(self, path: str) -> list[Seen]:
        """The requests for a path."""
        return [seen for seen in self.requests if seen.path == path]

    async def seen(self, path: str, count: int = 1) -> list[Seen]:
        """Wait until a path was asked for so often."""
        await until(lambda: len(self.got(path)) >= count)
        return self.got(path)

    async def _connection(self, source: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while not out.is_closing():
                if (first := await source.readexactly(1)) == b"\x16":  # TLS: any plain server refuses it
                    await status(400)(Seen("", "", {}, {}, None, 0), out)
                    return
                seen = await _read(source, first)
                self.requests.append(seen)
                ways = self._ways.get(seen.path, [status(404)])
                await (ways.pop(0) if len(ways) > 1 else ways[0])(seen, out)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            return  # the client has gone, or the test is over
        finally:
            self._tasks.discard(task)
            out.transport.abort()


async def _read(source: asyncio.StreamReader, first: bytes) -> Seen:
    head = (first + await source.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _version = head[0].split(" ")
    headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
    body = await source.readexactly(int(headers.get("content-length", "0")))
    url = urlsplit(target)
    value: Any = None
    with contextlib.suppress(ValueError):
        value = json.loads(body) if body else None
    return Seen(method, url.path, dict(parse_qsl(url.query)), headers, value, time.monotonic())


async def until(condition: Callable[[], object], limit_s: float = HANG_GUARD_S) -> None:
    """Wait until a condition holds. AssertionError when it does not."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        await asyncio.sleep(0.005)


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test that is a coroutine function, run in a loop of its own under a hang guard."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def guarded() -> None:
            async with asyncio.timeout(HANG_GUARD_S):
                await test(*args, **kwargs)

        asyncio.run(guarded())

    return run
