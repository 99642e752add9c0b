"""Bodies in, answers out: the few HTTP things that the relay's endpoints share. Raw ASGI, for speed."""

import asyncio

import msgspec
from starlette.types import Receive, Scope, Send

from interlink.errors import InterlinkError
from interlink.settings import Settings

Headers = list[tuple[bytes, bytes]]

JSON: tuple[bytes, bytes] = (b"content-type", b"application/json")
SMALL_BYTES = 1 << 16
WHOLE = "interlink.whole"  # in the scope of a request of which nothing more will come


class Refused(InterlinkError):
    """A request that gets an error answer: `status`, a text for a person, maybe Retry-After in seconds."""

    def __init__(self, status: int, text: str, *, retry_after_s: float | None = None, close: bool = False) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after_s = retry_after_s
        self.close = close
        self.headers: Headers = []


class ClientGone(Exception):
    """The client hung up before its request was complete: nobody is left to be told."""


async def answer(send: Send, status: int, body: bytes, headers: Headers | None = None) -> None:
    """One whole answer, JSON unless `headers` says otherwise."""
    head = [(b"content-length", b"%d" % len(body)), *(headers or (JSON,))]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def refuse(receive: Receive, send: Send, problem: Refused, drain_bytes: int, linger_s: float) -> None:
    """The answer to a refused request: `{"error": text}`.

    Where the connection is closed on a body that is still coming, some of it (`drain_bytes`, `linger_s`) is
    thrown away first: a reset would take the answer from the client.
    """
    body = msgspec.json.encode({"error": str(problem)})
    headers: Headers = [JSON, (b"content-length", b"%d" % len(body)), *problem.headers]
    if problem.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % max(1, round(problem.retry_after_s))))
    if problem.close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": problem.close})
    if problem.close:
        try:
            async with asyncio.timeout(linger_s):
                left = drain_bytes
                while left > 0:
                    message = await receive()
                    left -= len(message.get("body", b""))
                    if message["type"] == "http.disconnect" or not message.get("more_body"):
                        break
        except TimeoutError:
            pass  # the answer is out; a sender that goes on sending is cut off
        await send({"type": "http.response.body", "body": b""})


class Bodies:
    """Reads request bodies within a limit each, and a limit on what all large ones hold together."""

    def __init__(self, settings: Settings) -> None:
        self._free = settings.relay_bodies_max_bytes
        self._timeout_s = settings.relay_body_timeout_s
        self._retry_after_s = settings.retry_after_s

    async def read(self, scope: Scope, receive: Receive, limit: int) -> bytes:
        """The whole body. Raises ClientGone, or Refused: 413 beyond `limit`, 408 when slow, 503 when too many.

        All but a small one that came in one piece count as held until `release(scope)`.
        """
        declared = next((int(value) for name, value in scope["headers"] if name == b"content-length"), None)
        if declared is not None and declared > limit:
            raise _too_large(limit)
        if WHOLE in scope:  # no timer: it costs a tenth of a small request
            return await self._read(scope, receive, limit, declared)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._read(scope, receive, limit, declared)
        except TimeoutError as exc:
            text = f"the body was not complete after {self._timeout_s:g} s"
            raise Refused(408, text, close=True) from exc

    def release(self, scope: Scope) -> None:
        """The request is done with its body."""
        self._free += scope.pop("interlink.held", 0)

    def _hold(self, scope: Scope, size: int) -> None:
        if size > self._free:
            text = "the relay holds as many large requests as it may"
            raise Refused(503, text, retry_after_s=self._retry_after_s, close=True)
        self._free -= size
        scope["interlink.held"] = size

    async def _read(self, scope: Scope, receive: Receive, limit: int, declared: int | None) -> bytes:
        parts: list[bytes] = []
        size = 0
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
            if len(parts) == 1 and (more or size > SMALL_BYTES):
                self._hold(scope, limit if declared is None else declared)
            if size > limit:
                raise _too_large(limit)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(limit: int) -> Refused:
    return Refused(413, f"the request is larger than the {limit} bytes that this relay takes", close=True)
