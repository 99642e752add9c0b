"""The roster: who announced itself, and how long ago (B3). Opaque to the relay beyond its key.

Kept in memory in the order of the last announcement; a copy goes to disk now and then, so that sessions
that are away are still known after a restart. Live ones announce themselves again within a heartbeat.

Full: an entry that expired goes first, then the one that was silent longest, provided that it is no longer
live; where all are live the newcomer is refused. So a flood of announcements cannot keep a session out for
days, nor push a live one out.
"""

import time
from collections.abc import Callable

import msgspec

from interlink.errors import InterlinkError, WireError
from interlink.relay.plain import check_plain
from interlink.settings import Settings

Raw = msgspec.Raw


class RosterFull(InterlinkError):
    """As many live sessions as the roster may hold."""


class _Session(msgspec.Struct):
    session_id: str = ""


class _Key(msgspec.Struct):
    pubkey: str
    session: _Session | None = None
    session_id: str | None = None


class _Entry(msgspec.Struct):
    key: str
    seen_ms: int
    announcement: Raw


_key_decoder = msgspec.json.Decoder(_Key)
_object_decoder = msgspec.json.Decoder(dict[str, Raw])
_saved_decoder = msgspec.json.Decoder(list[_Entry])


def roster_key(body: bytes) -> str:
    """`pubkey#session` of an announcement or unregistration, the bare key where it names no session.

    The session id is taken from `session.session_id`, else from a top-level `session_id`.
    Raises WireError with a clear text.
    """
    try:
        check_plain(body)
        found = _key_decoder.decode(body)
    except (msgspec.MsgspecError, WireError) as exc:
        raise WireError(f"not an announcement: {exc}") from exc
    if not found.pubkey:
        raise WireError("not an announcement: `pubkey` is empty")
    session = found.session.session_id if found.session is not None else ""
    session = session or found.session_id or ""
    key = f"{found.pubkey}#{session}" if session else found.pubkey
    if "\0" in key:
        raise WireError("not an announcement: a NUL in `pubkey` or `session_id`")
    return key


class Roster:
    """Announcements by `pubkey#session`. `clock` gives ms that never go back."""

    def __init__(
        self, settings: Settings, clock: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000
    ) -> None:
        self._settings = settings
        self._clock = clock
        # key -> (when, announcement without its closing brace); oldest announcement first
        self._entries: dict[str, tuple[int, bytes]] = {}
        self.changed = False

    def __len__(self) -> int:
        return len(self._entries)

    def announce(self, body: bytes) -> None:
        """Keep or refresh an announcement. Raises WireError or RosterFull."""
        key = roster_key(body)
        fields = _object_decoder.decode(body)
        fields.pop("age_ms", None)  # ours to say
        self._expire()
        if key in self._entries:
            del self._entries[key]  # goes to the end
        elif len(self._entries) >= self._settings.roster_max:
            oldest = next(iter(self._entries))
            if self._clock() - self._entries[oldest][0] < self._settings.live_s * 1000:
                raise RosterFull(f"the roster holds {len(self._entries)} live sessions, the most that it may")
            del self._entries[oldest]
        self._entries[key] = (self._clock(), msgspec.json.encode(fields)[:-1])
        self.changed = True

    def unregister(self, body: bytes) -> None:
        """Forget a session at once; an unknown one is no error. Raises WireError."""
        if self._entries.pop(roster_key(body), None) is not None:
            self.changed = True

    def answer(self) -> bytes:
        """The JSON of GET /roster: every announcement with `age_ms` added."""
        self._expire()
        now = self._clock()
        parts = [b'%b,"age_ms":%d}' % (text, now - seen) for seen, text in self._entries.values()]
        return b'{"roster":[' + b",".join(parts) + b"]}"

    def _expire(self) -> None:
        oldest_kept = self._clock() - self._settings.roster_ttl_s * 1000
        while self._entries:
            key = next(iter(self._entries))
            if self._entries[key][0] > oldest_kept:
                return
            del self._entries[key]

    # The copy on disk

    def dump(self, now_ms: int) -> bytes:
        """All entries, for `load` in a later process; `now_ms` is the time of day."""
        self.changed = False
        age = {key: self._clock() - seen for key, (seen, _) in self._entries.items()}
        entries = [_Entry(key, now_ms - age[key], Raw(text + b"}")) for key, (_, text) in self._entries.items()]
        return msgspec.json.encode(entries)

    def load(self, data: bytes, now_ms: int) -> None:
        """Entries of an earlier process. Raises WireError where the copy does not parse."""
        try:
            saved = _saved_decoder.decode(data)
            for entry in saved:
                check_plain(bytes(entry.announcement))
        except (msgspec.MsgspecError, WireError) as exc:
            raise WireError(f"the copy of the roster does not parse: {exc}") from exc
        for entry in sorted(saved, key=lambda e: e.seen_ms)[-self._settings.roster_max :]:
            age = max(0, now_ms - entry.seen_ms)  # a clock that went back: as if seen now
            self._entries[entry.key] = (self._clock() - age, bytes(entry.announcement)[:-1])
        self._expire()
