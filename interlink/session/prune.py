"""Tidies what sessions left that nothing holds any more (T6), and purges held-back mail on request (G7).

For each such session: consumed bytes of the inbox go, and consumed messages and tombstones past their time; a
mailbox that is empty and old goes as a whole, with its counters. Temporary files of processes that are gone
go too. Unread messages, unsent ones, lock files (another process may have one open) and copies that were set aside
stay. Every step takes the locks that a server would take, so that a server which starts meanwhile meets a whole
file; `dry_run` takes none and changes nothing.
"""

import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from interlink import inbox_compact
from interlink.errors import StateError
from interlink.mailbox import staging
from interlink.mailbox.box import Box
from interlink.mailbox.look import look
from interlink.mailbox.store import Mailbox
from interlink.session import known
from interlink.session.known import Place
from interlink.settings import Settings
from interlink.state import files
from interlink.state.locks import holder_pids
from interlink.state.paths import Layout, is_session

PURGED = "purged"  # the mark of a held-back message that a person threw away


class Step(NamedTuple):
    """One thing that was done, or would be. `bytes`: what it frees, about."""

    what: str
    where: str
    detail: str
    bytes: int = 0


class Held(NamedTuple):
    """A session that is left alone, and why."""

    where: str
    why: str


class Pruned(NamedTuple):
    steps: list[Step]
    held: list[Held]
    faults: list[str]


def prune(layout: Layout, settings: Settings, now_ms: int, *, dry_run: bool) -> Pruned:
    """Tidy the whole state root; one session's fault does not stop the others. StateError: nothing can be read."""
    out = Pruned([], [], [])
    live = known.running(layout)
    for place in known.mailboxes(layout):
        why = held_by(layout, place.session, place.identity, live)
        if why:
            out.held.append(Held(place.shown, why))
            continue
        _attempt(out, partial(_mailbox, layout, place, settings, now_ms, dry_run))
    for session in _inbox_sessions(layout):
        why = held_by(layout, session, None, live)
        if why:
            out.held.append(Held(f"inbox of {session}", why))
            continue
        _attempt(out, partial(_inbox, layout, session, dry_run))
    _attempt(out, partial(_temps, layout, dry_run))
    return out


def held_by(layout: Layout, session: str, identity: str | None, live: Iterable[known.Running]) -> str:
    """Who uses a session now: a listener, a notifier, a registered server; "" for nobody. Takes no lock.

    `identity` None: under whatever identity.
    """
    for one in live:
        if one.session == session and identity in (None, one.identity):
            return f"server {one.process.pid}"
    keys = [identity] if identity is not None else known.identities(layout)
    locks = [("listener", layout.inbox(session, "lock"))]
    locks += [("server", layout.notifier_lock(key, session)) for key in keys]
    for what, path in locks:
        pids = holder_pids(path)
        if pids is None and os.path.exists(path):
            return f"perhaps a {what}: this system does not tell who holds {path}"
        if pids:
            return f"{what} {pids[0]}"
    return ""


def _attempt(out: Pruned, work: Callable[[], list[Step]]) -> None:
    try:
        out.steps.extend(work())
    except StateError as exc:
        out.faults.append(str(exc))


def _mailbox(layout: Layout, place: Place, settings: Settings, now_ms: int, dry_run: bool) -> list[Step]:
    path = layout.mailbox(place.identity, place.session)
    if dry_run:
        box = look(layout, place.identity, place.session)
        steps = _prune_box(box, place, settings, now_ms)
        return steps + _remove_empty(layout, place, box, path, settings, now_ms, dry_run=True)
    mailbox = Mailbox(layout, place.identity, place.session, settings)
    with mailbox.change() as box:
        before = files.signature(path)
        steps = _prune_box(box, place, settings, now_ms)
        removed = _remove_empty(layout, place, box, path, settings, now_ms, dry_run=False)
        box.dirty = bool(steps) and not removed and before is not None
    return steps + removed


def _prune_box(box: Box, place: Place, settings: Settings, now_ms: int) -> list[Step]:
    records, tombs, size = len(box.records), len(box.tombstones), len(box.encode())
    staging.prune(box, now_ms, settings)
    gone = records - len(box.records), tombs - len(box.tombstones)
    if gone == (0, 0):
        return []
    detail = f"{gone[0]} consumed messages and {max(gone[1], 0)} tombstones past their time"
    return [Step("messages", place.shown, detail, max(0, size - len(box.encode())))]


def _remove_empty(
    layout: Layout, place: Place, box: Box, path: str, settings: Settings, now_ms: int, *, dry_run: bool
) -> list[Step]:
    """Remove a mailbox without any content that nothing wrote to for `empty_keep_s`."""
    found = files.signature(path)
    if found is None or box.records or box.tombstones or box.head.resumes:
        return []
    age_ms = now_ms - found[2] // 1_000_000
    if age_ms < settings.empty_keep_s * 1000:
        return []
    if not dry_run:
        for name in (layout.counts(place.identity, place.session), path):
            files.remove(name)
        try:
            files.sync_dir(os.path.dirname(path))
        except OSError as exc:
            raise files.explain(exc, f"sync the folder of {path}") from exc
    return [Step("mailbox", place.shown, f"empty, untouched for {age_ms // 86_400_000} days", found[1])]


def _inbox_sessions(layout: Layout) -> list[str]:
    return sorted(n[:-6] for n in known.listed(layout.inbox_dir()) if n.endswith(".jsonl") and is_session(n[:-6]))


def _inbox(layout: Layout, session: str, dry_run: bool) -> list[Step]:
    done, size = inbox_compact.consumed_bytes(layout, session)
    if done == 0:
        return []
    if not dry_run:
        done = inbox_compact.compact(layout, session)
    return [Step("inbox", session, f"{done} of {size} bytes are consumed notices", done)] if done else []


def stale_temps(layout: Layout) -> list[str]:
    """Temporary files below the root that no living process can still be writing."""
    found = []
    for folder, _folders, names in os.walk(layout.root):
        found += [os.path.join(folder, name) for name in names if files.is_stale_temp(name)]
    return sorted(found)


def _temps(layout: Layout, dry_run: bool) -> list[Step]:
    steps = []
    for path in stale_temps(layout):
        try:
            size = os.stat(path).st_size
        except FileNotFoundError:
            continue
        if not dry_run:
            files.remove(path)
        steps.append(
            Step("temporary file", os.path.relpath(path, layout.root), "left by a process that is gone", size)
        )
    return steps


def purge_sender(
    layout: Layout, place: Place, sender: str, settings: Settings, now_ms: int, *, dry_run: bool
) -> int:
    """Throw away the unread mail of one sender; returns how many (G7). Their ids stay known as repeats.

    For the held-back mail of a removed peer: whether it is one, the caller has to know. StateError where the
    mailbox cannot be read or written.
    """

    def purge(box: Box) -> int:
        gone = [r for r in box.records.values() if r.unread and r.message.sender == sender]
        for record in gone:
            record.superseded_by = PURGED
            record.done_ms = now_ms
            box.put(record)
            box.bury(record)
        return len(gone)

    if dry_run:
        return purge(look(layout, place.identity, place.session))
    with Mailbox(layout, place.identity, place.session, settings).change() as box:
        count = purge(box)
        box.dirty = count > 0
    return count
