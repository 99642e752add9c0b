"""One relay: what it understands, and each of its calls with its outcome noted (B2).

| call | takes | falls back |
|---|---|---|
| poll | `messages`, `message`, `timeout` | 400 or 422 to `max`: asks without; an answer too big: asks for half |
| ack | 200 | 400 or 422 to `acks`: one by one from then on; 403: one by one this time |
| send | 202 | 413 and 429 are errors of a relay that works |
| announce, unregister | 202 | |
| roster | a list of objects | |

What it understands is found out anew after it could not be reached: it may be another version then.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import anyio

from interlink import log
from interlink.errors import RelayError
from interlink.relay import answers
from interlink.relay.answers import Answer, Batch, Heavy, Slow, Unreachable
from interlink.relay.health import Health
from interlink.relay.transport import Transport
from interlink.settings import KIB, Settings

# A relay may write a two-byte character of a payload as six (\u00e9).
ESCAPED = 3
SMALL_BYTES = 64 * KIB


class Relay:
    """The client of one relay; `url` as `parse_urls` gives it. Troubles are RelayErrors."""

    def __init__(self, url: str, settings: Settings, token: str | None) -> None:
        self.url = url
        self.transport = Transport(url, settings, token)
        self.health = Health(url, _now_ms())
        self.skew_ms: int | None = None
        self.latency_ms: float | None = None
        self.many = False  # its last message came in the list form
        self.sending: set[asyncio.Task[Any]] = set()  # sends that are under way
        self.late = 0  # sends under way that nobody waits for any more
        self._settings = settings
        self._slots = asyncio.Semaphore(settings.send_parallel)
        self._asks_many = True
        self._acks_many = True
        self._batch = settings.poll_batch

    async def poll(self, route: str) -> Batch:
        """One long poll for a route: at most `poll_batch` messages. Short after a failed one: is it back?"""
        while True:
            most = self._batch if self._asks_many else 1
            try:
                return await self._poll(route, most)
            except Heavy:
                if most == 1:
                    raise
                self._ask_for(most // 2)  # at once: this ends at one message, which always fits
            except Slow:
                self._ask_for(most // 2)
                raise
            except Unreachable:
                self._asks_many = self._acks_many = True
                raise

    async def _poll(self, route: str, most: int) -> Batch:
        s = self._settings
        wait_ms = min(s.poll_timeout_ms, s.poll_probe_ms) if self.health.failing("poll") else s.poll_timeout_ms
        target = f"/recv?me={quote(route, safe='')}&timeout_ms={wait_ms}"
        answer = await self.transport.call(
            "GET",
            f"{target}&max={most}" if most > 1 else target,
            timeout_s=wait_ms / 1000 + s.call_timeout_s,
            max_bytes=max(s.poll_answer_max_bytes, ESCAPED * s.message_max_bytes + SMALL_BYTES),
        )
        if most > 1 and answer.status in (400, 422):
            self._asks_many = False
            log.event("relay_single", url=self.url, op="poll")
        answers.check_json(answer, s.retry_after_max_s)
        batch = answers.read_batch(answer.body, s.poll_batch)
        if batch.arrivals:
            self.many = batch.many
            self._ask_for(self._batch * 2)
        return batch

    def _ask_for(self, count: int) -> None:
        self._batch = max(1, min(count, self._settings.poll_batch))

    async def ack(self, route: str, tokens: Sequence[str]) -> None:
        """Acknowledge messages of a route. RelayError where one was not taken; the others are all the same."""
        if len(tokens) > 1 and self._acks_many:
            answer = await self._post("/ack", answers.encode({"me": route, "acks": list(tokens)}))
            if answer.status == 200:
                return
            if answer.status in (400, 422):
                self._acks_many = False
                log.event("relay_single", url=self.url, op="ack")
            elif answer.status != 403:
                raise self._refusal(answer)
        foreign = 0
        for token in tokens:
            answer = await self._post("/ack", answers.encode({"me": route, "ack": token}))
            if answer.status == 403:
                foreign += 1
            elif answer.status != 200:
                raise self._refusal(answer)
        if foreign:
            raise RelayError("refuses the acknowledgement of a message that it gave us (403)", status=403)

    async def send(self, body: bytes) -> None:
        """Hand over one encoded message; returns once the relay has taken it (202).

        Bounded by `send_timeout_s`, the wait for one of the `send_parallel` slots included.
        """
        limit_s = self._settings.send_timeout_s
        task = asyncio.current_task()
        assert task is not None
        try:
            with anyio.fail_after(limit_s):
                async with self._slots:
                    self.sending.add(task)
                    try:
                        self._expect(202, await self._post("/send", body, timeout_s=limit_s))
                    finally:
                        self.sending.discard(task)
        except TimeoutError as exc:
            error = RelayError(f"took no message within {limit_s:g} s")
            self.health.failed("send", error, _now_ms())
            raise error from exc
        except RelayError as exc:
            if exc.status in (413, 429):  # its bounds are kept: it works
                self.health.ok("send", _now_ms())
            else:
                self.health.failed("send", exc, _now_ms())
            raise
        self.health.ok("send", _now_ms())

    async def announce(self, body: bytes) -> None:
        """Announce a session."""
        try:
            self._expect(202, await self._post("/announce", body))
        except RelayError as exc:
            self.health.failed("announce", exc, _now_ms())
            raise
        self.health.ok("announce", _now_ms())

    async def unregister(self, body: bytes) -> None:
        """Take an announcement back, within `unregister_timeout_s`. The session ends: it is no sign of health."""
        self._expect(202, await self._post("/unregister", body, timeout_s=self._settings.unregister_timeout_s))

    async def roster(self) -> list[dict[str, Any]]:
        """The relay's roster: at most `roster_max` entries, unjudged."""
        s = self._settings
        try:
            answer = await self.transport.call(
                "GET", "/roster", timeout_s=s.call_timeout_s, max_bytes=s.roster_max_bytes
            )
            self._measure(answer)
            answers.check_json(answer, s.retry_after_max_s)
            found = answers.read_roster(answer.body, s.roster_max)
        except RelayError as exc:
            self.health.failed("roster", exc, _now_ms())
            raise
        self.health.ok("roster", _now_ms())
        return found

    async def _post(self, target: str, body: bytes, *, timeout_s: float | None = None) -> Answer:
        limit_s = self._settings.call_timeout_s if timeout_s is None else timeout_s
        answer = await self.transport.call("POST", target, timeout_s=limit_s, max_bytes=SMALL_BYTES, body=body)
        self._measure(answer)
        return answer

    def _measure(self, answer: Answer) -> None:
        self.latency_ms = answer.latency_ms
        skew = answers.skew_ms(answer)
        self.skew_ms = self.skew_ms if skew is None else skew

    def _expect(self, status: int, answer: Answer) -> None:
        if answer.status != status:
            raise self._refusal(answer)

    def _refusal(self, answer: Answer) -> RelayError:
        return answers.refusal(answer, self._settings.retry_after_max_s)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
