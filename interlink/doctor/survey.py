"""One look at everything below a state root, for `status`, `inbox` and `doctor`. Takes no lock, changes nothing.

A server or listener may change a file between two looks: each single fact is true at its own moment.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from interlink import inbox_compact
from interlink.errors import StateError
from interlink.listener.lock import Holder, read_holder
from interlink.mailbox import states
from interlink.mailbox.box import Box
from interlink.mailbox.look import look
from interlink.mailbox.record import Notice, Record
from interlink.mailbox.store import View
from interlink.outlog import Journal
from interlink.session import known
from interlink.session.counters import Refused, read_counts
from interlink.session.known import Place, Running
from interlink.settings import Settings
from interlink.state.locks import holder_pids
from interlink.state.paths import Layout, is_session


@dataclass
class Seen:
    """One session of one identity. Times in ms; `None` in `listeners`, `notifiers`: the system does not tell.

    `unread`: attention-worthy; `progress`: updates beside them; `quiet`: ephemeral ones; `held_back`: unread mail
    of senders that are no peers any more. `fault`: why the mailbox cannot be read. `waiting`: inbox notices that
    no listener took yet.
    """

    place: Place
    servers: list[Running] = field(default_factory=list)
    box: Box | None = None
    fault: str = ""
    unread: int = 0
    progress: int = 0
    quiet: int = 0
    held_back: int = 0
    oldest_ms: int | None = None
    listeners: list[int] | None = None
    holder: Holder | None = None
    notifiers: list[int] | None = None
    waiting: int = 0
    pending: int = 0
    refused: Refused = field(default_factory=Refused)

    @property
    def notice(self) -> Notice | None:
        return self.box.head.notice if self.box is not None else None

    @property
    def armed(self) -> bool | None:
        """Whether a listener waits: by the kernel's table, else by what the last holder wrote."""
        alive = self.holder is not None and self.holder.listener.alive()
        return True if self.listeners or alive else None if self.listeners is None else False

    @property
    def served(self) -> bool:
        """True when a server has this session now, registered or by its notifier lock."""
        return bool(self.servers or self.notifiers)


def survey(layout: Layout, petnames: Mapping[str, str] | None, settings: Settings, now_ms: int) -> list[Seen]:
    """Every session with a mailbox, a server or something else left, sorted. `petnames` None: trust is unknown.

    StateError where not even the folders can be listed.
    """
    live = known.running(layout)
    places = {*known.mailboxes(layout), *_left(layout), *(Place(r.identity, r.session) for r in live)}
    return [_one(layout, place, live, petnames, settings, now_ms) for place in sorted(places)]


def _one(
    layout: Layout,
    place: Place,
    live: list[Running],
    petnames: Mapping[str, str] | None,
    settings: Settings,
    now_ms: int,
) -> Seen:
    identity, session = place
    seen = Seen(place, [r for r in live if (r.identity, r.session) == place])
    try:
        seen.box = look(layout, identity, session)
        _count(seen, seen.box, View(identity, petnames or {}, now_ms), petnames is None)
        journal = Journal(layout, identity, session, settings)
        journal.load()
        seen.pending = sum(1 for out in journal.entries.values() if out.state == states.PENDING)
        seen.waiting = inbox_compact.unconsumed(layout, session)
        seen.holder = read_holder(layout.inbox(session, "lock"))
    except StateError as exc:
        seen.fault = str(exc)
    seen.listeners = holder_pids(layout.inbox(session, "lock"))
    seen.notifiers = holder_pids(layout.notifier_lock(identity, session))
    seen.refused = read_counts(layout, identity, session)
    return seen


def _count(seen: Seen, box: Box, view: View, trust_all: bool) -> None:
    for record in box.records.values():
        if not record.unread:
            continue
        if not trust_all and not view.trusts(record.message.sender):
            seen.held_back += 1
        elif not trust_all and not view.sees(record):
            continue  # ephemeral and past its life
        elif record.attention:
            seen.unread += 1
            seen.oldest_ms = min(seen.oldest_ms or record.arrived_ms, record.arrived_ms)
        elif record.is_update:
            seen.progress += 1
        else:
            seen.quiet += 1


def held_back(box: Box, petnames: Mapping[str, str], now_ms: int) -> list[Record]:
    """Unread mail of senders that are no peers (any more), which no tool shows (G7)."""
    view = View(box.head.identity, petnames, now_ms)
    return [r for r in box.records.values() if r.unread and not view.trusts(r.message.sender)]


def _left(layout: Layout) -> list[Place]:
    """Sessions that left an outbox, or counts of what was refused."""
    found = []
    for area, suffix in (("outbox", ".jsonl"), ("counts", ".json")):
        folder = os.path.join(layout.root, area)
        for identity in filter(known.is_identity, known.listed(folder)):
            names = known.listed(os.path.join(folder, identity))
            stems = [n.removesuffix(suffix) for n in names if n.endswith(suffix)]
            found += [Place(identity, stem) for stem in stems if is_session(stem)]
    return found
