"""Pairing as it runs: knocks and acceptances in, control messages out, notices to the person (G4, G8, B6, T3).

Nothing that a peer sends changes whom we trust: an acceptance adds a key only where the person agreed to that
key when it was asked; otherwise the person is told the command.
"""

import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import anyio
from anyio import to_thread

from interlink import log
from interlink.errors import InterlinkError, StateError, UsageError
from interlink.relay.client import Relays
from interlink.session.presence import Seen
from interlink.settings import Settings
from interlink.state import files
from interlink.text import clean_line, fingerprint
from interlink.trust import pairing as rules
from interlink.trust import wire
from interlink.trust.identity import Identity, match_keys
from interlink.trust.pairing import PairingStore, Request, State
from interlink.trust.peers import PeersFile, check_petname

T = TypeVar("T")

HEADING = "[Interlink pairing notice]"


class Pairing:
    """`tell(text, kind)` hands a pairing notice to the host; True once the host's adapter has it, or kept it.

    `mine()`: this process tells notices (of several of one session, the one that notifies). `at_once()`: the
    adapter is a file, so that a notice is on disk before the relay may forget its message (C6); where a host may
    hang, notices are told beside the polling instead (N3).
    """

    def __init__(
        self,
        store: PairingStore,
        identity: Identity,
        own_route: str,
        name: str,
        peers: PeersFile,
        relays: Relays,
        settings: Settings,
        now_ms: Callable[[], int],
        tell: Callable[[str, str], Awaitable[bool]],
        *,
        mine: Callable[[], bool] = lambda: True,
        at_once: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store = store
        self._identity = identity
        self._own_route = own_route
        self._name = name
        self._peers = peers
        self._relays = relays
        self._settings = settings
        self._now_ms = now_ms
        self._tell = tell
        self._mine = mine
        self._at_once = at_once
        self._telling = anyio.Lock()
        self._told_ms = 0
        self._knocks_at_ms: int | None = None  # when the knocks that wait may be told
        self._work = anyio.Event()

    def nudge(self) -> None:
        """Look at once: something is to be sent, or this process became the one that tells."""
        self._work.set()

    async def _change(self, change: Callable[[State], T]) -> T:
        return await to_thread.run_sync(self._store.update, change)

    # -- in -----------------------------------------------------------------------------------------

    async def handle(self, msg: wire.Message) -> bool:
        """One verified control message; True when it is durable here and the relay may forget it.

        Raises StateError, and SetupError while peers.json cannot be used: then it stays on the relay.
        """
        if msg.kind == "pair_request":
            await self._knocked(msg)
        else:
            await self._accepted(msg)
        self.nudge()
        return await self._tell_waiting() if self._at_once() and self._mine() else True

    async def _knocked(self, msg: wire.Message) -> None:
        request = rules.inbound_request(msg, self._now_ms())
        if request is None:
            log.event("refused", reason="knock_without_route", sender=fingerprint(msg.sender))
            return
        if msg.sender == self._identity.public:
            return
        known = msg.sender in self._peers.current().by_key
        wanted = await self._change(lambda s: self._take_knock(s, request, msg.ts, known))
        if wanted is not None:  # the person agreed to this key before it knocked: both sides want it
            known = await self._trust(wanted)
        if known:  # it knocks because our acceptance did not reach it
            try:
                await self._change(lambda s: self._queue_accept(s, request))
            except UsageError as exc:
                log.event("pairing_entry_dropped", reason=exc, to=fingerprint(request.key))

    def _take_knock(self, state: State, request: Request, ts: int, known: bool) -> Request | None:
        wanted = next((r for r in state.outbound if r.key == request.key and r.consent), None)
        # The same id with a later time is their operator asking again, also after a rejection here.
        if wanted is None and not known and rules.remember(state, f"{request.request_id}@{ts}"):
            new = rules.knock(state, request)
            log.event("knock", sender=fingerprint(request.key), new=new)
        return wanted

    def _queue_accept(self, state: State, request: Request) -> None:
        accept = self._control("pair_accept", request.key, request.request_id)
        rules.enqueue(state, request.reply_to, accept)
        state.inbound = [r for r in state.inbound if r.key != request.key]
        _forget_outbound(state, request.key)

    async def _accepted(self, msg: wire.Message) -> None:
        known = msg.sender in self._peers.current().by_key
        request = await self._change(lambda s: _take_accept(s, msg, known))
        if request is None:
            log.event("refused", reason="accept_without_request", sender=fingerprint(msg.sender))
        elif request.consent or known:
            await self._trust(request)

    async def _trust(self, request: Request) -> bool:
        """Add the key that the person agreed to, then forget the request. False: a petname conflict, told."""
        text, added = f"Pairing with the key {fingerprint(request.key)} is complete.", True
        try:
            if request.key not in self._peers.current().by_key:
                await to_thread.run_sync(self._peers.add, request.name, request.key)
        except UsageError as exc:
            added = False
            text = (
                f"The key {fingerprint(request.key)} agreed to pair, but it could not be added: {exc}. "
                "Your user can add it under another name with `interlink peers add`."
            )

        def done(state: State) -> None:
            _forget_outbound(state, request.key)
            rules.tell(state, f"{HEADING} {text} No reply is needed.")

        await self._change(done)
        log.event("paired" if added else "pairing_conflict", peer=fingerprint(request.key))
        return added

    # -- to the person ------------------------------------------------------------------------------

    async def _tell_waiting(self) -> bool:
        """Tell what waits, knocks last; False when the host did not take it."""
        async with self._telling:
            state = await to_thread.run_sync(self._store.read)
            for text in state.untold:
                if not await self._tell(text, "pairing"):
                    return False
                await self._change(partial(_told, text=text))
            return await self._tell_knocks([r for r in state.inbound if not r.noticed])

    async def _tell_knocks(self, fresh: list[Request]) -> bool:
        """Tell the person who knocks, at most once every `knock_interval_s`, all keys in one notice (G4)."""
        self._knocks_at_ms = None
        if not fresh:
            return True
        waited = self._now_ms() - self._told_ms
        left = int(self._settings.knock_interval_s * 1000) - waited
        if waited >= 0 and left > 0:
            self._knocks_at_ms = self._now_ms() + left
            return True
        shown = ", ".join(fingerprint(r.key) for r in fresh[:10])
        more = f" and {len(fresh) - 10} more" if len(fresh) > 10 else ""
        noun = "key knocks" if len(fresh) == 1 else "keys knock"
        text = (
            f"{HEADING} {len(fresh)} unknown {noun}, fingerprint {shown}{more}. Tell your user; they compare the "
            "fingerprint with the other operator's. list_pair_requests shows more, accept_pair or reject_pair "
            "answers. Nothing is admitted until your user agrees."
        )
        if not await self._tell(text, "pairing"):
            return False
        self._told_ms = self._now_ms()
        keys = {r.key for r in fresh}
        await self._change(lambda s: _mark_noticed(s, keys))
        return True

    # -- out ----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Send what is queued and tell what is untold, until cancelled; faults are logged on change."""
        fault = ""
        shortest, longest = self._settings.outbox_retry_s, max(self._settings.notice_schedule_s)
        pause, tell_at = shortest, 0.0
        while True:
            self._work = anyio.Event()
            seen = self._signature()  # before the pass: what changes during it is for the next one
            waits: list[float] = []
            try:
                if await self._send_queued():
                    waits.append(shortest)
                if self._mine() and anyio.current_time() >= tell_at:
                    if await self._tell_waiting():
                        pause = shortest
                    else:  # the host does not take it: again, less and less often (T3)
                        tell_at, pause = anyio.current_time() + pause, min(pause * 2, longest)
                now_fault = ""
            except StateError as exc:
                now_fault = str(exc)
                waits.append(shortest)
            if now_fault != fault:
                log.event("pairing_fault" if now_fault else "pairing_ok", error=now_fault or None)
                fault = now_fault
            if tell_at > anyio.current_time():
                waits.append(tell_at - anyio.current_time())
            if self._knocks_at_ms is not None:
                # By the wall clock, which may jump: looked at more often than it says.
                waits.append(min(max(0, self._knocks_at_ms - self._now_ms()) / 1000, shortest))
            await self._wait(seen, min(waits, default=float("inf")))

    async def _wait(self, seen: object, most_s: float) -> None:
        """Until there is work: nudged, the file is not as seen (a command accepted), or `most_s` passed."""
        with anyio.move_on_after(most_s):
            while self._signature() == seen:
                with anyio.move_on_after(self._settings.reconcile_s):
                    await self._work.wait()
                    return

    def _signature(self) -> object:
        try:
            return files.signature(self._store.path)
        except StateError as exc:
            return str(exc)

    async def _send_queued(self) -> bool:
        """One pass over the queue; True while something waits for a relay."""
        waiting = False
        for queued in (await to_thread.run_sync(self._store.read)).queued:
            msg = queued.msg
            if msg.sender != self._identity.public or msg.kind == "message":
                log.event("pairing_entry_dropped", reason="not a control message of ours")
                await self._change(partial(_unqueue, msg_id=msg.msg_id))
                continue
            msg.ts = self._now_ms()
            try:
                payload = wire.encode_message(wire.sign_message(msg, self._identity))
                result = await self._relays.send(queued.route, payload)
            except InterlinkError as exc:
                log.event("pairing_entry_dropped", reason=exc)
                await self._change(partial(_unqueue, msg_id=msg.msg_id))
                continue
            if result.accepted:
                log.event("pairing_sent", kind=msg.kind, to=fingerprint(msg.to))
                await self._change(partial(_unqueue, msg_id=msg.msg_id))
            else:
                waiting = True
        return waiting

    def _control(self, kind: str, to: str, answers: str | None) -> wire.Message:
        msg = wire.Message(
            sender=self._identity.public,
            to=to,
            text=self._name,
            ts=self._now_ms(),
            msg_id=secrets.token_hex(16),
            kind=kind,
            in_reply_to=answers,
            reply_to=self._own_route,
        )
        return wire.sign_message(msg, self._identity)

    # -- the person's side --------------------------------------------------------------------------

    def pick(self, target: str, roster: list[Seen]) -> Seen:
        """The announced session that `target` means: full key, fingerprint or claimed name. UsageError."""
        others = [s for s in roster if s.key != self._identity.public]
        keys = match_keys(target, list(dict.fromkeys(s.key for s in others)))
        if not keys:
            keys = list(dict.fromkeys(s.key for s in others if clean_line(s.name, 64) == target))
        if not keys:
            raise UsageError("nobody of that name, key or fingerprint is announced: see discover")
        if len(keys) > 1:
            shown = ", ".join(fingerprint(k) for k in keys[:10])
            raise UsageError(f"{len(keys)} keys fit ({shown}): give the full key")
        return next(s for s in others if s.key == keys[0])  # the roster has the youngest first

    def petname_for(self, seen: Seen, target: str) -> str:
        """The petname that a request proposes: the target where it is a name, else the claimed name."""
        by_key = target in (seen.key, fingerprint(seen.key))
        return rules.proposed_petname(seen.name if by_key else target, seen.key, self._settings)

    async def request(self, seen: Seen, petname: str, *, consent: bool) -> Request:
        """Knock, durably. UsageError: already a peer, or the queue is full."""
        known = self._peers.current().by_key.get(seen.key)
        if known is not None:
            raise UsageError(f"that key is a peer already, as {known}")
        route = wire.make_route(seen.key, seen.session.session_id)
        request = Request(
            key=seen.key,
            name=petname,
            request_id=secrets.token_hex(16),
            reply_to=route,
            at_ms=self._now_ms(),
            consent=consent,
        )

        def message(asked: Request) -> wire.Message:
            msg = self._control("pair_request", asked.key, None)
            msg.msg_id = asked.request_id
            return wire.sign_message(msg, self._identity)

        asked = await self._change(lambda s: rules.ask(s, request, message))
        self.nudge()
        return asked

    async def requests(self) -> State:
        """What is pending, both ways."""
        return await to_thread.run_sync(self._store.read)

    async def accept(self, request: Request, petname: str) -> None:
        """Trust the key as `petname` and tell it so. The person agreed. Raises UsageError or StateError.

        Idempotent: after a failure in between, the same call completes it.
        """
        check_petname(petname, self._settings)
        state = await self.requests()
        if len(state.queued) >= rules.MAX_QUEUED:
            raise UsageError("too many pairing messages wait for a relay: nothing was changed")
        if request.key not in self._peers.current().by_key:
            await to_thread.run_sync(self._peers.add, petname, request.key)
        inbound = next((r for r in state.inbound if r.key == request.key), None)
        if inbound is not None:
            await self._change(lambda s: self._queue_accept(s, inbound))
        await self._change(lambda s: _forget_outbound(s, request.key))
        self.nudge()

    async def reject(self, request: Request) -> None:
        """Forget a knock, or a request of ours; nothing is sent."""
        await self._change(lambda s: drop(s, request.key))


def _take_accept(state: State, msg: wire.Message, known: bool) -> Request | None:
    """Our request that this answers. The first answer to one without consent is told; a copy of it is not."""
    request = rules.granted(state, msg)
    if request is not None and not (request.consent or known or request.accepted):
        request.accepted = True
        rules.tell(
            state,
            f"{HEADING} The key with fingerprint {fingerprint(request.key)} accepted the pairing that this "
            "session asked for. Your user decides whether to trust it: accept_pair with this fingerprint asks "
            "them, or they run `interlink peers add`. Nothing else is to be done.",
        )
    return request


def _told(state: State, text: str) -> None:
    if text in state.untold:
        state.untold.remove(text)


def _mark_noticed(state: State, keys: set[str]) -> None:
    for request in state.inbound:
        request.noticed = request.noticed or request.key in keys


def _forget_outbound(state: State, key: str) -> None:
    state.outbound = [r for r in state.outbound if r.key != key]


def _unqueue(state: State, msg_id: str) -> None:
    state.queued = [q for q in state.queued if q.msg.msg_id != msg_id]


def drop(state: State, key: str) -> None:
    """Forget a key's requests, both ways, and our own that was not sent yet."""
    state.inbound = [r for r in state.inbound if r.key != key]
    _forget_outbound(state, key)
    state.queued = [q for q in state.queued if not (q.msg.to == key and q.msg.kind == "pair_request")]
