"""One open session: its files, its relays, its tasks."""

import os
import secrets
import time
from collections.abc import Callable, Container
from typing import Final

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from interlink import inbox, log, tasks
from interlink.errors import SetupError, StateError, UsageError
from interlink.hosts import registry
from interlink.hosts.base import HostAdapter
from interlink.hosts.notice_text import render_aside
from interlink.mailbox import states
from interlink.mailbox.record import Record, Tombstone
from interlink.mailbox.staging import STORED, Acknowledged, Receipt
from interlink.mailbox.store import Mailbox, View
from interlink.outlog import Journal, Outgoing
from interlink.relay.client import Relays
from interlink.session import presence
from interlink.session.admission import Admission, Admitted
from interlink.session.attendance import Attendance, session_in
from interlink.session.config import Config, read_token
from interlink.session.notifier import Notifier
from interlink.session.outbox import Outbox
from interlink.session.pairing import Pairing
from interlink.session.receiving import Receiving
from interlink.settings import Settings
from interlink.state import files
from interlink.state.paths import Layout
from interlink.trust import wire
from interlink.trust.gate import SELF
from interlink.trust.identity import Identity, load_key
from interlink.trust.pairing import PairingStore
from interlink.trust.peers import PeersFile

SEND_WAIT_S: Final = 3.0
ASIDES: Final = 8  # notices under way at one time about messages that were set aside

AdapterFactory = Callable[["Session"], HostAdapter]


def now_ms() -> int:
    """The wall clock, ms since 1970."""
    return time.time_ns() // 1_000_000


class Session:
    """Opened by `open_session` (blocking); then `run` until cancelled, then `aclose`."""

    def __init__(self, config: Config, session_id: str, settings: Settings, identity: Identity) -> None:
        self.config = config
        self.id = session_id
        self.settings = settings
        self.identity = identity
        self.layout = Layout(config.root)
        self.peers = PeersFile(config.peers_path, identity.public, settings)
        self.relays = Relays(config.urls, settings, token=read_token(config.token_file))
        self.mailbox = Mailbox(self.layout, identity.public, session_id, settings)
        self.admission = Admission(self.layout, self.mailbox, settings)
        self.journal = Journal(self.layout, identity.public, session_id, settings)
        self.outbox = Outbox(self.journal, identity, self.route, self.relays, settings, now_ms)
        self.attendance = Attendance(
            config.name, session_id, config.cwd, identity, self.relays, self.peers, settings, now_ms
        )
        self.adapter: HostAdapter
        self.notifier: Notifier
        self.receiving: Receiving
        self.pairing = Pairing(
            PairingStore(self.layout, identity.public, session_id),
            identity,
            self.route,
            config.name,
            self.peers,
            self.relays,
            settings,
            now_ms,
            self._tell,
            mine=lambda: self.notifier.holding,
            at_once=lambda: self.adapter.uses_inbox,
        )
        self._registration: registry.Registration | None = None
        self._adopting = anyio.Event()
        self._group: TaskGroup | None = None
        self._asides = 0

    @property
    def route(self) -> str:
        return wire.make_route(self.identity.public, self.id)

    @property
    def opened(self) -> bool:
        """False for one that only looks things up (no tasks, no mailbox)."""
        return self._registration is not None

    @property
    def here(self) -> wire.Session:
        """What our announcements say of this session."""
        return self.attendance.here

    def set_summary(self, summary: str) -> None:
        """What our announcements say that we are doing; announced at once."""
        self.attendance.set_summary(summary)

    def nudge(self) -> None:
        """Look at the mailbox at once: something changed what is due."""
        if self.opened:
            self.notifier.nudge()

    # -- life ---------------------------------------------------------------------------------------

    def open(self, make_adapter: AdapterFactory) -> None:
        """Make directories, claim the inbox, register under the host. StateError says what is wrong."""
        files.ensure_root(self.layout.root)
        files.tighten_tree(self.layout.root)
        self.adapter = make_adapter(self)
        if self.adapter.uses_inbox:
            inbox.prepare(self.layout)
            inbox.claim(self.layout, self.id, self.identity.public)
        self.notifier = Notifier(
            self.layout, self.mailbox, self.peers, self.adapter, self.settings, now_ms, self._took_over
        )
        self.receiving = Receiving(
            self.admission,
            self.peers,
            now_ms,
            control=self.pairing.handle,
            aside=self._aside,
            stored=self._stored,
        )
        try:
            files.remove_stale_temps(self.layout.mailbox_dir(self.identity.public))
            self.admission.open(now_ms())
            self.journal.load()
        except StateError as exc:  # visible in every answer, and tried again with every batch (M17)
            log.event("storage_fault", error=exc)
        self._registration = registry.register(self.layout, os.getppid(), self.id, self.identity.public)
        log.event("session", id=self.id, identity=self.identity.public[:8], host=self.config.host)

    async def run(self) -> None:
        """All tasks, until cancelled."""
        async with anyio.create_task_group() as group:
            self._group = group
            group.start_soon(self.outbox.run)
            group.start_soon(self.relays.poll, self.route, self.receiving.handle)
            group.start_soon(self.notifier.run)
            group.start_soon(self.attendance.run)
            group.start_soon(self._keep_counts)
            group.start_soon(self._adopt_outbox)
            group.start_soon(self.pairing.run)

    async def aclose(self) -> None:
        """End what was started, let go of every lock, say goodbye. Bounded to most of the shutdown grace."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(self.settings.shutdown_grace_s * 0.7):
            await self.adapter.aclose()
            self.admission.refusals.flush(now_ms(), at_once=True)
            try:
                if self._registration is not None:
                    self._registration.release()
            except StateError as exc:  # the next server that registers removes it
                log.event("registration_fault", error=exc)
            await self.attendance.leave()
            await self.relays.aclose()

    async def _keep_counts(self) -> None:
        while True:
            await to_thread.run_sync(self.admission.refusals.flush, now_ms())
            await anyio.sleep(self.settings.heartbeat_s)

    async def _adopt_outbox(self) -> None:
        """The notifier's process sends what nobody else does: at once when it takes over, and now and then what
        a process that died or a command left in the outbox (T5)."""
        told = ""
        while True:
            with anyio.move_on_after(self.settings.heartbeat_s) as waited:
                await self._adopting.wait()
            self._adopting = anyio.Event()
            if not self.notifier.holding:
                continue
            older_than_s = self.settings.heartbeat_s if waited.cancelled_caught else 0
            try:
                count, fault = await self.outbox.adopt(older_than_s=older_than_s), ""
            except StateError as exc:
                count, fault = 0, str(exc)
            if fault != told:
                log.event("outbox_fault" if fault else "outbox_ok", error=fault or None)
                told = fault
            if count:
                log.event("outbox_adopted", count=count)

    async def _tell(self, text: str, kind: str) -> bool:
        return await self.notifier.special(text, kind)

    def _took_over(self) -> None:
        self._adopting.set()
        self.pairing.nudge()

    # -- receiving ----------------------------------------------------------------------------------

    def _stored(self, results: list[Admitted]) -> None:
        for result in results:
            if result.outcome == STORED and result.record is not None:
                record = result.record
                self.attendance.meet(record.message.reply_to or "", record.message.sender)
                self._mark_task(tasks.received, record.message.task_id, record.message.status, result.petname)
                log.event("stored", msg_id=record.receipt_id, peer=record.message.sender[:8], seq=record.seq)
        self.notifier.nudge()

    def _mark_task(self, mark: Callable[..., None], *what: str | None) -> None:
        try:
            mark(self.layout, self.id, *what, now_ms())
        except StateError as exc:  # a reminder is lost, no message (T4)
            log.event("task_marker_fault", error=exc)

    async def _aside(self, results: list[Admitted]) -> None:
        """Tell the host of messages that were set aside, before the relay forgets them (M22).

        Where the host may hang (channel, Codex) beside the polling: message_status knows of them anyway (N3).
        """
        for result in results:
            if result.record is not None:
                size, msg_id = result.record.size, result.record.receipt_id
                log.event("undeliverable", peer=result.record.message.sender[:8], size=size)
                text = render_aside(msg_id, size or 0, result.petname, result.record.message.sender)
                if self.adapter.uses_inbox:
                    await self.notifier.special(text, "aside")
                elif self._group is not None and self._asides < ASIDES:
                    self._asides += 1
                    self._group.start_soon(self._tell_aside, text)

    async def _tell_aside(self, text: str) -> None:
        try:
            await self.notifier.special(text, "aside")
        finally:
            self._asides -= 1

    # -- reading and consuming ----------------------------------------------------------------------

    def view(self) -> View:
        """What this user sees now. SetupError while peers.json cannot be used (G7)."""
        return View(self.identity.public, self.peers.current().by_key, now_ms())

    def view_name(self, entry: Record | Tombstone) -> str:
        """The petname to show for a record's sender; the stored one while peers.json is broken."""
        try:
            return self.view().name(entry)
        except SetupError:
            return entry.peer

    async def warnings(self) -> list[str]:
        """What a person should know while reading mail: storage, trust and relay faults, one line each (M17)."""
        lines = [f"Warning: {problem}" for problem in self.settings.problems]
        if self.mailbox.fault:
            lines.append(f"Warning: new messages cannot be stored and wait on the relay: {self.mailbox.fault}")
        if self.admission.full:
            lines.append("Warning: this mailbox is full; more messages wait on the relay: acknowledge some.")
        quarantined = await to_thread.run_sync(self.mailbox.quarantined, self.view())
        if quarantined:
            lines.append(f"{quarantined} unread messages of removed peers are held back, see `interlink doctor`.")
        down = [s for s in self.relays.status() if s.up is False]
        if down and len(down) == len(self.config.urls):
            lines.append(
                f"Warning: no relay answers ({down[0].url}: {down[0].error}); new messages cannot arrive."
            )
        return lines

    async def acknowledge(self, receipts: list[Receipt]) -> Acknowledged:
        """Consume receipts durably, and tell the listener's inbox what is consumed."""
        result = await to_thread.run_sync(self.mailbox.acknowledge, receipts, now_ms())
        for resume_id in result.resumed:
            log.event("resumed", resume_id=resume_id)
        if result.newly:
            await to_thread.run_sync(self._mark_consumed)
        self.notifier.nudge()
        return result

    def _mark_consumed(self) -> None:
        if self.adapter.uses_inbox:
            inbox.set_consumed(self.layout, self.id, self.mailbox.watermark())

    # -- sending ------------------------------------------------------------------------------------

    async def roster(
        self, keys: Container[str] | None = None, *, fresh: bool = False
    ) -> list[presence.Seen] | None:
        """The valid roster of all relays that answer, of these keys or of all; None where none answers."""
        return await self.attendance.roster(keys, fresh=fresh)

    async def target(self, to: str, session: str | None, in_reply_to: str | None) -> presence.Target:
        """Where a message goes (B4). UsageError or SetupError: nothing is sent then."""
        petname, key = presence.whose(to, self.peers.current(), self.identity.public)
        sticky = await to_thread.run_sync(self._sticky, key)
        replying = await to_thread.run_sync(self._replying, key, in_reply_to) if in_reply_to else None

        async def chosen(fresh: bool) -> presence.Target:
            roster = await self.attendance.roster({key}, fresh=fresh)
            return presence.choose(petname, key, session or None, roster, sticky, self.id, replying, self.settings)

        try:
            return await chosen(fresh=False)
        except UsageError:  # a session may have been announced since the roster was asked for
            return await chosen(fresh=True)

    def _sticky(self, key: str) -> list[str]:
        """Sessions of this key that wrote to us, latest first."""
        # Progress of no task is a session's goodbye: nobody answers that.
        records = [
            r
            for r in self.mailbox.history(key)
            if isinstance(r, Record) and not (r.is_update and r.message.task_id is None)
        ]
        found = [_session_of(r, key) for r in sorted(records, key=lambda r: -r.seq)]
        own = self.id if key == self.identity.public else None
        return list(dict.fromkeys(s for s in found if s and s != own))

    def _replying(self, key: str, in_reply_to: str) -> str | None:
        for found in self.mailbox.find(in_reply_to, key):
            if isinstance(found, Record):
                return _session_of(found, key)
        return None

    async def send(
        self,
        target: presence.Target,
        text: str,
        *,
        status: str | None = None,
        task_id: str | None = None,
        in_reply_to: str | None = None,
    ) -> tuple[Outgoing, str]:
        """Take a message durably and try to hand it over. Returns it and its state after a few seconds.

        UsageError when it is too long or the outbox is full; StateError where the disk does not take it.
        """
        if target.petname == SELF and target.session == self.id:
            raise UsageError("this is a message to this very session: name another session of yours")
        out = Outgoing(
            msg_id=secrets.token_hex(16),
            peer=target.petname,
            to=target.key,
            route=target.route,
            text=text,
            ts=now_ms(),
            status=status,
            task_id=task_id,
            in_reply_to=in_reply_to,
        )
        await self.outbox.put(out)
        self.attendance.meet(out.route, out.to)
        self._mark_task(tasks.sent, task_id, status)
        state = await self.outbox.settled(out, SEND_WAIT_S)
        log.event("sent", msg_id=out.msg_id, peer=out.to[:8], state=state)
        return out, state

    def outbound(self, msg_id: str) -> Outgoing | None:
        """An entry of the outbound log."""
        return self.journal.entries.get(msg_id)

    def pending(self) -> list[Outgoing]:
        """What no relay has taken yet."""
        return [o for o in self.journal.entries.values() if o.state == states.PENDING]


def _session_of(record: Record, key: str) -> str | None:
    return session_in(record.message.reply_to or "", key)


def open_session(config: Config, session_id: str, settings: Settings, make_adapter: AdapterFactory) -> Session:
    """Open a session. SetupError or StateError says what is missing and how to mend it."""
    identity = load_key(config.key_path)
    session = Session(config, session_id, settings, identity)
    session.open(make_adapter)
    return session
