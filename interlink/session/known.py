"""Which identities and sessions this state root knows: mailboxes on disk, and servers that run now.

For commands. Everything here only looks: no lock, no write.
"""

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from interlink.errors import UsageError
from interlink.hosts import registry
from interlink.state import files
from interlink.state.paths import Layout, check_identity, check_session
from interlink.state.process import Process
from interlink.text import fingerprint
from interlink.trust.identity import match_keys

_SHOWN = 10


class Running(NamedTuple):
    """One live server, and the host processes that it is registered under (a launcher and its parent)."""

    identity: str
    session: str
    process: Process
    hosts: tuple[Process, ...]


class Place(NamedTuple):
    """One session of one identity."""

    identity: str
    session: str

    @property
    def shown(self) -> str:
        return f"{self.session} [{fingerprint(self.identity)}]"


def running(layout: Layout) -> list[Running]:
    """All live servers, each once, by session. StateError where the registry cannot be read."""
    found: dict[Process, Running] = {}
    for host, servers in registry.hosts(layout):
        for one in servers:
            before = found[one.process].hosts if one.process in found else ()
            found[one.process] = Running(one.identity, one.session, one.process, (*before, host))
    return sorted(found.values(), key=lambda r: (r.session, r.identity, r.process.pid))


def listed(folder: str) -> list[str]:
    """The names in a folder; none where there is no such folder. StateError where it cannot be listed."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as exc:
        raise files.explain(exc, f"list {folder}") from exc


def identities(layout: Layout) -> list[str]:
    """Keys that have a mailbox folder, sorted. StateError where the folder cannot be listed."""
    return sorted(name for name in listed(os.path.join(layout.root, "mailbox")) if is_identity(name))


def mailboxes(layout: Layout, identity: str | None = None) -> list[Place]:
    """Every mailbox file, of one identity or of all. StateError where a folder cannot be listed."""
    found: list[Place] = []
    for key in identities(layout) if identity is None else [identity]:
        try:
            found += [Place(key, session) for session in layout.sessions_with_mailbox(key)]
        except OSError as exc:
            raise files.explain(exc, f"list {layout.mailbox_dir(key)}") from exc
    return found


def places(layout: Layout) -> list[Place]:
    """Sessions with a mailbox or a server, sorted."""
    live = (Place(one.identity, one.session) for one in running(layout))
    return sorted({*mailboxes(layout), *live})


def choose_identity(wanted: str, own: str, known: Iterable[str]) -> str:
    """The key that `wanted` names, in full or by fingerprint; "": our own key, else the only known one.

    UsageError where that is nobody or several. `own` may be "".
    """
    known = [key for key in dict.fromkeys((own, *known)) if key]
    if wanted:
        found = match_keys(wanted, known)
        if len(found) == 1:
            return found[0]
        if not found and is_identity(wanted):
            return wanted
        what = f"belongs to {len(found)} keys: give the full key" if found else "is not known here"
        raise UsageError(f"the identity {wanted[:60]!r} {what}. {_listed('Known', map(fingerprint, known))}")
    if own:
        return own
    if len(known) == 1:
        return known[0]
    if not known:
        raise UsageError("no identity is known here: name one with --identity, or a key file with --key")
    raise UsageError(f"{len(known)} identities are known here: name one with --identity. {_keys(known)}")


def choose_place(session: str, identity: str, own: str, there: Sequence[Place]) -> tuple[Place, bool]:
    """(the place, whether it is known) for a session id or a unique prefix of a known one.

    Where several identities have that session, `identity` (key or fingerprint) decides; a session that nobody
    has is taken as it is, with our own key, else the only known one. UsageError: ambiguous, or not valid.
    """
    check_session(session)
    among = there
    if identity:
        key = choose_identity(identity, own, (p.identity for p in there))
        among = [p for p in there if p.identity == key]
    found = [p for p in among if p.session == session] or [p for p in among if p.session.startswith(session)]
    if len({p.session for p in found}) > 1:
        shown = _listed("Sessions", (p.session for p in found))
        raise UsageError(f"session prefix {session!r} is ambiguous. {shown}")
    if len(found) > 1:
        raise UsageError(
            f"{len(found)} identities have a session {found[0].session}: name one with --identity. "
            f"{_keys(p.identity for p in found)}"
        )
    if found:
        return found[0], True
    return Place(choose_identity(identity, own, (p.identity for p in there)), session), False


def _keys(keys: Iterable[str]) -> str:
    return _listed("Identities", map(fingerprint, keys))


def _listed(what: str, names: Iterable[str]) -> str:
    every = sorted(set(names))
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return f"{what}: {', '.join(every[:_SHOWN]) or 'none'}{more}"


def is_identity(name: str) -> bool:
    """True for a public key as a path part."""
    try:
        check_identity(name)
    except UsageError:
        return False
    return True
