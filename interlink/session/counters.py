"""How many messages were refused, and why, kept over restarts for `doctor` (G3).

`counts/<identity>/<session>.json`: `{"counts": {reason: n}, "expired_by": {sender key: n}, "since_ms", "at_ms"}`.
Written without a sync, at most every `counts_every_s`: the numbers are for a person. A crash loses the last few,
and a file that cannot be read is begun anew. Several processes of a session add to one file.
"""

import os
import threading
from collections import Counter
from typing import Final

import msgspec

from interlink import log
from interlink.errors import StateError
from interlink.settings import Settings
from interlink.state import files
from interlink.state.flock import Flock
from interlink.state.paths import Layout

MAX_SENDERS: Final = 256  # only peers get as far as being too old, so this is never met in practice
MAX_BYTES: Final = 1 << 20
LOCK_WAIT_S: Final = 0.2


class Refused(msgspec.Struct, kw_only=True):
    """The file. `since_ms`: the first write; `at_ms`: the last one."""

    counts: dict[str, int] = {}
    expired_by: dict[str, int] = {}
    since_ms: int = 0
    at_ms: int = 0


_decode = msgspec.json.Decoder(Refused).decode


def read_counts(layout: Layout, identity: str, session: str) -> Refused:
    """What is written of a session; zeros where there is nothing that can be read. Writes nothing."""
    try:
        data = files.read_bytes(layout.counts(identity, session), limit=MAX_BYTES)
        return Refused() if data is None else _decode(data)
    except (StateError, msgspec.DecodeError, UnicodeError):
        return Refused()


class Refusals:
    """What this process refused and has not written yet. `add` from any thread, `flush` from a worker thread."""

    def __init__(self, layout: Layout, identity: str, session: str, settings: Settings) -> None:
        self._layout = layout
        self._identity = identity
        self._session = session
        self._settings = settings
        self._guard = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._expired_by: Counter[str] = Counter()
        self._written_ms = 0
        self._fault = ""

    def add(self, reason: str, *, expired_from: str = "") -> None:
        """One more; `expired_from` is the sender of one that was too old."""
        with self._guard:
            self._counts[reason] += 1
            if expired_from:
                self._expired_by[expired_from] += 1

    def flush(self, now_ms: int, *, at_once: bool = False) -> None:
        """Write what is new, unless the last write was just now. A fault is logged when it changes (X5)."""
        with self._guard:
            every_ms = self._settings.counts_every_s * 1000
            if not self._counts or (not at_once and 0 <= now_ms - self._written_ms < every_ms):
                return
            try:
                self._write(now_ms)
                fault = ""
            except StateError as exc:
                fault = str(exc)
            self._written_ms = now_ms
            if fault != self._fault:
                log.event("counts_fault" if fault else "counts_ok", error=fault or None)
                self._fault = fault

    def _write(self, now_ms: int) -> None:
        path = self._layout.counts(self._identity, self._session)
        files.ensure_dir(os.path.dirname(path), self._layout.root)
        with Flock(self._layout.counts(self._identity, self._session, "lock"), LOCK_WAIT_S):
            old = read_counts(self._layout, self._identity, self._session)
            by = Counter(old.expired_by) + self._expired_by
            new = Refused(
                counts=dict(Counter(old.counts) + self._counts),
                expired_by=dict(by.most_common(MAX_SENDERS)),
                since_ms=old.since_ms or now_ms,
                at_ms=now_ms,
            )
            files.atomic_write(path, msgspec.json.encode(new), durable=False)
        self._counts.clear()
        self._expired_by.clear()
