"""A relay client under test: quick settings, a handler that keeps what it gets, polling as a context."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from support.badrelay import BadRelay

from interlink.relay.client import Arrival, Handler, Relays, RelayStatus
from interlink.settings import Settings

ROUTE = "K#s"


def quick(**changes: object) -> Settings:
    """Settings with short pauses; long polls long enough not to end by themselves in most tests."""
    s = Settings()
    s.poll_timeout_ms, s.backoff_min_s, s.backoff_max_s, s.poll_min_s = 30_000, 0.01, 0.03, 0.01
    s.poll_probe_ms = 50
    for name, value in changes.items():
        assert hasattr(s, name)
        setattr(s, name, value)
    return s


class Taker:
    """A handler that keeps everything; with `room`, only so many."""

    def __init__(self, room: int = 1_000_000) -> None:
        self.room = room
        self.calls: list[list[Arrival]] = []
        self.kept: list[str] = []

    async def __call__(self, arrivals: list[Arrival]) -> list[str]:
        self.calls.append(arrivals)
        taken = arrivals[: self.room]
        self.room -= len(taken)
        self.kept += [a.payload for a in taken]
        return [a.ack for a in taken]


@contextlib.asynccontextmanager
async def polling(relays: Relays, handler: Handler) -> AsyncIterator[Relays]:
    task = asyncio.create_task(relays.poll(ROUTE, handler))
    try:
        yield relays
        assert not task.done(), "polling ended by itself"
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await relays.aclose()


def state(relays: Relays, index: int = 0) -> RelayStatus:
    return relays.status()[index]


def acked(fake: BadRelay) -> list[str]:
    """All tokens that the fake was given, in order."""
    bodies = [seen.body for seen in fake.got("/ack")]
    return [token for body in bodies for token in body.get("acks", [body.get("ack")])]
