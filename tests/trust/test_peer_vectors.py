"""Signatures that the Rust program made, recorded (host_tests/test_peer_vectors.py records and compares)."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.keys import ALICE

from interlink.trust import wire

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "peer_vectors.json").read_bytes())
MESSAGES: list[dict[str, Any]] = VECTORS["messages"]
ANNOUNCEMENTS: list[dict[str, Any]] = VECTORS["announcements"]
SIGNED = ("from", "to", "ts", "kind", "msg_id", "text", "status", "task_id", "in_reply_to")
OTHER = {
    "from": "iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w",
    "to": ALICE.public,
    "ts": 1,
    "kind": "pair_accept",
    "status": "canceled",
}


def name(payload: dict[str, Any]) -> str:
    return "-".join(str(payload[key]) for key in ("kind", "status") if key in payload)


def test_every_kind_and_status_was_recorded() -> None:
    assert {m["kind"] for m in MESSAGES} == wire.KINDS
    assert {m.get("status") for m in MESSAGES} == {*wire.STATUSES, None}
    assert any("in_reply_to" in m for m in MESSAGES) and ANNOUNCEMENTS


@pytest.mark.req("B7", "G1")
@pytest.mark.parametrize("payload", MESSAGES, ids=name)
def test_a_message_that_the_peer_signed(payload: dict[str, Any]) -> None:
    """It verifies, ours signs it with the same key alike, and its JSON comes back as it was."""
    msg = wire.decode_message(json.dumps(payload))
    assert wire.signature_holds(msg)
    assert json.loads(wire.encode_message(msg)) == payload
    assert wire.sign_message(msg, ALICE).sig == payload["sig"]


@pytest.mark.req("B7", "G1")
@pytest.mark.parametrize("field", SIGNED)
@pytest.mark.parametrize("payload", MESSAGES, ids=name)
def test_a_change_of_a_signed_member_is_seen(payload: dict[str, Any], field: str) -> None:
    changed = {**payload, field: OTHER.get(field, str(payload.get(field, "")) + "x")}
    if changed != payload:
        assert not wire.signature_holds(wire.decode_message(json.dumps(changed)))


@pytest.mark.req("B7", "B3")
@pytest.mark.parametrize("row", ANNOUNCEMENTS)
def test_an_announcement_that_the_peer_signed(row: dict[str, Any]) -> None:
    ann = wire.decode_announcement(row)
    assert wire.announcement_holds(ann) and wire.announcement_dict(ann) == row
    assert wire.sign_announcement(ann, ALICE).sig == row["sig"]
    for field in ("session_id", "cwd", "git_root", "summary"):
        changed = {**row, "session": {**row["session"], field: row["session"][field] + "x"}}
        assert not wire.announcement_holds(wire.decode_announcement(changed))
