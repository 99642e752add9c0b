"""What the Rust program signs, taken from the relay, is what tests/trust/data/peer_vectors.json holds.

INTERLINK_PEER_DIR=... python -m host_tests.test_peer_vectors FILE      records it anew (test keys alone)
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import isolation
from support.keys import ALICE, BOB, CAROL, announcement, message
from support.programs import ROOT

from host_tests.peer import Desk, http, relay
from host_tests.waiting import until
from interlink.trust import wire
from interlink_lab.tools import hosts

BODY = 'é "quoted" \\ \u2028\U0001f600\n\ttab \x7f'
Parts = dict[str, Any]
VECTORS = ROOT / "tests" / "trust" / "data" / "peer_vectors.json"


def collect(folder: Path, theirs: Path) -> Parts:
    """Messages and announcements signed by the Rust program with alice's key, to bob and carol, who are away."""
    bus = relay(folder / "relay", "ours", theirs)
    bus.start()
    try:
        client = http(bus)
        for who, session in ((BOB, "session-b"), (CAROL, "session-c")):
            row = announcement(who, session, name=session, ts=time.time_ns() // 1_000_000, cwd="/")
            assert client.post("/announce", wire.announcement_dict(row)).status == 202
        with Desk(folder, "alice", bus.url, theirs, key=ALICE, start_in="/") as alice:
            alice.call("add_peer", petname="bob", key=BOB.public)
            _write(alice)
            knock = message(
                *(CAROL, ALICE, "carol"),
                ts=time.time_ns() // 1_000_000,
                msg_id="c" * 32,
                kind="pair_request",
                reply_to=f"{CAROL.public}#session-c",
            )
            alice.call("request_pair", target=CAROL.public)
            assert client.send(alice.route, json.loads(wire.encode_message(knock))).status == 202
            until(lambda: CAROL.public in alice.call("list_pair_requests"), "the knock")
            alice.call("accept_pair", fingerprint=CAROL.public)
            routes = (f"{BOB.public}#session-b", f"{CAROL.public}#session-c")
            messages: list[Parts] = []
            for route, count in zip(routes, (8, 2), strict=True):
                found: list[Parts] = []

                def there(route: str = route, count: int = count, found: list[Parts] = found) -> bool:
                    found += client.drain(route)
                    return len(found) >= count

                until(there, f"{count} messages to {route}")
                messages += found
            announced = [{k: v for k, v in row.items() if k != "age_ms"} for row in client.roster()]
        mine = [row for row in announced if row["pubkey"] == ALICE.public]
        return {"made_by": f"interlink-mcp {version()}", "messages": messages, "announcements": mine}
    finally:
        bus.stop()


def version() -> str:
    """The peer's version, as pinned."""
    return hosts.known()[hosts.PEER][1][-1]


def _write(alice: Desk) -> None:
    """Eight messages to bob: all statuses, with and without a task, an answer, a cancellation."""

    def send(text: str, **fields: object) -> None:
        alice.accepted(alice.post("bob", text, session="session-b", **fields))

    send(BODY)
    send("open", task_id="t-1")
    for status in ("update", "needs_input", "result", "failed"):
        send(status, task_id="t-1 é", status=status)
    send("answer", in_reply_to="0" * 32)
    alice.call("cancel_task", to="bob", task_id="t-2", reason="enough")
    alice.call("set_summary", summary="é at work")


def shape(parts: Parts) -> list[tuple[object, ...]]:
    """What does not change from one recording to the next."""
    names = ("from", "to", "kind", "text", "status", "task_id")
    rows: list[tuple[object, ...]] = [tuple(m.get(name) for name in names) for m in parts["messages"]]
    return rows + [
        (a["pubkey"], a["session"]["session_id"], a["session"]["summary"]) for a in parts["announcements"]
    ]


@pytest.mark.req("B7", "B1")
def test_the_recorded_vectors_are_what_the_program_signs(tmp_path: Path, peer: Callable[[], Path]) -> None:
    parts = collect(tmp_path, peer())
    assert shape(parts) == shape(json.loads(VECTORS.read_bytes()))
    for payload in parts["messages"]:
        msg = wire.decode_message(json.dumps(payload))
        assert wire.signature_holds(msg) and wire.sign_message(msg, ALICE).sig == payload["sig"]
    for row in parts["announcements"]:
        assert wire.announcement_holds(wire.decode_announcement(row))


if __name__ == "__main__":
    isolation.begin()
    folder = hosts.peer()
    assert folder is not None, "the peer is not installed"
    try:
        with tempfile.TemporaryDirectory() as temp:
            found = collect(Path(temp), folder)
    finally:
        isolation.end()
    Path(sys.argv[1]).write_text(json.dumps(found, indent=1, ensure_ascii=True) + "\n", "utf-8")
