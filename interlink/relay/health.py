"""Whether one relay answers, and the log lines of its ups and downs. Pure but for the log (M17)."""

from typing import NamedTuple

from interlink import log
from interlink.errors import RelayError
from interlink.relay.answers import Unreachable

REASONS_TOLD = 8  # of one time of trouble: a relay can make up new ones
# Ops whose troubles make a relay "down"; a roster is asked for too seldom to say so.
STEADY = frozenset({"poll", "send", "announce"})


class _Trouble(NamedTuple):
    text: str
    unreachable: bool


class Health:
    """Troubles of one relay, by op (`poll`, `send`, `announce`, `roster`).

    A line `relay_down` is logged for each new reason, `relay_up` when the last trouble ends and at the
    first answer of all: never one line an attempt, however the reasons alternate.
    """

    def __init__(self, url: str, now_ms: int) -> None:
        self.url = url
        self.since_ms = now_ms
        self.up: bool | None = None
        self._troubles: dict[str, _Trouble] = {}
        self._told: set[str] = set()

    @property
    def error(self) -> str:
        """The troubles in words, "" without any."""
        return "; ".join(dict.fromkeys(t.text for op, t in self._troubles.items() if op in STEADY))

    def failing(self, op: str) -> bool:
        """Whether the last outcome of an op was a failure."""
        return op in self._troubles

    def ok(self, op: str, now_ms: int) -> None:
        """An op did what it should. It also ends every trouble with reaching the relay at all."""
        first = self.up is None
        before = bool(self._troubles)
        self._troubles = {o: t for o, t in self._troubles.items() if o != op and not t.unreachable}
        self._note(now_ms, True)
        if first or (before and not self._troubles):
            self._told.clear()
            log.event("relay_up", url=self.url, op=op)

    def failed(self, op: str, error: RelayError, now_ms: int) -> None:
        """An op did not do what it should."""
        text = str(error)
        self._troubles[op] = _Trouble(text, isinstance(error, Unreachable))
        self._note(now_ms, self.up)
        if text not in self._told and len(self._told) < REASONS_TOLD:
            self._told.add(text)
            log.event("relay_down", url=self.url, op=op, error=error)

    def _note(self, now_ms: int, otherwise: bool | None) -> None:
        up = False if any(op in STEADY for op in self._troubles) else otherwise
        if up != self.up:
            self.up, self.since_ms = up, now_ms
