"""Who is there, and which of their sessions a message goes to (B3, B4).

    live   announced less than `live_s` ago
    away   older, still on the roster (kept `roster_ttl_s`)
    gone   unregistered, or off the roster

A roster entry counts only with a valid signature and a time that is not ahead of ours; the age that a relay
adds is unsigned, so the signed time bounds it.
"""

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from interlink import log
from interlink.errors import UsageError, WireError
from interlink.settings import Settings
from interlink.state.paths import check_session
from interlink.text import clean_line, fingerprint, shown_name
from interlink.trust import wire
from interlink.trust.gate import SELF
from interlink.trust.identity import Identity
from interlink.trust.peers import Peers

CLOCK_SLACK_MS = 60_000
GENERATED_ID_CHARS = 8  # no id that a program gives is shorter; what is, is a prefix


class Seen(NamedTuple):
    """One announced session. `age_ms` since its announcement; names and texts are claims: clean before showing."""

    key: str
    name: str
    session: wire.Session
    age_ms: int
    ts: int

    def live(self, settings: Settings) -> bool:
        return self.age_ms < settings.live_s * 1000

    def word(self, settings: Settings) -> str:
        """`live` or `away`."""
        return "live" if self.live(settings) else "away"


def read_roster(entries: Iterable[object], now_ms: int, settings: Settings) -> list[Seen]:
    """The valid entries, newest announcement of each session, youngest first. Forged ones are dropped."""
    newest: dict[tuple[str, str], Seen] = {}
    bad = 0
    for entry in entries:
        try:
            ann = wire.decode_announcement(entry)
        except WireError:
            bad += 1
            continue
        signed_age = now_ms - ann.ts
        if (
            signed_age < -int(settings.fresh_ahead_s * 1000)
            or signed_age > settings.roster_ttl_s * 1000
            or not _session_ok(ann.session.session_id)
            or not wire.announcement_holds(ann)
        ):
            bad += 1
            continue
        age = max(ann.age_ms or 0, signed_age - CLOCK_SLACK_MS, 0)
        key = (ann.pubkey, ann.session.session_id)
        known = newest.get(key)
        if known is None or (ann.ts, -age) > (known.ts, -known.age_ms):
            newest[key] = Seen(ann.pubkey, ann.name, ann.session, age, ann.ts)
    if bad:
        log.event("roster_entries_dropped", count=bad)
    return sorted(newest.values(), key=lambda s: (s.age_ms, s.key, s.session.session_id))


def _session_ok(session: str) -> bool:
    try:
        check_session(session)
    except UsageError:
        return False
    return True


def make_announcement(identity: Identity, name: str, session: wire.Session, now_ms: int) -> wire.Announcement:
    """Our own signed announcement."""
    return wire.sign_announcement(
        wire.Announcement(pubkey=identity.public, name=name, session=session, ts=now_ms), identity
    )


def describe_here(session_id: str, cwd: str) -> wire.Session:
    """The session part of our announcement: id, directory, repository root (no summary yet)."""
    return wire.Session(session_id=session_id, cwd=cwd, git_root=_git_root(cwd))


def _git_root(cwd: str) -> str:
    folder = cwd
    while folder:
        if os.path.exists(os.path.join(folder, ".git")):
            return folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return ""
        folder = parent
    return ""


class Sticky(NamedTuple):
    """Sessions that wrote to us, latest first, as (key, session)."""

    routes: Sequence[tuple[str, str]]

    def of(self, key: str) -> list[str]:
        return [s for k, s in self.routes if k == key]


class Target(NamedTuple):
    """Where a message goes. `note` = what the sender should know about the choice."""

    petname: str
    key: str
    session: str
    note: str = ""

    @property
    def route(self) -> str:
        return wire.make_route(self.key, self.session)


def whose(to: str, peers: Peers, own_key: str) -> tuple[str, str]:
    """(petname, key) of `to`; UsageError for an unknown petname, with the known ones (B4)."""
    if to == SELF:
        return SELF, own_key
    key = peers.by_name.get(to)
    if key is None:
        known = ", ".join(sorted(peers.by_name)) or "nobody yet: pair first (request_pair, or interlink peers add)"
        raise UsageError(f"no peer {shown_name(to)}; known: {known}. Nothing was sent.")
    return to, key


def choose(
    petname: str,
    key: str,
    wanted: str | None,
    roster: Sequence[Seen] | None,
    sticky: Sequence[str],
    own_session: str,
    replying_to: str | None,
    settings: Settings,
) -> Target:
    """The session for a message to `key` (B4). `roster` None = no relay answered.

    Order: the session asked for (exact, then unique prefix); the one that is replied to; the one that wrote
    last; the lone live one; the lone away one. Anything else is an error with the list. Our own session is
    never chosen for `self`.
    """
    seen = [
        s for s in roster or () if s.key == key and not (petname == SELF and s.session.session_id == own_session)
    ]
    ids = [s.session.session_id for s in seen]
    if wanted:
        return Target(petname, key, *_wanted(petname, wanted, ids, sticky, roster is None, seen, settings))
    if replying_to:
        return Target(petname, key, replying_to)
    for session in sticky:
        if roster is None or session in ids:
            return Target(petname, key, session)
    live = [s for s in seen if s.live(settings)]
    if len(live) == 1:
        return Target(petname, key, live[0].session.session_id)
    if len(live) > 1:
        raise UsageError(
            f"{petname} has {len(live)} live sessions: name one with `session` (a prefix will do). "
            f"{listing(live, settings)}"
        )
    if len(seen) == 1:
        note = f"{petname}'s only known session is away; the message waits for it in the relay"
        return Target(petname, key, ids[0], note)
    if seen:
        raise UsageError(
            f"{petname} has no live session and {len(seen)} away: name one with `session`. "
            f"{listing(seen, settings)}"
        )
    if sticky:
        note = f"{petname} is not on the roster; the message waits in the relay for the session that wrote last"
        return Target(petname, key, sticky[0], note)
    if roster is None:
        raise UsageError(f"no relay answers, so {petname}'s sessions are unknown: name one with `session`")
    raise UsageError(f"{petname} has no announced session: ask them to start one, or name a `session` that wrote")


def _wanted(
    petname: str,
    wanted: str,
    ids: Sequence[str],
    sticky: Sequence[str],
    no_roster: bool,
    seen: Sequence[Seen],
    settings: Settings,
) -> tuple[str, str]:
    check_session(wanted)
    known = list(dict.fromkeys((*ids, *sticky)))
    if wanted in known:
        return wanted, ""
    matches = [s for s in known if s.startswith(wanted)]
    if len(matches) == 1:
        return matches[0], ""
    if len(matches) > 1:
        raise UsageError(f"session prefix {wanted!r} of {petname} is ambiguous: {', '.join(matches[:10])}")
    if no_roster:
        return wanted, "no relay answers, so the session could not be checked"
    if len(wanted) >= GENERATED_ID_CHARS:
        return wanted, "no such session is announced: the message waits in the relay for one of exactly this id"
    raise UsageError(f"{petname} has no session {wanted!r}. {listing(seen, settings)}")


def listing(seen: Sequence[Seen], settings: Settings, limit: int = 10) -> str:
    """One line that lists sessions: id, live or away, directory; claims are cleaned (F11)."""
    if not seen:
        return "No sessions are announced."
    parts = [
        f"{s.session.session_id} ({s.word(settings)}, {clean_line(os.path.basename(s.session.cwd), 32) or '-'})"
        for s in seen[:limit]
    ]
    more = f", and {len(seen) - limit} more" if len(seen) > limit else ""
    return "Sessions: " + ", ".join(parts) + more + "."


def claim(seen: Seen, settings: Settings) -> str:
    """A claimed name with the fingerprint that it claims to be of (F11)."""
    return f"{shown_name(seen.name, settings.name_max_chars)} [{fingerprint(seen.key)}]"
