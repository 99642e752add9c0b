"""The relay client: one session's way to all its relays at once (B2, M17).

Send to all, poll all; each relay has its own connections and tasks, so that one that is down, slow or
talks rubbish holds up no other. `INTERLINK_URL` is read by `parse_urls`.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

import anyio

from interlink import log
from interlink.errors import RelayError, UsageError
from interlink.relay.answers import Arrival, Handler, encode, encode_send
from interlink.relay.one import Relay
from interlink.relay.polling import Polling
from interlink.relay.urls import parse_urls
from interlink.settings import Settings

__all__ = ["Arrival", "Handler", "RelayStatus", "Relays", "SendResult", "parse_urls"]

T = TypeVar("T")


class SendResult(NamedTuple):
    """Relays (by url) that took a message, and those that did not, with why.

    A relay in neither was still at it when another had taken the message.
    """

    accepted: list[str]
    failed: dict[str, RelayError]


class RelayStatus(NamedTuple):
    """What is known of one relay.

    `up`: None before its first answer; `since_ms`: when that changed, ms since 1970; `error`: what is
    wrong, "" if nothing; `latency_ms`: of the last call but polls; `batch`: its last message came in
    the list form; `skew_ms`: its clock ahead of ours, good to a second or two.
    """

    url: str
    up: bool | None
    since_ms: int
    error: str
    latency_ms: float | None
    batch: bool
    skew_ms: int | None


class Relays:
    """All relays of one session. `urls` as `parse_urls` gives them; `token`: their shared bearer token."""

    def __init__(self, urls: Sequence[str], settings: Settings, *, token: str | None = None) -> None:
        """UsageError for a token that cannot be sent in a header."""
        if token is not None and not (token.isascii() and token.isprintable() and token == token.strip()):
            raise UsageError("the relay token has characters that no header can hold: one line of plain ASCII")
        self._settings = settings
        self._relays = [Relay(url, settings, token) for url in urls]
        self._closed = asyncio.Event()
        self._background: set[asyncio.Task[Any]] = set()
        self._roster_lock = asyncio.Lock()
        self._roster_calls: dict[Relay, asyncio.Task[list[dict[str, Any]]]] = {}
        self._roster: list[dict[str, Any]] = []
        self._roster_until = 0.0

    async def send(self, to: str, payload: str) -> SendResult:
        """Hand a message (JSON text) to all relays at once.

        Returns when all have answered, or `send_grace_s` after the first took it: what is under way
        then goes on by itself, at most `send_timeout_s` in all. A relay known to be down or late is not
        waited for. Never raises for a relay's sake: with all of them down `accepted` is empty.
        WireError for a payload that is no valid text. Cancelled, it takes back what it began; a relay
        may have the message all the same.
        """
        body = encode_send(to, payload)
        calls = {self._start(relay, relay.send(body)): relay for relay in self._relays}
        try:
            await _settle(
                set(calls),
                optional={task for task, relay in calls.items() if relay.late or relay.health.up is False},
                grace_s=self._settings.send_grace_s,
            )
        except BaseException:
            await _cancel(set(calls))
            raise
        accepted: list[str] = []
        failed: dict[str, RelayError] = {}
        for task, relay in calls.items():
            if not task.done():
                _leave(task, relay)
            elif task.cancelled():
                failed[relay.url] = RelayError("was not waited for: the client is closed")
            elif (error := task.exception()) is None:
                accepted.append(relay.url)
            elif isinstance(error, RelayError):
                failed[relay.url] = error
            else:
                raise error
        return SendResult(accepted, failed)

    async def poll(self, route: str, handler: Handler) -> None:
        """Poll every relay for a route until cancelled (or `aclose`); nothing a relay or the handler does ends it.

        The handler gets the messages of one answer and returns the ack tokens of those that are durable
        or need not be (G6): these alone are acknowledged. Where it names fewer than it was given, or
        raises, the next poll waits. It is called for several relays at the same time.
        """
        async with anyio.create_task_group() as group:
            for relay in self._relays:
                group.start_soon(Polling(relay, route, handler, self._settings).run)
            await self._closed.wait()
            group.cancel_scope.cancel()

    async def announce(self, body: dict[str, object]) -> None:
        """Announce a session at all relays, at most `call_timeout_s`. Failures are logged when they change."""
        data = encode(body)
        await self._each(lambda relay: relay.announce(data))

    async def unregister(self, body: dict[str, object]) -> None:
        """Take an announcement back at all relays, at most `unregister_timeout_s` in all."""
        data = encode(body)
        await self._each(lambda relay: relay.unregister(data), "unregister_failed")

    async def _each(self, call: Callable[[Relay], Coroutine[Any, Any, None]], event: str = "") -> None:
        async def one(relay: Relay) -> None:
            try:
                await call(relay)
            except RelayError as exc:
                if event:  # else the relay's health has said it
                    log.event(event, url=relay.url, error=exc)

        async with anyio.create_task_group() as group:
            for relay in self._relays:
                group.start_soon(one, relay)

    async def roster(self, *, fresh: bool = False) -> list[dict[str, Any]]:
        """The entries of all rosters, one after the other, unjudged: signatures and ages are the caller's.

        Relays that do not answer within `roster_grace_s` of the first, or `call_timeout_s`, are left out;
        with none answering it is empty. The same for `roster_cache_s`, unless it has to be `fresh`.
        """
        async with self._roster_lock:
            if not fresh and time.monotonic() < self._roster_until:
                return list(self._roster)
            optional: set[asyncio.Task[list[dict[str, Any]]]] = set()
            for relay in self._relays:
                last = self._roster_calls.get(relay)
                late = last is not None and not last.done()
                call = last if last is not None and late else self._start(relay, relay.roster())
                self._roster_calls[relay] = call
                if late or relay.health.failing("roster") or relay.health.up is False:
                    optional.add(call)
            calls = list(self._roster_calls.values())
            await _settle(set(calls), optional=optional, grace_s=self._settings.roster_grace_s)
            # A late one goes on: if it ends well, the next roster waits for that relay again.
            self._roster = [entry for call in calls if _is_well(call) for entry in call.result()]
            self._roster_until = time.monotonic() + self._settings.roster_cache_s
            return list(self._roster)

    def status(self) -> list[RelayStatus]:
        """One entry a relay, in the order of the urls."""
        return [
            RelayStatus(
                relay.url,
                relay.health.up,
                relay.health.since_ms,
                relay.health.error,
                relay.latency_ms,
                relay.many,
                relay.skew_ms,
            )
            for relay in self._relays
        ]

    async def aclose(self) -> None:
        """End polls and sends in the background, close all connections, within `shutdown_grace_s`."""
        self._closed.set()
        with anyio.move_on_after(self._settings.shutdown_grace_s):
            await _cancel(set(self._background))
            for relay in self._relays:
                await relay.transport.aclose()

    def _start(self, relay: Relay, call: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """A call as a task that may outlive its caller; `aclose` ends it."""

        def done(task: "asyncio.Task[T]") -> None:
            self._background.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, RelayError):
                log.event("relay_call_fault", url=relay.url, error=type(error).__name__)

        task = asyncio.create_task(call, name=f"relay {relay.url}")
        self._background.add(task)
        task.add_done_callback(done)
        return task


def _leave(task: "asyncio.Task[None]", relay: Relay) -> None:
    """Let a send go on without a waiter; one that still waits for its turn ends, so that none pile up."""

    def done(task: "asyncio.Task[None]") -> None:
        relay.late -= 1

    relay.late += 1
    task.add_done_callback(done)
    if task not in relay.sending:
        task.cancel()


def _is_well(task: "asyncio.Task[T]") -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


async def _settle(
    pending: set["asyncio.Task[T]"],
    *,
    optional: set["asyncio.Task[T]"],
    grace_s: float,
) -> None:
    """Wait for all tasks; once one ended well, for the others `grace_s` more, for `optional` ones no more."""
    until: float | None = None
    while pending:
        timeout = None
        if until is not None:
            pending = pending - optional
            timeout = until - time.monotonic()
            if not pending or timeout <= 0:
                return
        done, pending = await asyncio.wait(pending, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if until is None and any(_is_well(task) for task in done):
            until = time.monotonic() + grace_s


async def _cancel(tasks: set["asyncio.Task[T]"]) -> None:
    """Cancel tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
