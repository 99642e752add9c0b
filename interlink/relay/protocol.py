"""uvicorn's HTTP protocol with bounds that it lacks (size and time of a request's head, a silent start), and with
answers that go out in one piece."""

import asyncio
from typing import cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from interlink.relay.web import WHOLE

HEAD_MAX_BYTES = 1 << 16


class _Joined:
    """A transport that sends two writes of one turn of the loop as one: an answer's head with its body.

    A send costs a system call less, and its client is woken once.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held = b""

    def write(self, data: bytes) -> None:
        if self._held:
            self._held += data
            self.flush()
        elif data:
            self._held = data
            self._loop.call_soon(self.flush)  # where nothing follows in this turn

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def flush(self) -> None:
        """Send what was kept for a second write."""
        if self._held:
            held, self._held = self._held, b""
            # uvicorn tells the last of several requests alone that the client is gone; uvloop's write would raise.
            if not self._transport.is_closing():
                self._transport.write(held)


class BoundedHttp(HttpToolsProtocol):
    """Answers 400 and closes when request line and headers pass 64 KiB; closes who connects and says nothing, or
    begins what does not become a request. A body that does not come is its endpoint's to refuse.
    """

    _in_head = True
    _moved_on = False  # a head or a whole message was completed by the piece at hand
    _head_bytes = 0  # of a head that is not complete yet
    _unfinished: asyncio.TimerHandle | None = None  # runs from the first byte that no request accounts for

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        # Answers know of a transport what `_Joined` has; the rest was read from the real one by now.
        self.transport = cast(asyncio.Transport, _Joined(self.transport, self.loop))
        # uvicorn starts this timer after an answer only, and stops it with the first byte.
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def data_received(self, data: bytes) -> None:
        self._moved_on = False
        super().data_received(data)
        if self._moved_on:
            self._head_bytes = 0
        elif self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_MAX_BYTES and not self.transport.is_closing():
                super().send_400_response("The request's head is larger than 64 KiB.")
        if (
            (self.cycle is None or self.cycle.response_complete)
            and self._unfinished is None
            and not self.transport.is_closing()
        ):
            # uvicorn has stopped its timer, and starts it after an answer only. No byte that drips in stops this.
            self._unfinished = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        self._finished()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """What follows is no HTTP: 400 and the end; behind a whole request that is not answered yet its answer."""
        if self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete:
            self.cycle.keep_alive = False
        else:
            super().send_400_response(msg)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._moved_on = True
        self._finished()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head = True
        self._moved_on = True
        cast(dict[str, object], self.scope)[WHOLE] = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        # The head of an answer to HEAD: in the next turn the transport is closed where the client half-closed.
        cast(_Joined, self.transport).flush()
        super().on_response_complete()

    def _finished(self) -> None:
        if self._unfinished is not None:
            self._unfinished.cancel()
            self._unfinished = None
