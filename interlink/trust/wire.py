"""The wire forms: messages and announcements, their canonical signed bytes, decoding (B7).

Pure: no clock, no disk, no network. `WireError` = undecodable; the gate then counts and drops it.
"""

from typing import Final

import msgspec

from interlink.errors import UsageError, WireError
from interlink.state.paths import check_identity, check_session
from interlink.trust.identity import KEY_BYTES, SIG_BYTES, Identity, unb64, verify_strict

KINDS: Final = frozenset({"message", "pair_request", "pair_accept"})
STATUSES: Final = frozenset({"update", "needs_input", "result", "failed", "canceled"})
TERMINAL: Final = frozenset({"result", "failed", "canceled"})
MAX_ID_BYTES = 256

_MESSAGE_DOMAIN = b"interlink-v2\0"
_ANNOUNCE_DOMAIN = b"interlink-announce-v1\0"
_U64_MAX = 2**64 - 1


class Message(msgspec.Struct, rename={"sender": "from"}, omit_defaults=True, kw_only=True):
    """One signed message (SignedMessage of wire.md). `ts` is ms since 1970; `reply_to` is unsigned."""

    sender: str
    to: str
    text: str
    ts: int
    msg_id: str
    # A factory, so that `kind` is always written although it may be missing on receipt.
    kind: str = msgspec.field(default_factory=lambda: "message")
    task_id: str | None = None
    status: str | None = None
    in_reply_to: str | None = None
    reply_to: str | None = None
    sig: str = ""


class Session(msgspec.Struct, omit_defaults=False, kw_only=True):
    """The session part of an announcement."""

    session_id: str = ""
    cwd: str = ""
    git_root: str = ""
    summary: str = ""


class Announcement(msgspec.Struct, kw_only=True):
    """A signed presence announcement; `age_ms` is added by the relay, unsigned."""

    pubkey: str
    name: str = ""
    session: Session
    ts: int
    sig: str = ""
    age_ms: int | None = None


_message_decoder = msgspec.json.Decoder(Message)
_encoder = msgspec.json.Encoder()


def _prefixed(text: str) -> bytes:
    raw = text.encode("utf-8")
    return len(raw).to_bytes(4, "little") + raw


def message_bytes(msg: Message) -> bytes:
    """The canonical bytes that a message's signature covers. WireError for a malformed key or text."""
    try:
        return b"".join(
            (
                _MESSAGE_DOMAIN,
                unb64(msg.sender, KEY_BYTES),
                unb64(msg.to, KEY_BYTES),
                msg.ts.to_bytes(8, "little"),
                _prefixed(msg.kind),
                _prefixed(msg.msg_id),
                _prefixed(msg.text),
                _prefixed(msg.status or ""),
                _prefixed(msg.task_id or ""),
                _prefixed(msg.in_reply_to or ""),
            )
        )
    except (UnicodeEncodeError, OverflowError) as exc:
        raise WireError("a message that cannot be encoded (surrogate or time out of range)") from exc


def announcement_bytes(ann: Announcement) -> bytes:
    """The canonical bytes that an announcement's signature covers. WireError where it cannot be encoded."""
    s = ann.session
    try:
        fields = (ann.name, s.session_id, s.cwd, s.git_root, s.summary)
        return b"".join(
            (_ANNOUNCE_DOMAIN, unb64(ann.pubkey, KEY_BYTES), *map(_prefixed, fields), ann.ts.to_bytes(8, "little"))
        )
    except (UnicodeEncodeError, OverflowError) as exc:
        raise WireError("an announcement that cannot be encoded") from exc


def sign_message(msg: Message, identity: Identity) -> Message:
    """Set the signature in place and return the message."""
    msg.sig = identity.sign(message_bytes(msg))
    return msg


def sign_announcement(ann: Announcement, identity: Identity) -> Announcement:
    """Set the signature in place and return the announcement."""
    ann.sig = identity.sign(announcement_bytes(ann))
    return ann


def signature_holds(msg: Message) -> bool:
    """Strict verification of a message (G2). False for every malformed key or signature."""
    try:
        return verify_strict(unb64(msg.sender, KEY_BYTES), unb64(msg.sig, SIG_BYTES), message_bytes(msg))
    except WireError:
        return False


def announcement_holds(ann: Announcement) -> bool:
    """Strict verification of an announcement (B3)."""
    try:
        data = announcement_bytes(ann)
        return verify_strict(unb64(ann.pubkey, KEY_BYTES), unb64(ann.sig, SIG_BYTES), data)
    except WireError:
        return False


def encode_message(msg: Message) -> str:
    """JSON text, absent fields left out."""
    return _encoder.encode(msg).decode("utf-8")


def decode_message(payload: str | bytes) -> Message:
    """A message from JSON; unknown fields are ignored, an unknown kind or status is undecodable (WireError)."""
    try:
        msg = _message_decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
        raise WireError(f"not a message: {exc}") from exc
    if msg.kind not in KINDS:
        raise WireError("an unknown kind of message")
    if msg.status is not None and msg.status not in STATUSES:
        raise WireError("an unknown status")
    if not 0 <= msg.ts <= _U64_MAX:
        raise WireError("a time out of range")
    check_ids(msg)
    return msg


def check_ids(msg: Message) -> None:
    """WireError for ids that no receiver takes: an empty msg_id, or one of more than `MAX_ID_BYTES`."""
    if not msg.msg_id or len(msg.msg_id.encode("utf-8")) > MAX_ID_BYTES:
        raise WireError(f"a message id that is empty or longer than {MAX_ID_BYTES} bytes")
    for ref in (msg.task_id, msg.in_reply_to, msg.reply_to):
        if ref is not None and len(ref.encode("utf-8")) > MAX_ID_BYTES:
            raise WireError(f"a reference longer than {MAX_ID_BYTES} bytes")


def decode_announcement(entry: object) -> Announcement:
    """An announcement from a decoded JSON value. WireError where the shape is wrong; titles are ignored."""
    try:
        ann = msgspec.convert(entry, Announcement)
    except (msgspec.ValidationError, RecursionError) as exc:
        raise WireError(f"not an announcement: {exc}") from exc
    if not 0 <= ann.ts <= _U64_MAX or (ann.age_ms is not None and not 0 <= ann.age_ms <= _U64_MAX):
        raise WireError("a time out of range")
    return ann


def announcement_dict(ann: Announcement) -> dict[str, object]:
    """The announcement as it is posted (no `age_ms`)."""
    s = ann.session
    return {
        "pubkey": ann.pubkey,
        "name": ann.name,
        "session": {"session_id": s.session_id, "cwd": s.cwd, "git_root": s.git_root, "summary": s.summary},
        "ts": ann.ts,
        "sig": ann.sig,
    }


def make_route(key: str, session: str) -> str:
    """`KEY#SESSION`, where messages for one session wait in a relay."""
    return f"{key}#{session}"


def split_route(route: str) -> tuple[str, str]:
    """(key, session) of a route; the session may be empty. WireError where it is no route."""
    key, _mark, session = route.partition("#")
    try:
        check_identity(key)
        if session:
            check_session(session)
    except UsageError:
        raise WireError("not a route: KEY#SESSION with a key or session that is not valid") from None
    return key, session
