"""A relay that misbehaves: an HTTP proxy of the lab's own before the real relay, which keeps what it takes.

It loses nothing that was answered with 202 by itself, so whatever is missing in the end is the product's fault.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from interlink_lab.wire import Signer, send_body

MODES = (
    "up", "duplicate", "reorder", "delay", "forge", "replay", "429", "500", "lose-ack", "lose-answer", "garbage",
)  # fmt: skip
HEAD_MAX = 64 * 1024
KEPT = 16  # payloads that `replay` sends again
TIMEOUT_S = 30.0


class Message(NamedTuple):
    """One request or answer, whole."""

    first: str
    headers: list[tuple[str, str]]
    body: bytes

    def encode(self) -> bytes:
        head = [self.first, *(f"{k}: {v}" for k, v in self.headers if k.lower() != "content-length")]
        return "\r\n".join([*head, f"content-length: {len(self.body)}", "", ""]).encode("latin-1") + self.body

    @property
    def path(self) -> str:
        """Of a request, without its query."""
        return self.first.split(" ")[1].partition("?")[0]

    @property
    def status(self) -> int:
        """Of an answer."""
        return int(self.first.split(" ")[1])


async def read_message(reader: asyncio.StreamReader) -> Message | None:
    """The next request or answer; None at the end. ValueError for what this small proxy does not speak."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *rows = head[:-4].decode("latin-1").split("\r\n")
    headers = [(k.strip(), v.strip()) for k, _, v in (row.partition(":") for row in rows)]
    found = {k.lower(): v for k, v in headers}
    if "transfer-encoding" in found:
        raise ValueError("chunked bodies are not spoken here")
    return Message(first, headers, await reader.readexactly(int(found.get("content-length", "0"))))


class Rogue:
    """One proxy. `set(mode)` changes how it behaves; each deed is an event `rogue` with `did`.

    duplicate: each message is sent to the relay twice; replay: so are some older ones; reorder: messages of one
    answer come backwards; delay: each request waits `delay_s`; forge: messages of an unknown key and with a broken
    signature are put in; 429, 500: every `every`th request gets that; lose-ack: acknowledgements do not reach the
    relay; lose-answer: answers to sends and acknowledgements are lost; garbage: answers are no JSON.
    """

    def __init__(self, emit: Callable[..., None]) -> None:
        self._emit = emit
        self._target = ("", 0)
        self._mode = "up"
        self._delay_s = 0.2
        self._every = 1
        self._count = 0
        self._forged = 0
        self._broken = False
        self._sent: deque[bytes] = deque(maxlen=KEPT)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._stranger = Signer.fresh()

    async def open(self, bind: str, target: str) -> str:
        """Listen on the host of `bind` (host:port); the address that was taken. `target`: the relay's."""
        host, _, port = target.rpartition(":")
        self._target = ("127.0.0.1" if host in ("0.0.0.0", "") else host, int(port))
        self._server = await asyncio.start_server(self._serve, bind.rpartition(":")[0], 0, limit=HEAD_MAX)
        name = self._server.sockets[0].getsockname()
        return f"{name[0]}:{name[1]}"

    def set(self, mode: str, delay_s: float = 0.2, every: int = 1) -> None:
        """ValueError for an unknown mode. `every`: one in so many requests is treated so."""
        if mode not in MODES:
            raise ValueError(f"no rogue mode {mode!r}: one of {', '.join(MODES)}")
        self._mode, self._delay_s, self._every, self._count = mode, delay_s, max(1, every), 0

    def close(self) -> None:
        """Stop listening and end every connection."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.close()

    def _did(self, what: str, request: Message) -> None:
        self._emit("rogue", "rogue", did=what, path=request.path)

    def _due(self) -> bool:
        self._count += 1
        return self._count % self._every == 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        there: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            while (request := await read_message(reader)) is not None:
                early = await self._before(request)
                if early is not None:
                    writer.write(early.encode())
                    await writer.drain()
                    continue
                if there is None:
                    there = await asyncio.open_connection(*self._target, limit=HEAD_MAX)
                    self._writers.add(there[1])
                if self._mode == "lose-ack" and request.path == "/ack" and self._due():
                    self._did("lose-ack", request)
                    return  # not passed on, and no answer
                there[1].write(request.encode())
                await there[1].drain()
                answer = await read_message(there[0])
                if answer is None:
                    return  # the relay broke off: so do we
                self._broken = False
                after = await self._after(request, answer)
                if after is None:
                    return
                writer.write(after.encode())
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as exc:
            if not self._broken:  # told once, until the relay answers again
                self._emit("rogue", "rogue.broken", error=f"{type(exc).__name__}: {exc}"[:200])
            self._broken = True
        finally:
            for each in (writer, *(there[1:] if there else ())):
                self._writers.discard(each)
                each.close()

    async def _before(self, request: Message) -> Message | None:
        """An answer in place of the relay's, or None."""
        if self._mode in ("429", "500") and self._due():
            self._did(self._mode, request)
            body = json.dumps({"error": "the lab says so"}).encode()
            headers = [("content-type", "application/json")]
            if self._mode == "429":
                return Message("HTTP/1.1 429 Too Many Requests", [*headers, ("retry-after", "1")], body)
            return Message("HTTP/1.1 500 Internal Server Error", headers, body)
        if self._mode == "delay" and self._due():
            self._did("delay", request)
            await asyncio.sleep(self._delay_s)
        return None

    async def _after(self, request: Message, answer: Message) -> Message | None:
        """The relay's answer, maybe changed; None: the connection breaks in its place."""
        mode, path = self._mode, request.path
        if path == "/send" and answer.status == 202:
            await self._sent_one(mode, request)
        if mode == "lose-answer" and path in ("/send", "/ack") and self._due():
            self._did(mode, request)
            return None
        if mode == "garbage" and path in ("/recv", "/roster") and self._due():
            self._did(mode, request)
            return answer._replace(body=b"<html>bad gateway</html>")
        if mode == "reorder" and path == "/recv" and answer.status == 200:
            value = json.loads(answer.body)
            if len(value.get("messages", ())) > 1:
                self._did(mode, request)
                value["messages"].reverse()
                return answer._replace(body=json.dumps(value).encode())
        return answer

    async def _sent_one(self, mode: str, request: Message) -> None:
        if mode == "duplicate" and self._due():
            self._did(mode, request)
            await self._inject(request.body)
        elif mode == "replay" and self._sent and self._due():
            self._did(mode, request)
            for body in list(self._sent):
                await self._inject(body)
        elif mode == "forge" and self._due():
            self._did(mode, request)
            for body in self._forgeries(request.body):
                await self._inject(body)
        self._sent.append(request.body)

    def _forgeries(self, body: bytes) -> list[bytes]:
        """One of a stranger with a good signature, one in a friend's name with a signature that does not hold."""
        value: dict[str, Any] = json.loads(body)
        payload = value["payload"]
        self._forged += 1
        text = f"[[m:forged-{self._forged}]] do as I say"
        stranger = self._stranger.message(payload["to"], text)
        friend = {**payload, "text": text, "msg_id": stranger["msg_id"]}
        return [send_body(value["to"], stranger), send_body(value["to"], friend)]

    async def _inject(self, body: bytes) -> None:
        """A send of our own to the relay, on a connection of its own; its refusal is the relay's right."""
        reader, writer = await asyncio.open_connection(*self._target, limit=HEAD_MAX)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                headers = [("host", "relay"), ("content-type", "application/json"), ("connection", "close")]
                writer.write(Message("POST /send HTTP/1.1", headers, body).encode())
                await writer.drain()
                answer = await read_message(reader)
            if answer is None or answer.status != 202:
                said = "nothing" if answer is None else answer.status
                self._emit("rogue", "rogue.refused", answer=said)
        finally:
            writer.close()
