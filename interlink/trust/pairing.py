"""Pairing state on disk: who knocked, whom we asked, what is still to be sent (G4, B6, T3).

`pairing/<identity>/<session>.json` has the Rust form `{inbound, outbound, queued}` (wire.md); our own members
come beside it. Every change is one atomic, synced replacement under the sidecar lock. A stranger can only
knock: a key and a claimed name; a second knock of a key changes nothing but the count.

    outbound:  asked --their accept--> granted (consent given: trusted at once) | waits for the person
    inbound:   knocked --accept_pair--> trusted, an accept is queued --sent--> gone        knocked --reject--> gone
"""

import os
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from interlink.errors import CorruptFile, UsageError, WireError
from interlink.settings import Settings
from interlink.state import files
from interlink.state.locks import Lock
from interlink.state.paths import Layout
from interlink.text import clean_line, fingerprint
from interlink.trust import wire
from interlink.trust.identity import match_keys
from interlink.trust.peers import check_petname

T = TypeVar("T")

MAX_REQUESTS: Final = 64
MAX_QUEUED: Final = 128
MAX_HANDLED: Final = 256
MAX_UNTOLD: Final = 64
NAME_CHARS: Final = 64


class Request(msgspec.Struct, kw_only=True):
    """One knock, theirs (inbound) or ours (outbound). `name` is a claim of theirs, or our petname for them."""

    key: str
    name: str
    request_id: str
    reply_to: str
    at_ms: int = 0
    knocks: int = 1
    noticed: bool = False  # inbound: the person was told
    consent: bool = False  # outbound: the person agreed to trust this key when it accepts (G8)
    accepted: bool = False  # outbound: they accepted, the person has not agreed yet


class Queued(msgspec.Struct, kw_only=True):
    """A control message that no relay has taken yet."""

    route: str
    msg: wire.Message


class State(msgspec.Struct, kw_only=True):
    """The whole file.

    `handled`: knocks that were dealt with, a copy of one is ignored. `untold`: notices that no host has yet (T3).
    """

    inbound: list[Request] = []
    outbound: list[Request] = []
    queued: list[Queued] = []
    handled: list[str] = []
    untold: list[str] = []


_decoder = msgspec.json.Decoder(State)


def inbound_request(msg: wire.Message, now_ms: int) -> Request | None:
    """The knock in a `pair_request`; None without a return route of the sender's own key and a session."""
    try:
        key, session = wire.split_route(msg.reply_to or "")
    except WireError:
        return None
    if key != msg.sender or not session:
        return None
    name = clean_line(msg.text, NAME_CHARS)
    return Request(key=msg.sender, name=name, request_id=msg.msg_id, reply_to=msg.reply_to or "", at_ms=now_ms)


def proposed_petname(claimed: str, key: str, settings: Settings) -> str:
    """The petname where the person chose none: the claimed name where it can be one, else the fingerprint."""
    name = clean_line(clean_line(claimed, settings.name_max_chars).replace("#", ""), settings.name_max_chars)
    try:
        return check_petname(name, settings)
    except UsageError:
        return fingerprint(key)


def find(requests: list[Request], text: str) -> Request | None:
    """The request of a key, given in full or by fingerprint. UsageError where two keys share it (G8)."""
    keys = match_keys(text, [r.key for r in requests])
    if len(keys) > 1:
        raise UsageError(f"the fingerprint {text} belongs to {len(keys)} keys: give the full key")
    return next((r for r in requests if keys and r.key == keys[0]), None)


class PairingStore:
    """The pairing file of one identity and session. Blocking; several processes may use it."""

    def __init__(self, layout: Layout, identity: str, session: str) -> None:
        self.path = layout.pairing(identity, session)
        self._layout = layout
        self._lock = Lock(self.path.removesuffix(".json") + ".lock")

    def read(self) -> State:
        """The present state. CorruptFile where it does not parse (the file is left as it is)."""
        data = files.read_bytes(self.path)
        if data is None:
            return State()
        try:
            return _decoder.decode(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
            raise CorruptFile(f"{self.path} does not parse ({exc}): move it away to pair anew") from exc

    def update(self, change: Callable[[State], T]) -> T:
        """Run `change` on the state under the lock and commit it where it is another state then."""
        files.ensure_dir(os.path.dirname(self.path), self._layout.root)
        with self._lock:
            state = self.read()
            before = msgspec.json.encode(state)
            result = change(state)
            after = msgspec.json.encode(state)
            if after != before:
                files.atomic_write(self.path, after)
            return result


def knock(state: State, request: Request) -> bool:
    """Take a knock; True when this key is new here. The oldest gives way to the 65th (Numbers of wire.md)."""
    for known in state.inbound:
        if known.key == request.key:
            if request.request_id != known.request_id:
                known.knocks += 1
                known.request_id, known.reply_to, known.at_ms = request.request_id, request.reply_to, request.at_ms
            return False
    state.inbound.append(request)
    del state.inbound[: max(0, len(state.inbound) - MAX_REQUESTS)]
    return True


def ask(state: State, request: Request, message: Callable[[Request], wire.Message]) -> Request:
    """Take or repeat a request of ours; a repeat keeps its id, so that a late acceptance still matches.

    UsageError where the queue of unsent control messages is full.
    """
    known = next((r for r in state.outbound if r.key == request.key), None)
    if known is not None:
        known.name, known.reply_to, known.at_ms = request.name, request.reply_to, request.at_ms
        known.consent = known.consent or request.consent
        request = known
    else:
        state.outbound.append(request)
        del state.outbound[: max(0, len(state.outbound) - MAX_REQUESTS)]
    enqueue(state, request.reply_to, message(request))
    return request


def enqueue(state: State, route: str, msg: wire.Message) -> None:
    """Queue a control message in place of a like one for the same route. UsageError when the queue is full."""
    state.queued = [
        q
        for q in state.queued
        if q.msg.msg_id != msg.msg_id and not (q.route == route and q.msg.kind == msg.kind == "pair_accept")
    ]
    if len(state.queued) >= MAX_QUEUED:
        raise UsageError(f"{MAX_QUEUED} pairing messages wait for a relay already: see `interlink doctor`")
    state.queued.append(Queued(route=route, msg=msg))


def remember(state: State, msg_id: str) -> bool:
    """Note a control message as handled; False where it was handled before."""
    if msg_id in state.handled:
        return False
    state.handled.append(msg_id)
    del state.handled[: max(0, len(state.handled) - MAX_HANDLED)]
    return True


def tell(state: State, text: str) -> None:
    """Keep a notice until a host has it; the oldest gives way."""
    state.untold.append(text)
    del state.untold[: max(0, len(state.untold) - MAX_UNTOLD)]


def granted(state: State, msg: wire.Message) -> Request | None:
    """Our request that a `pair_accept` answers: by its signed `in_reply_to`, else by key (wire.md)."""
    for request in state.outbound:
        if request.key == msg.sender and msg.in_reply_to in (None, request.request_id):
            return request
    return None
