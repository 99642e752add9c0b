"""Calls to another process of the lab, over two pipes of JSON lines: driver to node, node to host fixture.

`{"id": 1, "op": "kill", "args": {...}}` is answered by `{"id": 1, "ok": ...}` or `{"id": 1, "error": "..."}`;
`{"event": {...}}` comes at any time. Calls run side by side, each in a task of its own.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from anyio.abc import Process

from interlink_lab.history import Emitter, Event

ENDED = "has ended"
"""In what a call says whose process is gone."""

LINE_MAX = 64 * 1024 * 1024


class RemoteFailed(Exception):
    """The other side could not do it; the text says why. Also for a side that is gone."""


class Remote:
    """The calling end. `send` writes one line; the owner feeds every line that comes back."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]], on_event: Callable[[Event], None]) -> None:
        self._send = send
        self._on_event = on_event
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._lost: str | None = None

    async def call(self, op: str, /, **args: Any) -> Any:
        """Its answer. RemoteFailed."""
        if self._lost is not None:
            raise RemoteFailed(f"{op}: {self._lost}")
        self._number += 1
        number = self._number
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send(json.dumps({"id": number, "op": op, "args": args}).encode() + b"\n")
            return await future
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as exc:
            raise RemoteFailed(f"{op}: the other side is gone ({exc})") from exc
        finally:
            self._waiting.pop(number, None)

    def feed(self, line: bytes) -> None:
        """One line of the other side."""
        message = json.loads(line)
        if "event" in message:
            self._on_event(message["event"])
            return
        future = self._waiting.get(message["id"])
        if future is None or future.done():
            return
        if "error" in message:
            future.set_exception(RemoteFailed(message["error"]))
        else:
            future.set_result(message.get("ok"))

    def lost(self, why: str) -> None:
        """The other side has ended: whoever waits is told."""
        self._lost = why
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(RemoteFailed(why))


def to_process(process: Process, on_event: Callable[[Event], None]) -> Remote:
    """The calling end for a child that serves on its pipes; `read_process` feeds it."""

    async def send(line: bytes) -> None:
        assert process.stdin is not None
        await process.stdin.send(line)

    return Remote(send, on_event)


async def read_process(process: Process, remote: Remote, who: str) -> int | None:
    """Feed what the child says until it ends; whoever waits is then told. Its exit code."""
    assert process.stdout is not None
    rest = b""
    try:
        async for chunk in process.stdout:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                remote.feed(line)
    except anyio.ClosedResourceError:
        pass  # closed by us
    code = await process.wait()
    remote.lost(f"{who} {ENDED} ({code})")
    return code


class Serving:
    """The answering end on this process's stdin and stdout: a call `op` runs the method `do_op`."""

    def __init__(self) -> None:
        self._emitter = Emitter()
        self._out = os.dup(1)
        os.dup2(2, 1)  # a stray print must not end up among the lines
        self.group: anyio.abc.TaskGroup

    def emit(self, party: str, kind: str, /, **data: Any) -> None:
        """Report an event that happened now."""
        self.pass_on(self._emitter.make(party, kind, **data))

    def pass_on(self, event: Event) -> None:
        """Report an event of another process as it is."""
        self._write({"event": event})

    def _write(self, message: dict[str, Any]) -> None:
        data = json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._out, view) :]
            except BrokenPipeError:
                return  # the driver is gone: our stdin ends too, and with it this process

    async def serve(self) -> None:
        """Answer calls until stdin ends, then cancel what still runs."""
        reader = asyncio.StreamReader(limit=LINE_MAX)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        async with anyio.create_task_group() as self.group:
            await self.begin()
            while line := await reader.readline():
                message = json.loads(line)
                self.group.start_soon(self._answer, message["id"], message["op"], message["args"])
            with anyio.CancelScope(shield=True):
                await self.end()
            self.group.cancel_scope.cancel()

    async def begin(self) -> None:
        """Called before the first call is taken."""

    async def end(self) -> None:
        """Called once stdin has ended."""

    async def _answer(self, number: int, op: str, args: dict[str, Any]) -> None:
        method = getattr(self, "do_" + op, None)
        try:
            if method is None:
                raise RemoteFailed(f"no operation {op!r}")
            self._write({"id": number, "ok": await method(**args)})
        except Exception as exc:  # noqa: BLE001  whatever it is, the caller has to know, or it waits for ever
            self._write({"id": number, "error": f"{op}: {type(exc).__name__}: {exc}"})
