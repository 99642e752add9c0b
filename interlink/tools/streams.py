"""The SDK's two streams over lines: every message in passes `frames`, every message out can be written (H17)."""

import asyncio
import contextlib
from pathlib import PurePath

import anyio
import mcp_types as t
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from pydantic import ValidationError

from interlink import log
from interlink.settings import Settings
from interlink.tools import frames
from interlink.tools.stdio import Line, LineReader, LineWriter
from interlink.tools.surface import Closed

# Marks a request whose text had to be cleaned; the SDK hands it to the handler as it is.
CLEANED = object()


class Inbound:
    """The SDK's read stream: messages that passed `frames.read`; the others are answered here."""

    def __init__(self, reader: LineReader, writer: LineWriter, settings: Settings) -> None:
        self._reader = reader
        self._writer = writer
        self._limit = settings.request_line_max_bytes
        self._settle_s = settings.shutdown_settle_s
        self._ready: list[SessionMessage] = []
        self._open: set[str | int] = set()
        self._idle = asyncio.Event()

    def settled(self, ident: str | int) -> None:
        """A request was answered or cancelled."""
        self._open.discard(ident)
        if not self._open:
            self._idle.set()

    async def receive(self) -> SessionMessage | Exception:
        while not self._ready:
            line = await self._reader.next()
            if line is None:
                await self._settle()
                raise anyio.EndOfStream
            for one in self._read(line):
                if isinstance(one, frames.Refusal):
                    log.event("line_refused", code=one.code, bytes=line.size, reason=one.text)
                    self._writer.post(one.line())
                else:
                    message = _message(one)
                    self._note(message)
                    self._ready.append(message)
        return self._ready.pop(0)

    def _read(self, line: Line) -> list[frames.Message | frames.Refusal]:
        if line.tail is None:
            return frames.read(line.head)
        return [*frames.too_long(line.head, line.tail, line.size, self._limit)]

    async def _settle(self) -> None:
        """Calls that came just before the end of stdin get a moment: a host may close it after its last one."""
        if self._open:
            self._idle.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), self._settle_s)
        self._writer.release()

    def _note(self, message: SessionMessage) -> None:
        body = message.message
        if isinstance(body, t.JSONRPCRequest):
            self._open.add(body.id)
        elif isinstance(body, t.JSONRPCNotification) and body.method == "notifications/cancelled":
            ident = (body.params or {}).get("requestId")
            if isinstance(ident, str | int):
                self.settled(ident)

    def __aiter__(self) -> "Inbound":
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        self._reader.stop()

    async def __aenter__(self) -> "Inbound":
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()


def _message(found: frames.Message) -> SessionMessage:
    body = found.body
    kind: type[t.JSONRPCRequest | t.JSONRPCNotification | t.JSONRPCResponse | t.JSONRPCError]
    if "method" in body:
        kind = t.JSONRPCRequest if "id" in body else t.JSONRPCNotification
    else:
        kind = t.JSONRPCResponse if "result" in body else t.JSONRPCError
    try:
        message = kind.model_validate(body)
    except ValidationError:
        # A broken answer of the host's (`frames` let no broken request pass): whoever awaits it must hear of it.
        error = t.ErrorData(code=frames.INVALID_REQUEST, message="the answer is not valid")
        message = t.JSONRPCError(jsonrpc="2.0", id=body["id"], error=error)
    return SessionMessage(message, None if found.valid_text else ServerMessageMetadata(request_context=CLEANED))


class Outbound:
    """The SDK's write stream: what cannot be written as JSON becomes an error answer, never the server's end."""

    def __init__(self, writer: LineWriter, inbound: Inbound) -> None:
        self._writer = writer
        self._inbound = inbound

    async def send(self, item: SessionMessage, /) -> None:
        message = item.message
        if isinstance(message, t.JSONRPCError) and message.error.code == 0:
            # The SDK's word for "an exception that nobody caught", with its text.
            message = _fault(message.id, "interlink failed; its log on stderr says where")
        try:
            data = encode(message)
        except ValueError as exc:
            if not isinstance(message, t.JSONRPCResponse):
                raise
            log.event("answer_unwritable", **failure(exc))
            data = encode(_fault(message.id, "the answer could not be written as JSON"))
        try:
            await self._writer.write(data)
        except OSError:
            raise anyio.BrokenResourceError from None
        finally:
            if isinstance(message, t.JSONRPCResponse | t.JSONRPCError) and message.id is not None:
                self._inbound.settled(message.id)

    async def push(self, message: t.JSONRPCNotification) -> None:
        """Send a notification that is worth nothing later: Closed where it is not on its way."""
        try:
            written = await self._writer.write(encode(message), keep=False)
        except OSError as exc:
            raise Closed(f"the host does not read any more ({exc.strerror or exc})") from None
        if not written:
            raise Closed("the server is ending")

    async def aclose(self) -> None:
        """Nothing to do: the lines that wait are still written."""

    async def __aenter__(self) -> "Outbound":
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()


def _fault(ident: t.RequestId | None, text: str) -> t.JSONRPCError:
    return t.JSONRPCError(jsonrpc="2.0", id=ident, error=t.ErrorData(code=t.INTERNAL_ERROR, message=text))


def encode(message: t.JSONRPCMessage) -> bytes:
    """One line of UTF-8. ValueError for what JSON cannot say."""
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode("utf-8") + b"\n"


def failure(exc: BaseException) -> dict[str, object]:
    """Class, place and text of an exception for one log line."""
    last = exc.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    at = f"{PurePath(last.tb_frame.f_code.co_filename).name}:{last.tb_lineno}" if last else None
    return {"error": type(exc).__name__, "text": str(exc), "at": at}
