"""Failed deliveries on disk (X3, X4): what could not be handed to Codex, for a person or agent to look at.

`failed/<identity>/<session>.json` is an array of `{id, msg_id, sender, text, reason, notice}` (wire.md); `at_ms`
is ours. Current ordinary notices share one slot; legacy entries (whole messages, pairing notices) stay until
they are discarded. Entries of ours expire by themselves, legacy ones do not.
"""

import os
import secrets
from collections.abc import Callable
from typing import TypeVar

import msgspec

from interlink.errors import CorruptFile, StateError, UsageError
from interlink.settings import Settings
from interlink.state import files
from interlink.state.locks import Lock
from interlink.state.paths import Layout

T = TypeVar("T")


class Failure(msgspec.Struct, omit_defaults=False, kw_only=True):
    """One entry. `notice`: it is the current ordinary notice, whose messages are safe in the mailbox."""

    id: str
    msg_id: str
    sender: str
    text: str
    reason: str
    notice: bool = False
    at_ms: int | None = None


_decoder = msgspec.json.Decoder(list[Failure])


class FailedStore:
    """The failures of one session. Blocking."""

    def __init__(self, layout: Layout, identity: str, session: str, settings: Settings) -> None:
        self.path = layout.failed(identity, session)
        self._layout = layout
        self._settings = settings
        self._lock = Lock(self.path.removesuffix(".json") + ".lock")

    def entries(self, now_ms: int) -> list[Failure]:
        """What has not expired. CorruptFile where the file does not parse."""
        data = files.read_bytes(self.path)
        if data is None:
            return []
        try:
            entries = _decoder.decode(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
            raise CorruptFile(f"{self.path} does not parse ({exc}): move it away") from exc
        ttl_ms = self._settings.failed_ttl_s * 1000
        return [e for e in entries if e.at_ms is None or now_ms - e.at_ms < ttl_ms]

    def save(self, msg_id: str, text: str, reason: str, now_ms: int, *, notice: bool) -> str:
        """Keep a failure and return its id. An ordinary notice takes the place of the one before.

        StateError when 64 others are there, or the file cannot be written.
        """

        def change(entries: list[Failure]) -> tuple[list[Failure], str]:
            kept = [e for e in entries if not (notice and e.notice)]
            if len(kept) >= self._settings.failed_max:
                raise StateError(
                    f"{len(kept)} failed deliveries are kept already: read and discard some (failed_deliveries)"
                )
            entry = Failure(
                id=secrets.token_hex(4),
                msg_id=msg_id,
                sender="Interlink",
                text=text,
                reason=reason,
                notice=notice,
                at_ms=now_ms,
            )
            return [*kept, entry], entry.id

        return self._update(change, now_ms)

    def clear_notices(self, now_ms: int) -> None:
        """A handoff succeeded: the saved ordinary notice says nothing any more."""
        if any(e.notice for e in self.entries(now_ms)):
            self._update(lambda entries: ([e for e in entries if not e.notice], None), now_ms)

    def discard(self, failure_id: str, now_ms: int) -> None:
        """Remove one saved failure, never a message. UsageError for an unknown id."""

        def change(entries: list[Failure]) -> tuple[list[Failure], None]:
            kept = [e for e in entries if e.id != failure_id]
            if len(kept) == len(entries):
                raise UsageError(f"no failed delivery {failure_id[:40]!r}: see action=list")
            return kept, None

        self._update(change, now_ms)

    def find(self, failure_id: str, now_ms: int) -> Failure:
        """One entry. UsageError for an unknown id."""
        for entry in self.entries(now_ms):
            if entry.id == failure_id:
                return entry
        raise UsageError(f"no failed delivery {failure_id[:40]!r}: see action=list")

    def _update(self, change: Callable[[list[Failure]], tuple[list[Failure], T]], now_ms: int) -> T:
        files.ensure_dir(os.path.dirname(self.path), self._layout.root)
        with self._lock:
            entries, result = change(self.entries(now_ms))
            files.atomic_write(self.path, msgspec.json.encode(entries))
            return result
