"""The durable outbox (T5): what `send_message` took is sent, also after the server died.

A message is signed when it is sent, each time anew, with the same msg_id: a receiver that has it knows it
again. One route is served in order; routes do not wait for each other.

    pending --a relay took it--> bus_accepted        pending --24 h, or refused for good--> expired
"""

from collections import deque
from collections.abc import Callable
from typing import Final

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from interlink import log
from interlink.errors import InterlinkError, StateError, UsageError
from interlink.mailbox import states
from interlink.outlog import Change, Journal, Outgoing, apply
from interlink.relay.client import Relays
from interlink.session.limits import check_size
from interlink.settings import Settings
from interlink.trust import wire
from interlink.trust.identity import Identity

PERMANENT: Final = frozenset({400, 413, 422})


class Outbox:
    """Takes messages durably, and hands them to the relays until one has taken each."""

    def __init__(
        self,
        journal: Journal,
        identity: Identity,
        own_route: str,
        relays: Relays,
        settings: Settings,
        now_ms: Callable[[], int],
    ) -> None:
        self.journal = journal
        self._identity = identity
        self._own_route = own_route
        self._relays = relays
        self._settings = settings
        self._now_ms = now_ms
        self._queues: dict[str, deque[Outgoing]] = {}
        self._group: TaskGroup | None = None
        self._moved = anyio.Event()

    async def run(self) -> None:
        """Serve the queues until cancelled."""
        async with anyio.create_task_group() as group:
            self._group = group
            for route in list(self._queues):
                group.start_soon(self._serve, route)
            try:
                await anyio.sleep_forever()
            finally:
                self._group = None

    async def adopt(self, older_than_s: float = 0) -> int:
        """Queue what the journal has pending and we do not serve. What is younger than `older_than_s` another
        process of this session may be about to send; sent twice, it is stored once."""
        await to_thread.run_sync(self.journal.load)
        queued = {o.msg_id for q in self._queues.values() for o in q}
        adopted = [
            o
            for o in self.journal.entries.values()
            if o.state == states.PENDING
            and o.msg_id not in queued
            and not 0 <= self._now_ms() - o.ts < older_than_s * 1000  # from the future: the clock went back
        ]
        for out in adopted:
            self._enqueue(out)
        return len(adopted)

    async def put(self, out: Outgoing) -> None:
        """Take a message durably. UsageError when it is too long, or the outbox is full: nothing is kept then."""
        self._check(out)
        await to_thread.run_sync(self.journal.append, Change(op="queue", out=out))
        self._enqueue(out)

    async def settled(self, out: Outgoing, timeout_s: float) -> str:
        """The state after at most `timeout_s` seconds of waiting for it to leave `pending`."""
        with anyio.move_on_after(timeout_s):
            while self.state(out) == states.PENDING:
                await self._moved.wait()
        return self.state(out)

    def state(self, out: Outgoing) -> str:
        known = self.journal.entries.get(out.msg_id)
        return known.state if known else out.state

    def _check(self, out: Outgoing) -> None:
        s = self._settings
        check_size(self._message(out), s)
        size = len(out.text.encode("utf-8"))
        waiting = [o for o in self.journal.entries.values() if o.state == states.PENDING]
        held = sum(len(o.text.encode("utf-8")) for o in waiting)
        if len(waiting) >= s.outbox_max_messages or held + size > s.outbox_max_bytes:
            raise UsageError(
                f"the outbox is full ({len(waiting)} messages, {held} bytes wait for a relay): "
                "see whether a relay is up (list_pending, `interlink doctor`). Nothing was sent."
            )

    def _message(self, out: Outgoing) -> wire.Message:
        return wire.Message(
            sender=self._identity.public,
            to=out.to,
            text=out.text,
            ts=self._now_ms(),
            msg_id=out.msg_id,
            kind=out.kind,
            status=out.status,
            task_id=out.task_id,
            in_reply_to=out.in_reply_to,
            reply_to=self._own_route,
        )

    def _enqueue(self, out: Outgoing) -> None:
        queue = self._queues.get(out.route)
        if queue is not None:
            queue.append(out)
            return
        self._queues[out.route] = deque([out])
        if self._group is not None:
            self._group.start_soon(self._serve, out.route)

    async def _serve(self, route: str) -> None:
        queue = self._queues[route]
        told = False
        while queue:
            out = queue[0]
            wait_s = await self._attempt(out)
            if wait_s is None:
                queue.popleft()
                told = False
                continue
            if not told:
                log.event("send_waits", msg_id=out.msg_id, reason=out.reason, retry_s=wait_s)
                told = True
            await anyio.sleep(wait_s)
        del self._queues[route]

    async def _attempt(self, out: Outgoing) -> float | None:
        """Try once. None = done with it; else the seconds to wait before the next try."""
        s = self._settings
        if self._now_ms() - out.ts > s.pending_ttl_s * 1000:
            return await self._move(out, states.EXPIRED, "no relay took it within its lifetime")
        try:
            payload = wire.encode_message(wire.sign_message(self._message(out), self._identity))
            result = await self._relays.send(out.route, payload)
        except InterlinkError as exc:
            return await self._move(out, states.EXPIRED, str(exc))
        if result.accepted:
            return await self._move(out, states.BUS_ACCEPTED, None)
        errors = list(result.failed.values())
        out.reason = "; ".join(str(e) for e in errors) or "no relay answered"
        if errors and all(e.status in PERMANENT for e in errors):
            return await self._move(out, states.EXPIRED, out.reason)
        asked = [e.retry_after_s for e in errors if e.retry_after_s is not None]
        return min(max(s.outbox_retry_s, min(asked, default=0)), 60)

    async def _move(self, out: Outgoing, state: str, reason: str | None) -> float | None:
        change = Change(op="state", msg_id=out.msg_id, state=state, at=self._now_ms(), reason=reason)
        try:
            await to_thread.run_sync(self.journal.append, change)
        except StateError as exc:
            # The relay has it, the disk does not know: it may be sent once more after a restart.
            log.event("outbox_fault", msg_id=out.msg_id, error=exc)
            apply(self.journal.entries, change)
        if state == states.EXPIRED:
            log.event("send_gave_up", msg_id=out.msg_id, reason=reason)
        self._moved.set()
        self._moved = anyio.Event()
        return None
