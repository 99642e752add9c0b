"""The poll loop of one relay: fetch, have it stored, acknowledge; and how it waits when that fails (B2, M17).

    poll --messages--> handler --tokens--> ack --> poll
      |                   |                 |
      +------ failed -----+---- fewer ------+--> pause (doubling, with jitter) --> poll

Nothing is acknowledged that the handler did not name. Whatever is not acknowledged comes again.
"""

import random
import time
import traceback
from collections.abc import Sequence

import anyio

from interlink import log
from interlink.errors import InterlinkError, RelayError
from interlink.relay.answers import Arrival, Handler
from interlink.relay.one import Relay
from interlink.settings import Settings


class Backoff:
    """Pauses that double from `backoff_min_s` to `backoff_max_s`, each a random part of that range."""

    def __init__(self, settings: Settings) -> None:
        self._low, self._high = settings.backoff_min_s, max(settings.backoff_min_s, settings.backoff_max_s)
        self._reach = self._low

    def reset(self) -> None:
        """After a success: the next pause is the shortest one."""
        self._reach = self._low

    def next_s(self) -> float:
        """The next pause, in seconds."""
        pause = random.uniform(self._low, self._reach)
        self._reach = min(self._reach * 2, self._high)
        return pause


class Polling:
    """The poll loop of one relay for one route."""

    def __init__(self, relay: Relay, route: str, handler: Handler, settings: Settings) -> None:
        self._relay, self._route, self._handler, self._settings = relay, route, handler, settings
        self._relay_pause = Backoff(settings)
        self._store_pause = Backoff(settings)
        self._deferred = ""  # why messages stay on the relay, as last logged
        self._skipping = False
        self._acked: frozenset[int] = frozenset()  # hashes of what the last ack took

    async def run(self) -> None:
        """Runs until cancelled; raises nothing else."""
        while True:
            began = time.monotonic()
            try:
                pause = await self._once(began)
            except RelayError as exc:
                self._relay.health.failed("poll", exc, time.time_ns() // 1_000_000)
                pause = max(self._relay_pause.next_s(), exc.retry_after_s or 0)
            await anyio.sleep(pause)

    async def _once(self, began: float) -> float:
        """One round; the pause after it in seconds. RelayError where the relay failed."""
        batch = await self._relay.poll(self._route)
        self._note_skipped(batch.skipped)
        if batch.skipped and not batch.arrivals:
            raise RelayError("gives messages without an acknowledgement token of their own")
        if not batch.arrivals:
            self._worked()
            # One that answers "nothing" at once must not be asked in a hot loop.
            least_s = min(self._settings.poll_min_s, self._settings.poll_timeout_ms / 1000)
            return max(0.0, began + least_s - time.monotonic())
        tokens = await self._handle(batch.arrivals)
        if tokens:
            await self._relay.ack(self._route, tokens)
        self._check_repeats(batch.arrivals, tokens)
        self._worked()
        if len(tokens) < len(batch.arrivals):
            return self._store_pause.next_s()
        self._store_pause.reset()
        return 0.0

    def _worked(self) -> None:
        self._relay.health.ok("poll", time.time_ns() // 1_000_000)
        self._relay_pause.reset()

    async def _handle(self, arrivals: list[Arrival]) -> list[str]:
        """The tokens that the handler names, of those that it was given; none where it fails."""
        why = ""
        named: Sequence[str] = ()
        try:
            named = await self._handler(arrivals)
        except InterlinkError as exc:
            why = f"{type(exc).__name__}: {exc}"
        except Exception as exc:  # noqa: BLE001  a fault in judging one message must not end all polling
            # Without the text, which may hold a body.
            at = traceback.extract_tb(exc.__traceback__)[-1]
            why = f"{type(exc).__name__} in {at.name} line {at.lineno}"
        given = {arrival.ack for arrival in arrivals}
        tokens = [token for token in dict.fromkeys(named) if token in given]
        if not why and len(tokens) < len(given):
            why = "could not be stored"
        self._note_deferred(why, len(given) - len(tokens))
        return tokens

    def _note_deferred(self, why: str, count: int) -> None:
        if why and why != self._deferred:
            log.event("poll_deferred", url=self._relay.url, messages=count, error=why)
        elif self._deferred and not why:
            log.event("poll_resumed", url=self._relay.url)
        self._deferred = why

    def _note_skipped(self, count: int) -> None:
        if count and not self._skipping:
            log.event("poll_skipped", url=self._relay.url, messages=count, error="no ack token, or one twice")
        self._skipping = bool(count)

    def _check_repeats(self, arrivals: list[Arrival], tokens: list[str]) -> None:
        """RelayError where a relay hands out nothing but what it just let us acknowledge."""
        handed = frozenset(hash(arrival) for arrival in arrivals)
        repeated = bool(handed) and handed <= self._acked
        taken = set(tokens)
        self._acked = frozenset(hash(arrival) for arrival in arrivals if arrival.ack in taken)
        if repeated:
            raise RelayError("gives messages again that it let us acknowledge")
