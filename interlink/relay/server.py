"""The relay's HTTP endpoints (B2, B3; wire.md "Relay, HTTP"). Storage is `queue`, the process is `serving`.

| request | answers |
|---|---|
| POST /send {to, payload} | 202 once it is on disk; 413; 429 full; 503 storage failing |
| GET /recv?me=[&timeout_ms=][&max=2..256] | message, messages or timeout; 503 too many polls |
| POST /ack {me, ack} or {me, acks} | 200; 403 and nothing acknowledged when one is foreign |
| POST /announce, /unregister | 202; 400 without a pubkey; 429 roster full |
| GET /roster, /healthz, /metrics | |

An error answer is `{"error": text}`; 429 and 503 carry Retry-After. A payload is any JSON value that every
client of the wire can parse; it is kept and handed out byte for byte.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from interlink import __version__
from interlink.errors import WireError
from interlink.relay.metrics import CONTENT_TYPE, Metrics
from interlink.relay.plain import check_plain
from interlink.relay.queue import ForeignAck, Message, Queue, QueueFull
from interlink.relay.roster import Roster, RosterFull
from interlink.relay.tables import StoreFault
from interlink.relay.waiters import TooManyWaiters, Waiter, Waiters
from interlink.relay.web import Bodies, ClientGone, Refused, answer, refuse
from interlink.settings import TABLE, Settings

MAX_BATCH = 256

Handler = Callable[[Scope, Receive, Send], Awaitable[None]]


class _Send(msgspec.Struct):
    to: str
    payload: msgspec.Raw


class _Ack(msgspec.Struct):
    me: str
    ack: str | None = None
    acks: list[str] | None = None


_send_decoder = msgspec.json.Decoder(_Send)
_ack_decoder = msgspec.json.Decoder(_Ack)
_ACCEPTED = b'{"status":"accepted"}'
_TIMEOUT = b'{"status":"timeout"}'


class Relay:
    """The endpoints over one queue. `token`: shared bearer token, None for an open relay."""

    def __init__(
        self,
        queue: Queue,
        waiters: Waiters,
        roster: Roster,
        metrics: Metrics,
        settings: Settings,
        token: str | None,
    ) -> None:
        self._queue = queue
        self._waiters = waiters
        self._roster = roster
        self._metrics = metrics
        self._settings = settings
        self._expected = None if token is None else b"Bearer " + token.encode("ascii")
        self._bodies = Bodies(settings)
        self._body_limit = settings.message_max_bytes + settings.relay_body_room_bytes
        self._poll_limit_ms = int(TABLE["poll_timeout_ms"][1])
        for name, text, read in (
            ("queued_messages", "messages waiting", lambda: queue.stats().messages),
            ("queued_bytes", "payload bytes waiting", lambda: queue.stats().bytes),
            ("recipients", "recipients with messages waiting", lambda: queue.stats().routes),
            ("waiters", "long polls waiting", lambda: len(waiters)),
            ("roster", "sessions in the roster", lambda: len(roster)),
        ):
            metrics.gauge(name, text, read)

    def app(self) -> ASGIApp:
        """The ASGI application: Starlette, and a short cut for the requests that come by the thousand."""
        endpoints = {
            ("POST", "/send"): _Endpoint(self, self.send),
            ("GET", "/recv"): _Endpoint(self, self.recv),
            ("POST", "/ack"): _Endpoint(self, self.ack),
            ("POST", "/announce"): _Endpoint(self, self.announce),
            ("POST", "/unregister"): _Endpoint(self, self.unregister),
            ("GET", "/roster"): _Endpoint(self, self.roster),
            ("GET", "/metrics"): _Endpoint(self, self.metrics),
            ("GET", "/healthz"): _Endpoint(self, self.healthz, is_open=True),
        }
        routes = [Route(path, endpoint, methods=[method]) for (method, path), endpoint in endpoints.items()]
        rest = Starlette(routes=routes, exception_handlers={HTTPException: _plain_error})

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            # Routing and its layers of error handling cost a fifth of a send.
            endpoint = endpoints.get((scope["method"], scope["path"]), rest)
            await endpoint(scope, receive, send)

        return app

    # Messages

    async def send(self, scope: Scope, receive: Receive, send: Send) -> None:
        """POST /send: one message for one recipient, stored before the answer."""
        body = await self._bodies.read(scope, receive, self._body_limit)
        try:
            request = _send_decoder.decode(body)
            payload = bytes(request.payload)
            check_plain(payload)
        except (msgspec.MsgspecError, RecursionError, WireError) as exc:
            raise Refused(400, f"not a message: {exc}; expected {{to, payload}}") from exc
        self._check_route(request.to, "to")
        if len(payload) > self._settings.message_max_bytes:
            text = (
                f"the payload has {len(payload)} bytes, more than the {self._settings.message_max_bytes} allowed"
            )
            raise Refused(413, text)
        try:
            await self._queue.put(request.to, payload)
        except QueueFull as exc:
            raise self._later(429, exc) from exc
        self._metrics.sent.inc()
        await answer(send, 202, _ACCEPTED)

    async def recv(self, scope: Scope, receive: Receive, send: Send) -> None:
        """GET /recv: the head of a queue, waiting up to `timeout_ms` for one. Removes nothing."""
        route, timeout_s, batch = self._poll_arguments(scope["query_string"])
        found = await self._wait_for_messages(receive, route, timeout_s, batch or 1)
        if not found:
            await answer(send, 200, _TIMEOUT)
            return
        self._metrics.delivered.inc(len(found))
        if batch is None:
            await answer(send, 200, b'{"status":"message",%b}' % _fields(found[0]))
        else:
            items = b",".join(b"{%b}" % _fields(message) for message in found)
            await answer(send, 200, b'{"status":"messages","messages":[%b]}' % items)

    async def ack(self, scope: Scope, receive: Receive, send: Send) -> None:
        """POST /ack: delete one or several messages of `me`, all or none."""
        body = await self._bodies.read(scope, receive, self._body_limit)
        try:
            request = _ack_decoder.decode(body)
        except (msgspec.MsgspecError, RecursionError) as exc:
            raise Refused(400, f"not an acknowledgement: {exc}; expected {{me, ack}} or {{me, acks}}") from exc
        self._check_route(request.me, "me")
        if (request.ack is None) == (request.acks is None):
            raise Refused(400, "not an acknowledgement: give `ack` or `acks`, one of them")
        tokens = [request.ack] if request.ack is not None else request.acks or []
        if len(tokens) > self._settings.relay_acks_max:
            raise Refused(400, f"{len(tokens)} acks in one request, the most is {self._settings.relay_acks_max}")
        try:
            count = await self._queue.ack(request.me, tokens)
        except ForeignAck as exc:
            raise Refused(403, str(exc)) from exc
        self._metrics.acked.inc(count)
        await answer(send, 200, b'{"status":"ok","acknowledged":%d}' % count)

    async def _wait_for_messages(
        self, receive: Receive, route: str, timeout_s: float, limit: int
    ) -> list[Message]:
        # The waiter is there before the first look, so that no arrival falls between the two.
        try:
            waiter = self._waiters.add(route)
        except TooManyWaiters as exc:
            if found := await self._look(route, limit):
                return found
            raise self._later(503, exc) from exc
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        watch: asyncio.Task[None] | None = None
        try:
            while True:
                if found := await self._look(route, limit):
                    return found
                left = deadline - loop.time()
                if left <= 0 or self._waiters.stopped:
                    return []
                if watch is None:
                    watch = asyncio.create_task(_hung_up(receive, waiter))
                await waiter.wait(left)
                if watch.done():
                    raise ClientGone
        finally:
            self._waiters.remove(waiter)
            if watch is not None:
                watch.cancel()

    async def _look(self, route: str, limit: int) -> list[Message]:
        return await self._queue.head(route, limit, self._settings.relay_batch_bytes)

    # Presence

    async def announce(self, scope: Scope, receive: Receive, send: Send) -> None:
        """POST /announce: keep or refresh a session in the roster."""
        body = await self._bodies.read(scope, receive, self._settings.relay_announce_max_bytes)
        try:
            self._roster.announce(body)
        except WireError as exc:
            raise Refused(400, str(exc)) from exc
        except RosterFull as exc:
            raise self._later(429, exc) from exc
        self._metrics.announced.inc()
        await answer(send, 202, _ACCEPTED)

    async def unregister(self, scope: Scope, receive: Receive, send: Send) -> None:
        """POST /unregister: a session is gone."""
        body = await self._bodies.read(scope, receive, self._settings.relay_announce_max_bytes)
        try:
            self._roster.unregister(body)
        except WireError as exc:
            raise Refused(400, str(exc)) from exc
        await answer(send, 202, _ACCEPTED)

    async def roster(self, scope: Scope, receive: Receive, send: Send) -> None:
        """GET /roster: all announcements with their age."""
        await answer(send, 200, self._roster.answer())

    # Operation

    async def metrics(self, scope: Scope, receive: Receive, send: Send) -> None:
        """GET /metrics."""
        await answer(send, 200, self._metrics.text(), [(b"content-type", CONTENT_TYPE)])

    async def healthz(self, scope: Scope, receive: Receive, send: Send) -> None:
        """GET /healthz: 200 while commits work; needs no token and tells no counts."""
        if not await self._queue.healthy():
            raise self._later(503, StoreFault("the storage takes no commits"))
        await answer(send, 200, msgspec.json.encode({"status": "ok", "version": __version__}))

    # Shared by the endpoints

    async def guard(self, handler: Handler, is_open: bool, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a handler; what it refuses becomes an error answer."""
        try:
            if not is_open:
                self._check_token(scope)
            await handler(scope, receive, send)
        except ClientGone:
            return
        except StoreFault as exc:
            await self._refuse(receive, send, self._later(503, exc))
        except Refused as exc:
            await self._refuse(receive, send, exc)
        finally:
            self._bodies.release(scope)

    async def _refuse(self, receive: Receive, send: Send, problem: Refused) -> None:
        self._metrics.refused.labels(problem.status).inc()
        await refuse(receive, send, problem, self._body_limit, self._settings.relay_linger_s)

    def _later(self, status: int, exc: Exception) -> Refused:
        return Refused(status, f"{exc}; try again later", retry_after_s=self._settings.retry_after_s)

    def _check_token(self, scope: Scope) -> None:
        if self._expected is None:
            return
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, token = given.partition(b" ")
        if not hmac.compare_digest(scheme.capitalize() + b" " + token.strip(), self._expected):
            text = "this relay needs its bearer token: give the file that holds it to the client"
            problem = Refused(401, text, close=True)
            problem.headers.append((b"www-authenticate", b"Bearer"))
            raise problem

    def _check_route(self, route: str, name: str) -> None:
        if not route:
            raise Refused(400, f"`{name}` is empty: a recipient is KEY#SESSION")
        if len(route.encode()) > self._settings.relay_route_max_bytes:
            raise Refused(400, f"`{name}` is longer than the {self._settings.relay_route_max_bytes} bytes allowed")
        if "\0" in route:
            raise Refused(400, f"`{name}` holds a NUL character")

    def _poll_arguments(self, query: bytes) -> tuple[str, float, int | None]:
        """(route, seconds to wait, batch size or None)."""
        try:
            fields = dict(
                parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=16)
            )
        except ValueError as exc:
            raise Refused(400, "the query is not valid: percent-encode `me` as UTF-8") from exc
        route = fields.get("me", "")
        self._check_route(route, "me")
        timeout_ms = _number(fields, "timeout_ms", 0, self._poll_limit_ms)
        batch = _number(fields, "max", 2, MAX_BATCH)
        return route, (self._settings.poll_timeout_ms if timeout_ms is None else timeout_ms) / 1000, batch


class _Endpoint:
    """A handler as an ASGI application of its own: no request or response objects on the hot paths."""

    def __init__(self, relay: Relay, handler: Handler, is_open: bool = False) -> None:
        self._relay = relay
        self._handler = handler
        self._is_open = is_open
        self.__name__ = handler.__name__ if hasattr(handler, "__name__") else "endpoint"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._relay.guard(self._handler, self._is_open, scope, receive, send)


async def _plain_error(_request: Request, exc: Exception) -> Response:
    """404 and 405 in the form of all other errors."""
    assert isinstance(exc, HTTPException)
    return JSONResponse({"error": exc.detail}, exc.status_code, exc.headers)


async def _hung_up(receive: Receive, waiter: Waiter) -> None:
    """Return when the client is gone, and wake its poll to tell it."""
    while (await receive())["type"] != "http.disconnect":
        pass
    waiter.wake()


def _fields(message: Message) -> bytes:
    token = msgspec.json.encode(message.token)
    return b'"envelope":{"payload":%b,"ts":%d},"ack":%b' % (message.payload, message.ts, token)


def _number(fields: dict[str, str], name: str, low: int, high: int) -> int | None:
    text = fields.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10) or not low <= int(text) <= high:
        raise Refused(400, f"`{name}` must be a whole number from {low} to {high}")
    return int(text)
