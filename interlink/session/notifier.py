"""Wakes the host: one notifier a session, by a kernel lock; reservation, handoff, settlement (M7 to M10, M18).

A one-second loop and a nudge after each arrival. While nothing changed and no time is reached, a round costs
a stat and no parse. What a process that died left reserved is handed off again by the one that takes over.
"""

import secrets
import time
from collections.abc import Callable

import anyio
from anyio import to_thread

from interlink import inbox, log
from interlink.errors import SetupError, StateError
from interlink.hosts.base import HostAdapter, Notice, Outcome
from interlink.hosts.notice_text import render_notice
from interlink.mailbox.states import DELIVERY_FAILED
from interlink.mailbox.store import Handoff, Mailbox, View
from interlink.settings import Settings
from interlink.state import files
from interlink.state.locks import Lock
from interlink.state.paths import Layout
from interlink.trust.peers import PeersFile


class Notifier:
    """`adapter` is where notices go. `run` until cancelled; `nudge` after every arrival or acknowledgement."""

    def __init__(
        self,
        layout: Layout,
        mailbox: Mailbox,
        peers: PeersFile,
        adapter: HostAdapter,
        settings: Settings,
        now_ms: Callable[[], int],
        on_take_over: Callable[[], None] = lambda: None,
    ) -> None:
        self.adapter = adapter
        self.holding = False
        self.last: Outcome | None = None
        self._layout = layout
        self._mailbox = mailbox
        self._peers = peers
        self._settings = settings
        self._now_ms = now_ms
        self._on_take_over = on_take_over
        self._lock = Lock(layout.notifier_lock(mailbox.identity, mailbox.session))
        self._woken = anyio.Event()
        self._taking_over = False
        self._seen: tuple[tuple[int, int, int] | None, tuple[int, int, int] | None] | None = None
        self._look_at_ms: int | None = None
        self._looked_ms = 0
        self._watermark: int | None = None
        self._fault = ""

    def nudge(self) -> None:
        """Look at once instead of at the next tick."""
        self._woken.set()

    def view(self) -> View:
        """What may be seen now. SetupError while peers.json cannot be used."""
        return View(self._mailbox.identity, self._peers.current().by_key, self._now_ms())

    async def run(self) -> None:
        """Until cancelled. Storage faults are logged on change and tried again at the next tick (M17)."""
        try:
            while True:
                try:
                    if self.holding or await self._take_lock():
                        await self.round()
                    self._tell("")
                except (StateError, SetupError) as exc:
                    self._tell(str(exc))
                    self._seen = None
                with anyio.move_on_after(self._settings.reconcile_s):
                    await self._woken.wait()
                self._woken = anyio.Event()
        finally:
            self._lock.release()
            self.holding = False

    def _tell(self, fault: str) -> None:
        if fault != self._fault:
            log.event("notifier_fault" if fault else "notifier_ok", error=fault or None)
            self._fault = fault

    async def _take_lock(self) -> bool:
        if not await to_thread.run_sync(self._lock.try_acquire):
            return False
        self.holding = True
        self._taking_over = True
        log.event("notifier", session=self._mailbox.session, host=self.adapter.name)
        self._on_take_over()
        return True

    async def round(self) -> None:
        """One look: hand off what is due. Nothing but two stats where nothing can be due (M9)."""
        now = self._now_ms()
        seen = (self._mailbox.signature(), files.signature(self._peers.path))
        unchanged = seen == self._seen and self._looked_ms <= now and not self._taking_over
        if unchanged and (self._look_at_ms is None or now < self._look_at_ms):
            return
        view = self.view()
        handoff = await to_thread.run_sync(self._reserve, view, self._taking_over)
        self._taking_over = False
        if handoff is not None:
            await self._hand_off(handoff, view)
        self._look_at_ms = await to_thread.run_sync(self._mailbox.next_look_ms)
        self._looked_ms = now
        self._seen = seen  # not what is there by now: what changed meanwhile, by us too, is for the next look

    def _reserve(self, view: View, taking_over: bool) -> Handoff | None:
        handoff = self._mailbox.reserve(view, secrets.token_hex(4), taking_over=taking_over)
        self._mark_consumed()
        return handoff

    def _mark_consumed(self) -> None:
        """Keep the listener's watermark true before anything new is put in its inbox (C11)."""
        mark = self._mailbox.watermark()
        if mark != self._watermark and self.adapter.uses_inbox:
            inbox.set_consumed(self._layout, self._mailbox.session, mark)
        self._watermark = mark

    async def _hand_off(self, handoff: Handoff, view: View) -> None:
        senders: dict[str, list[int | str]] = {}
        for record in handoff.waiting:
            key = record.message.sender
            entry = senders.setdefault(key, [view.name(record), 0])
            entry[1] = int(entry[1]) + 1
        notice = handoff.notice
        text = render_notice(
            notice.id,
            len(handoff.waiting),
            [(str(name), key, int(count)) for key, (name, count) in senders.items()],
            handoff.progress,
            self._settings.notice_max_bytes,
        )
        started = time.monotonic()
        outcome = await self.adapter.handoff(
            Notice(id=notice.id, text=text, through=notice.through, count=len(handoff.waiting))
        )
        self.last = outcome
        log.event(
            "notice",
            id=notice.id,
            state=outcome.state,
            count=len(handoff.waiting),
            attempt=notice.attempt,
            ms=int((time.monotonic() - started) * 1000),
            reason=outcome.reason or None,
        )
        definite = outcome.state == DELIVERY_FAILED and not outcome.uncertain
        await to_thread.run_sync(
            lambda: self._mailbox.settle(notice.id, outcome.state, self._now_ms(), definite_failure=definite)
        )

    async def special(self, text: str, kind: str) -> bool:
        """A notice beside the mailbox (pairing, set aside): durable where the adapter is. False = try again."""
        outcome = await self.adapter.handoff(
            Notice(id=secrets.token_hex(4), text=text, through=0, count=0, kind=kind)
        )
        log.event("notice", kind=kind, state=outcome.state, reason=outcome.reason or None)
        return outcome.ok
