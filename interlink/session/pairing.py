"""Pairing as it runs: knocks and acceptances in, control messages out, notices to the person (G4, G8, B6, T3).

Nothing that a peer sends changes whom we trust: an acceptance adds a key only where the person agreed to that
key when it was asked; otherwise the person is told the command.
"""

import secrets
from collections.abc import Awaitable, Callable
from typing import NamedTuple

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

HEADING = "[Interlink pairing notice]"


class Asked(NamedTuple):
    """A request of ours, and whether the knock waits for a relay still."""

    request: Request
    petname: str


class Pairing:
    """`tell(text, kind)` hands a pairing notice to the host; True once the host's adapter has it."""

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
        self._told_ms = 0
        self._work = anyio.Event()

    # -- in -----------------------------------------------------------------------------------------

    async def handle(self, msg: wire.Message) -> bool:
        """One verified control message; True when it is durable here and the relay may forget it."""
        if msg.kind == "pair_request":
            return await self._knocked(msg)
        return await self._accepted(msg)

    async def _knocked(self, msg: wire.Message) -> bool:
        request = rules.inbound_request(msg, self._now_ms())
        if request is None:
            log.event("refused", reason="knock_without_route", sender=fingerprint(msg.sender))
            return True
        peers = self._peers.current()
        if msg.sender == self._identity.public:
            return True
        if msg.sender in peers.by_key:
            await self._again(request)
            return True
        wanted = await to_thread.run_sync(self._store.update, lambda s: self._take_knock(s, request, msg.ts))
        if wanted is not None:  # the person agreed to this key before it knocked: both sides want it
            await self._trust(wanted)
            await self._again(request)
            return True
        return await self._tell_knocks()

    def _take_knock(self, state: State, request: Request, ts: int) -> Request | None:
        # The same id with a later time is their operator asking again, also after a rejection here.
        if not rules.remember(state, f"{request.request_id}@{ts}"):
            return None
        wanted = next((r for r in state.outbound if r.key == request.key and r.consent), None)
        if wanted is None:
            new = rules.knock(state, request)
            log.event("knock", sender=fingerprint(request.key), new=new)
        return wanted

    async def _again(self, request: Request) -> None:
        """Tell a key that we trust that we do: it knocks because our acceptance did not reach it."""
        await to_thread.run_sync(self._store.update, lambda s: self._queue_accept(s, request))
        self._work.set()

    def _queue_accept(self, state: State, request: Request) -> None:
        accept = self._control("pair_accept", request.key, request.request_id)
        state.queued = [q for q in state.queued if q.msg.in_reply_to != request.request_id]
        rules.enqueue(state, request.reply_to, accept)
        state.inbound = [r for r in state.inbound if r.key != request.key]

    async def _accepted(self, msg: wire.Message) -> bool:
        request = await to_thread.run_sync(self._store.update, lambda s: self._take_accept(s, msg))
        if request is None:
            log.event("refused", reason="accept_without_request", sender=fingerprint(msg.sender))
            return True
        if request.consent:
            await self._trust(request)
            return True
        print_key = fingerprint(request.key)
        return await self._tell(
            f"{HEADING} The key with fingerprint {print_key} accepted the pairing that this session asked for. "
            "Your user decides whether to trust it: accept_pair with this fingerprint asks them, or they run "
            "`interlink peers add`. Nothing else is to be done.",
            "pairing",
        )

    def _take_accept(self, state: State, msg: wire.Message) -> Request | None:
        request = rules.granted(state, msg)
        if request is not None and not request.consent:
            request.accepted = True
        return request

    async def _trust(self, request: Request) -> None:
        """Add the key that the person agreed to, then forget the request. A petname conflict is told."""
        text = f"Pairing with the key {fingerprint(request.key)} is complete."
        try:
            by_key = self._peers.current().by_key
            if request.key not in by_key:
                await to_thread.run_sync(self._peers.add, request.name, request.key)
        except UsageError as exc:
            text = (
                f"The key {fingerprint(request.key)} accepted, but it could not be added: {exc}. "
                "Your user can add it under another name with `interlink peers add`."
            )
        await to_thread.run_sync(self._store.update, lambda s: _forget_outbound(s, request.key))
        log.event("paired", peer=fingerprint(request.key))
        await self._tell(f"{HEADING} {text} No reply is needed.", "pairing")

    async def _tell_knocks(self) -> bool:
        """Tell the person who knocks, at most once every `knock_interval_s`, all keys in one notice (G4)."""
        state = await to_thread.run_sync(self._store.read)
        fresh = [r for r in state.inbound if not r.noticed]
        if not fresh:
            return True
        waited = self._now_ms() - self._told_ms
        if 0 <= waited < self._settings.knock_interval_s * 1000:
            return True  # stored: the loop sees the changed file, and tells it when the time has come
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
        await to_thread.run_sync(self._store.update, lambda s: _mark_noticed(s, keys))
        return True

    # -- out ----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Send what is queued and tell what is untold, until cancelled; faults are logged on change."""
        told = ""
        while True:
            self._work = anyio.Event()
            seen = self._signature()  # before the pass: what changes during it is for the next one
            try:
                waiting = await self._send_queued()
                await self._tell_knocks()
                fault = ""
            except StateError as exc:
                waiting, fault = True, str(exc)
            if fault != told:
                log.event("pairing_fault" if fault else "pairing_ok", error=fault or None)
                told = fault
            await self._wait(seen, self._settings.outbox_retry_s if waiting else None)

    async def _wait(self, seen: tuple[int, int, int] | str | None, most_s: float | None) -> None:
        """Until there is work: nudged, the file is not `seen` (a command accepted a knock), or `most_s` passed."""
        with anyio.move_on_after(most_s if most_s is not None else float("inf")):
            while self._signature() == seen:
                with anyio.move_on_after(self._settings.reconcile_s):
                    await self._work.wait()
                    return

    def _signature(self) -> tuple[int, int, int] | str | None:
        try:
            return files.signature(self._store.path)
        except StateError as exc:  # said by the next pass, which this change begins
            return str(exc)

    async def _send_queued(self) -> bool:
        """One pass over the queue; True while something waits."""
        waiting = False
        for queued in (await to_thread.run_sync(self._store.read)).queued:
            msg = queued.msg
            if msg.sender != self._identity.public or msg.kind == "message":
                log.event("pairing_entry_dropped", reason="not a control message of ours")
                await to_thread.run_sync(self._store.update, lambda s, i=msg.msg_id: _unqueue(s, i))
                continue
            msg.ts = self._now_ms()
            try:
                payload = wire.encode_message(wire.sign_message(msg, self._identity))
                result = await self._relays.send(queued.route, payload)
            except InterlinkError as exc:
                log.event("pairing_entry_dropped", reason=exc)
                await to_thread.run_sync(self._store.update, lambda s, i=msg.msg_id: _unqueue(s, i))
                continue
            if result.accepted:
                log.event("pairing_sent", kind=msg.kind, to=fingerprint(msg.to))
                await to_thread.run_sync(self._store.update, lambda s, i=msg.msg_id: _unqueue(s, i))
            else:
                waiting = True
        state = await to_thread.run_sync(self._store.read)
        return waiting or any(not r.noticed for r in state.inbound)

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
        longest = self._settings.name_max_chars
        by_key = target == seen.key or target == fingerprint(seen.key)
        name = clean_line(seen.name if by_key else target, longest).replace("#", "") or fingerprint(seen.key)
        try:
            return check_petname(name, self._settings)
        except UsageError:
            return fingerprint(seen.key)

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

        asked = await to_thread.run_sync(self._store.update, lambda s: rules.ask(s, request, message))
        self._work.set()
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
            await self._again(inbound)
        await to_thread.run_sync(self._store.update, lambda s: _forget_outbound(s, request.key))

    async def reject(self, request: Request) -> None:
        """Forget a knock, or a request of ours; nothing is sent."""
        await to_thread.run_sync(self._store.update, lambda s: drop(s, request.key))


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
