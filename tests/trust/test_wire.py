"""The wire forms: vectors, decoding of anything, what the signature covers."""

import base64
import hashlib
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.keys import ALICE, BOB, CAROL, NOW_MS, announcement, message, unsigned

from interlink.errors import WireError
from interlink.trust import wire
from interlink.trust.identity import unb64, verify_strict
from interlink.trust.wire import Message

words = st.text(st.characters(codec="utf-8"), max_size=40)
ids = words.filter(lambda w: 0 < len(w.encode()) <= wire.MAX_ID_BYTES)
MESSAGES = st.builds(
    message,
    st.sampled_from([ALICE, BOB, CAROL]),
    st.sampled_from([ALICE, BOB, CAROL]),
    st.text(st.characters(codec="utf-8"), max_size=300),
    ts=st.integers(0, 2**64 - 1),
    msg_id=ids,
    kind=st.sampled_from(sorted(wire.KINDS)),
    task_id=st.none() | ids,
    status=st.none() | st.sampled_from(sorted(wire.STATUSES)),
    in_reply_to=st.none() | ids,
    reply_to=st.none() | st.just(f"{ALICE.public}#main"),
)


def fields(**changes: object) -> dict[str, object]:
    """A decodable message as JSON members; a value of `...` takes the member away."""
    found: dict[str, object] = json.loads(wire.encode_message(message()))
    found.update(changes)
    return {name: value for name, value in found.items() if value is not ...}


def decode(**changes: object) -> Message:
    return wire.decode_message(json.dumps(fields(**changes)))


# --- vectors (B7) ---


@pytest.mark.req("B7", "B1")
def test_message_vector() -> None:
    assert ALICE.public == "O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik"
    assert BOB.public == "iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w"
    msg = message(ts=1234, text="hello é", status="update", task_id="t1", in_reply_to="q1")
    data = wire.message_bytes(msg)
    assert len(data) == 136
    assert hashlib.sha256(data).hexdigest() == "e1d24d2ea18deb48308b574313f0711cde998cf36f87675630f23e3d21ac9822"
    assert msg.sig == "uj_ifAmtEDe8aWsYcuVmpk033a8sc9chSO4baQS81JNaiCsomjtrdy4hcYFZzJPJyTOqWMew377AacLxs1mNCA"
    assert wire.signature_holds(msg)


@pytest.mark.req("B7", "B3")
def test_announcement_vector() -> None:
    ann = announcement(ts=1234, summary="current work")
    data = wire.announcement_bytes(ann)
    assert len(data) == 114
    assert hashlib.sha256(data).hexdigest() == "e4cb05bbd71f513c3c8aa40c24e2170dd5ad5adbfa7770dc1fb03601bac8c8b7"
    assert ann.sig == "Zavw-pfYWctJI1x-J8eeX-dSkJLZQUHB9VIkmHMFPlCNBeCJs0sHxycmUA1iy9fOR7dQSeShZlb90mg8cX4YAA"
    assert wire.announcement_holds(ann)


@pytest.mark.req("B7")
def test_the_json_of_a_message() -> None:
    """Member names of the wire; absent members are left out, `kind` never is; text as UTF-8, not escaped."""
    msg = message(text="é", ts=5)
    shape = '{"from":"%s","to":"%s","text":"é","ts":5,"msg_id":"m1","kind":"message","sig":"%s"}'
    assert wire.encode_message(msg) == shape % (ALICE.public, BOB.public, msg.sig)
    full = message(task_id="t", status="result", in_reply_to="q", reply_to=f"{ALICE.public}#main")
    assert set(json.loads(wire.encode_message(full))) == {
        *("from", "to", "text", "ts", "msg_id", "kind", "sig", "task_id", "status", "in_reply_to", "reply_to")
    }


@pytest.mark.req("B7")
def test_absent_and_empty_sign_the_same() -> None:
    assert wire.message_bytes(unsigned(task_id="", in_reply_to="")) == wire.message_bytes(unsigned())


# --- decoding ---


@given(MESSAGES)
def test_round_trip(msg: Message) -> None:
    assert wire.signature_holds(msg)
    text = wire.encode_message(msg)
    assert wire.decode_message(text) == wire.decode_message(text.encode()) == msg
    assert wire.decode_message(json.dumps(json.loads(text))) == msg  # as \u escapes
    assert "\n" not in text


@pytest.mark.req("B7")
def test_missing_kind_is_a_message() -> None:
    assert decode(kind=...).kind == "message"
    assert wire.signature_holds(decode(kind=...))


@pytest.mark.req("B7")
def test_unknown_members_are_ignored() -> None:
    msg = decode(title="x", title_sig=[1, {"from": "y"}], zzz=None)
    assert msg == message() and wire.signature_holds(msg)


UNDECODABLE: dict[str, object] = {
    "unknown kind": {"kind": "pair_reject"},
    "empty kind": {"kind": ""},
    "null kind": {"kind": None},
    "unknown status": {"status": "done"},
    "empty status": {"status": ""},
    "status in capitals": {"status": "Update"},
    "no sender": {"from": ...},
    "no recipient": {"to": ...},
    "no text": {"text": ...},
    "null text": {"text": None},
    "text a number": {"text": 5},
    "no time": {"ts": ...},
    "time a string": {"ts": "1234"},
    "time a fraction": {"ts": 1.5},
    "time true": {"ts": True},
    "time below zero": {"ts": -1},
    "time beyond 64 bits": {"ts": 2**64},
    "time far beyond": {"ts": 10**400},
    "no id": {"msg_id": ...},
    "empty id": {"msg_id": ""},
    "long id": {"msg_id": "x" * 257},
    "long id in bytes": {"msg_id": "é" * 129},
    "long task": {"task_id": "x" * 257},
    "long reference": {"in_reply_to": "x" * 257},
    "long reply address": {"reply_to": "x" * 257},
    "task a list": {"task_id": ["t"]},
    "lone surrogate in text": {"text": "\ud800"},
    "lone surrogate in an id": {"msg_id": "\udfff"},
    "lone surrogate elsewhere": {"zzz": "\ud800"},
}


@pytest.mark.req("B7")
@pytest.mark.parametrize("what", UNDECODABLE)
def test_undecodable_members(what: str) -> None:
    changes = UNDECODABLE[what]
    assert isinstance(changes, dict)
    with pytest.raises(WireError):
        decode(**changes)


@pytest.mark.req("B7")
@pytest.mark.parametrize("name", ["msg_id", "task_id", "in_reply_to", "reply_to"])
def test_the_longest_id(name: str) -> None:
    assert getattr(decode(**{name: "é" * 128}), name) == "é" * 128


@pytest.mark.req("B7")
def test_the_largest_time() -> None:
    msg = message(ts=2**64 - 1)
    assert wire.signature_holds(wire.decode_message(wire.encode_message(msg)))


WHOLE = json.dumps(fields())
BROKEN: dict[str, str | bytes] = {
    "empty": "",
    "blank": " \n",
    "null": "null",
    "a list": "[]",
    "a number": "1",
    "cut": WHOLE[:-1],
    "more behind": WHOLE + "x",
    "two objects": WHOLE + WHOLE,
    "NaN": WHOLE.replace(str(NOW_MS), "NaN"),
    "Infinity": WHOLE.replace(str(NOW_MS), "-Infinity"),
    "1e400": WHOLE.replace(str(NOW_MS), "1e400"),
    "5000 digits": WHOLE.replace(str(NOW_MS), "9" * 5000),
    "deep lists": "[" * 200_000,
    "deep objects": '{"a":' * 200_000,
    "deep in an unknown member": WHOLE[:-1] + ',"zzz":' + "[" * 200_000 + "]" * 200_000 + "}",
    "deep in a known member": WHOLE.replace('"hello"', "[" * 200_000 + "]" * 200_000),
    "byte-order mark": "\ufeff" + WHOLE,
    "a surrogate unescaped": WHOLE.replace("hello", "\ud800"),
    "half a surrogate pair": WHOLE.replace("hello", "\\ud83d"),
    "not UTF-8": WHOLE.encode().replace(b"hello", b"\xff\xfe"),
    "a surrogate in UTF-8": WHOLE.encode().replace(b"hello", b"\xed\xa0\x80"),
    "UTF-16": WHOLE.encode("utf-16"),
    "NUL": WHOLE.replace("hello", "\0"),
    "a bare line end": WHOLE.replace("hello", "a\nb"),
}


@pytest.mark.req("B7", "G6")
@pytest.mark.parametrize("what", BROKEN)
def test_what_is_no_json_message(what: str) -> None:
    with pytest.raises(WireError):
        wire.decode_message(BROKEN[what])


@given(st.binary() | st.text())
def test_arbitrary_input_is_undecodable(data: bytes | str) -> None:
    with pytest.raises(WireError):
        wire.decode_message(data)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(10**30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from([*fields(), "task_id", "status", "in_reply_to", "reply_to", "x"]), VALUES))
@example({"ts": float("nan")})
@example({"ts": 1e300})
def test_any_members_give_a_sound_message_or_wire_error(changes: dict[str, object]) -> None:
    """What decodes can be encoded, signed over and judged without a further error."""
    payload = json.dumps({**fields(), **changes})
    try:
        msg = wire.decode_message(payload)
    except WireError:
        return
    assert wire.decode_message(wire.encode_message(msg)) == msg
    assert wire.signature_holds(msg) in (True, False)


@given(VALUES)
def test_any_value_as_announcement(value: object) -> None:
    with pytest.raises(WireError):
        wire.decode_announcement(value)


@given(
    st.dictionaries(st.sampled_from(["pubkey", "name", "session", "ts", "sig", "age_ms", "x"]), VALUES),
    st.dictionaries(st.sampled_from(["session_id", "cwd", "git_root", "summary", "title"]), VALUES),
)
def test_any_members_as_announcement(changes: dict[str, object], place: dict[str, object]) -> None:
    entry: dict[str, object] = {**wire.announcement_dict(announcement())}
    session = entry["session"]
    assert isinstance(session, dict)
    entry["session"] = {**session, **place}
    entry.update(changes)
    try:
        ann = wire.decode_announcement(entry)
    except WireError:
        return
    assert wire.announcement_holds(ann) in (True, False)


# --- signatures ---


@pytest.mark.req("G1", "G2")
def test_every_flipped_bit_of_the_signed_bytes_is_refused() -> None:
    msg = message(text="hé", status="update", task_id="t1", in_reply_to="q1")
    parts = (unb64(msg.sender, 32), unb64(msg.sig, 64), wire.message_bytes(msg))
    assert verify_strict(*parts)
    for number, part in enumerate(parts):
        for bit in range(len(part) * 8):
            flipped = bytearray(part)
            flipped[bit // 8] ^= 1 << bit % 8
            changed = [*parts[:number], bytes(flipped), *parts[number + 1 :]]
            assert not verify_strict(*changed), (number, bit)


@pytest.mark.req("G1")
@given(MESSAGES, st.data())
def test_a_flipped_bit_of_the_json_is_refused(msg: Message, data: st.DataObject) -> None:
    """Undecodable, or the signature fails; or it is no change (an unsigned member, another spelling)."""
    payload = bytearray(wire.encode_message(msg).encode())
    bit = data.draw(st.integers(0, len(payload) * 8 - 1))
    payload[bit // 8] ^= 1 << bit % 8
    try:
        found = wire.decode_message(bytes(payload))
    except WireError:
        return
    if wire.signature_holds(found):
        found.reply_to = msg.reply_to
        assert found == msg


CHANGES: dict[str, object] = {
    "sender": CAROL.public,
    "to": CAROL.public,
    "text": "hello ",
    "ts": NOW_MS + 1,
    "msg_id": "m2",
    "kind": "pair_request",
    "task_id": "t2",
    "status": "failed",
    "in_reply_to": "q2",
    "sig": message(CAROL).sig,
}


@pytest.mark.req("G1", "B5")
@pytest.mark.parametrize("name", CHANGES)
def test_every_signed_member_is_covered(name: str) -> None:
    for msg in (message(), message(task_id="t", status="update", in_reply_to="q")):
        assert wire.signature_holds(msg)
        setattr(msg, name, CHANGES[name])
        assert not wire.signature_holds(msg)


@pytest.mark.req("B7")
def test_the_reply_address_is_not_signed() -> None:
    msg = message(reply_to="a")
    msg.reply_to = "b"
    assert wire.signature_holds(msg)


@pytest.mark.req("G1")
def test_text_cannot_move_between_members() -> None:
    """Length prefixes: the same bytes cut at another place are another message."""
    a, b = unsigned(msg_id="ab", text="c"), unsigned(msg_id="a", text="bc")
    assert wire.message_bytes(a) != wire.message_bytes(b)


@pytest.mark.req("B3")
@pytest.mark.parametrize("name", ["pubkey", "name", "session_id", "cwd", "git_root", "summary", "ts"])
def test_every_member_of_an_announcement_is_covered(name: str) -> None:
    ann = announcement()
    assert wire.announcement_holds(ann)
    at = ann.session if hasattr(ann.session, name) else ann
    setattr(at, name, {"ts": 1, "pubkey": BOB.public}.get(name, "other"))
    assert not wire.announcement_holds(ann)


@pytest.mark.req("B3", "B7")
def test_an_announcement_as_the_relay_sends_it() -> None:
    entry = json.loads(json.dumps(wire.announcement_dict(announcement())))
    assert "age_ms" not in entry
    entry["age_ms"] = 1500
    entry["session"]["title"] = "a title of older releases"
    entry["title_sig"] = "x"
    ann = wire.decode_announcement(entry)
    assert ann.age_ms == 1500 and wire.announcement_holds(ann)


@pytest.mark.req("G2")
@pytest.mark.parametrize("sender", ["", "x", "A" * 43, "A" * 44, ALICE.public + "=", "\ud800" * 43])
def test_a_malformed_sender_does_not_hold(sender: str) -> None:
    """`A` x 43 is the key of order four: 32 zero bytes."""
    msg = message()
    msg.sender = sender
    assert not wire.signature_holds(msg)
    ann = announcement()
    ann.pubkey = sender
    assert not wire.announcement_holds(ann)


@pytest.mark.req("G2")
@pytest.mark.parametrize("sig", ["", "x", "A" * 86, "A" * 85, "A" * 88])
def test_a_malformed_signature_does_not_hold(sig: str) -> None:
    msg, ann = message(), announcement()
    msg.sig = ann.sig = sig
    assert not wire.signature_holds(msg) and not wire.announcement_holds(ann)
    padded = message()
    padded.sig = base64.urlsafe_b64encode(unb64(padded.sig, 64)).decode()
    assert not wire.signature_holds(padded)


@pytest.mark.parametrize("changes", [{"text": "\ud800"}, {"ts": -1}, {"ts": 2**64}, {"msg_id": "\udc00"}])
def test_what_cannot_be_signed_is_a_wire_error(changes: dict[str, object]) -> None:
    with pytest.raises(WireError):
        message(**changes)


@pytest.mark.req("B3")
def test_an_announcement_that_cannot_be_signed_does_not_hold() -> None:
    with pytest.raises(WireError):
        announcement(summary="\ud800")
    with pytest.raises(WireError):
        announcement(ts=2**64)
    entry = wire.announcement_dict(announcement())
    entry["name"] = "\ud800"
    assert not wire.announcement_holds(wire.decode_announcement(entry))


# --- routes ---


@pytest.mark.req("B4", "B7")
def test_routes() -> None:
    assert wire.split_route(wire.make_route(ALICE.public, "main")) == (ALICE.public, "main")
    assert wire.split_route(ALICE.public) == wire.split_route(ALICE.public + "#") == (ALICE.public, "")


@pytest.mark.req("B4")
@pytest.mark.parametrize(
    "route",
    [
        *("", "#", "#main", "x#main", "A" * 42, "A" * 44 + "#main", "?" * 43 + "#m", "\ud800" * 43),
        *("A" * 43 + "#" + session for session in (".x", "a b", "a#b", "x" * 129, "a/b")),
    ],
)
def test_what_is_no_route(route: str) -> None:
    with pytest.raises(WireError, match="not a route"):
        wire.split_route(route)
