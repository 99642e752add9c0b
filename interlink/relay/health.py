"""Whether one relay answers, and the log lines of its ups and downs. Pure but for the log (M17)."""

from typing import NamedTuple

from interlink import log
from interlink.errors import RelayError
from interlink.relay.answers import Unreachable

# Ops whose troubles make a relay "down"; a roster is asked for too seldom to say so.
STEADY = frozenset({"poll", "send", "announce"})


class _Trouble(NamedTuple):
    text: str
    unreachable: bool


class Health:
    """Troubles of one relay, by op (`poll`, `send`, `announce`, `roster`).

    A line `relay_down` is logged when a trouble appears that no op has yet, `relay_up` when the last
    one ends and at the first answer of all: never one line an attempt.
    """

    def __init__(self, url: str, now_ms: int) -> None:
        self.url = url
        self.since_ms = now_ms
        self.up: bool | None = None
        self._troubles: dict[str, _Trouble] = {}

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
            log.event("relay_up", url=self.url, op=op)

    def failed(self, op: str, error: RelayError, now_ms: int) -> None:
        """An op did not do what it should."""
        trouble = _Trouble(str(error), isinstance(error, Unreachable))
        known = trouble in self._troubles.values()
        self._troubles[op] = trouble
        self._note(now_ms, self.up)
        if not known:
            log.event("relay_down", url=self.url, op=op, error=error)

    def _note(self, now_ms: int, otherwise: bool | None) -> None:
        up = False if any(op in STEADY for op in self._troubles) else otherwise
        if up != self.up:
            self.up, self.since_ms = up, now_ms
