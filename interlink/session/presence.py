"""Who is there, and which of their sessions a message goes to (B3, B4).

    live   announced less than `live_s` ago
    away   older, still on the roster (kept `roster_ttl_s`)
    gone   unregistered, or off the roster

A roster entry counts only with a valid signature and a time that is not ahead of ours; the age that a relay
adds is unsigned, so the signed time bounds it.
"""

import os
from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from interlink.errors import UsageError, WireError
from interlink.settings import Settings
from interlink.state.paths import check_session
from interlink.text import shown_name, utf8
from interlink.trust import wire
from interlink.trust.gate import SELF
from interlink.trust.identity import Identity
from interlink.trust.peers import Peers

CLOCK_SLACK_MS = 60_000
GENERATED_ID_CHARS = 8  # no id that a program gives is shorter; what is, is a prefix
LISTED = 20


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


def read_roster(
    entries: Iterable[object], now_ms: int, settings: Settings, keys: Container[str] | None = None
) -> list[Seen]:
    """The valid entries, newest announcement of each session, youngest first. Forged ones are dropped.

    With `keys`, only of those: a signature costs 0.2 ms, so that a long roster is no matter for the event loop.
    """
    seen, _dropped = judge_roster(entries, now_ms, settings, keys)
    return seen


def judge_roster(
    entries: Iterable[object], now_ms: int, settings: Settings, keys: Container[str] | None = None
) -> tuple[list[Seen], int]:
    """As `read_roster`, and how many entries were dropped as forged, out of time or malformed.

    At most four times `roster_max` signatures are looked at, those of the latest times first.
    """
    found: list[wire.Announcement] = []
    dropped = 0
    for entry in entries:
        try:
            ann = wire.decode_announcement(entry)
        except WireError:
            dropped += 1
            continue
        if keys is not None and ann.pubkey not in keys:
            continue
        signed_age = now_ms - ann.ts
        timely = -settings.fresh_ahead_s * 1000 <= signed_age <= settings.roster_ttl_s * 1000
        if timely and _session_ok(ann.session.session_id):
            found.append(ann)
        else:
            dropped += 1
    newest: dict[tuple[str, str], Seen] = {}
    judged = 0
    for ann in sorted(found, key=lambda a: (-a.ts, a.age_ms or 0)):
        place = (ann.pubkey, ann.session.session_id)
        if place in newest:
            continue  # older, or the same from another relay
        judged += 1
        if judged > 4 * settings.roster_max or not wire.announcement_holds(ann):
            dropped += 1
            continue
        age = max(ann.age_ms or 0, now_ms - ann.ts - CLOCK_SLACK_MS, 0)
        newest[place] = Seen(ann.pubkey, ann.name, ann.session, age, ann.ts)
    return sorted(newest.values(), key=lambda s: (s.age_ms, s.key, s.session.session_id)), dropped


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
    # A path is bytes, an announcement is text.
    return wire.Session(session_id=session_id, cwd=utf8(cwd), git_root=utf8(_git_root(cwd)))


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
        names = sorted(peers.by_name)
        known = ", ".join(names[:LISTED]) or "nobody yet: pair first (request_pair, or interlink peers add)"
        if len(names) > LISTED:
            known += f" and {len(names) - LISTED} more (list_peers)"
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
    if petname == SELF and wanted and wanted == own_session:
        raise UsageError("that is this very session: name another session of yours. Nothing was sent.")
    if wanted:
        session = _wanted(petname, wanted, ids, sticky, roster is None, seen, settings)
        return Target(petname, key, session, _waits(petname, session, roster, seen, settings))
    if replying_to:
        return Target(petname, key, replying_to, _waits(petname, replying_to, roster, seen, settings))
    for session in sticky:
        if roster is None or session in ids:
            return Target(petname, key, session, _waits(petname, session, roster, seen, settings))
    live = [s for s in seen if s.live(settings)]
    if len(live) == 1:
        return Target(petname, key, live[0].session.session_id)
    if len(live) > 1:
        raise UsageError(
            f"{petname} has {len(live)} live sessions: name one with `session` (a prefix will do). "
            f"{listing(live, settings)}"
        )
    if len(seen) == 1:
        return Target(petname, key, ids[0], _waits(petname, ids[0], roster, seen, settings))
    if seen:
        raise UsageError(
            f"{petname} has no live session and {len(seen)} away: name one with `session`. "
            f"{listing(seen, settings)}"
        )
    if sticky:
        return Target(petname, key, sticky[0], _waits(petname, sticky[0], roster, seen, settings))
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
) -> str:
    check_session(wanted)
    known = list(dict.fromkeys((*ids, *sticky)))
    if wanted in known:
        return wanted
    matches = [s for s in known if s.startswith(wanted)]
    if len(matches) == 1:
        return matches[0]
    if len(matches) > 1:
        raise UsageError(f"session prefix {wanted!r} of {petname} is ambiguous: {', '.join(matches[:10])}")
    if no_roster or len(wanted) >= GENERATED_ID_CHARS:
        return wanted
    raise UsageError(f"{petname} has no session {wanted!r}. {listing(seen, settings)}")


def _waits(
    petname: str, session: str, roster: Sequence[Seen] | None, seen: Sequence[Seen], settings: Settings
) -> str:
    """What the sender should know of a session that is not live: the message waits for that one alone."""
    if roster is None:
        return f"no relay answers, so it is not known whether {petname}'s session {session} is there"
    word = next((s.word(settings) for s in seen if s.session.session_id == session), "")
    if word == "live":
        return ""
    state = f"{petname}'s session {session} is {word}" if word else f"no such session is announced: {session}"
    others = [s for s in seen if s.live(settings)]
    instead = f"; for another one name it with `session`. {listing(others, settings)}" if others else ""
    return f"{state}; the message waits for it in the relay{instead}"


def listing(seen: Sequence[Seen], settings: Settings, limit: int = 10) -> str:
    """One line that lists sessions: id, live or away, directory; claims are cleaned (F11)."""
    if not seen:
        return "No sessions are announced."
    parts = [
        f"{s.session.session_id} ({s.word(settings)}, in {shown_name(os.path.basename(s.session.cwd))})"
        for s in seen[:limit]
    ]
    more = f", and {len(seen) - limit} more" if len(seen) > limit else ""
    return "Sessions: " + ", ".join(parts) + more + "."
