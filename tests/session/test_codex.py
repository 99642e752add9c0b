"""A whole server in Codex mode: silent until a hook binds it, then notices by the queue program (X1 to X6)."""

import itertools
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.codex_stub import HANG, OK, CodexStub, fails, wait_gone
from support.world import Host, World, kill, receipts, until

from interlink_lab.mcp_client import Session, ToolFailed
from interlink_lab.wire import send_body

THREAD = "01234567-89ab-cdef-0123-456789abcdef"
OTHER = "76543210-89ab-cdef-0123-456789abcdef"
NEEDS_A_SESSION = (
    ("send_message", {"to": "alice", "text": "x"}),
    ("cancel_task", {"to": "alice", "task_id": "t"}),
    ("message_status", {"msg_id": "m"}),
    ("failed_deliveries", {"action": "list"}),
    ("receive_messages", {}),
    ("acknowledge_messages", {"messages": []}),
    ("conversation_history", {"peer": "alice"}),
    ("request_pair", {"target": "alice"}),
    ("accept_pair", {"fingerprint": "abcdefgh"}),
)
QUICK = {
    "INTERLINK_CODEX_BACKOFF_S": "0.3",
    "INTERLINK_RECONCILE_S": "0.1",
    "INTERLINK_NOTICE_SCHEDULE_S": "0.5,1",
}


@asynccontextmanager
async def codex(host: Host, stub: CodexStub, **more: str) -> AsyncIterator[Session]:
    """A server in Codex mode, not bound."""
    env = {"INTERLINK_CODEX_BIN": stub.bin, **more}
    async with host.server("", "--host", "codex", announced=False, **env) as session:
        yield session


async def bind(session: Session, thread: str = THREAD, /, **meta: Any) -> tuple[bool, str]:
    """(an error, the text) of what a hook's call of the bind tool gives."""
    result = await session.call_tool("bind_codex_session", {"thread_id": thread}, meta=meta or None)
    return bool(result.is_error), "".join(getattr(block, "text", "?") for block in result.content)


@pytest.mark.req("X1", "H12", "H13")
def test_unbound_it_is_silent_and_a_hook_binds_it_once(world: World, tmp_path: Path) -> None:
    alice, bob = world.pair()
    stub = CodexStub(tmp_path)

    async def main() -> None:
        world.post(bob, alice.signer.message(bob.key, "early"), THREAD)
        async with codex(bob, stub, INTERLINK_CHANNELS="1", INTERLINK_HEARTBEAT_S="0.2") as b:
            assert not (b.initialize_result.capabilities.experimental or {})  # no channel here (X1)
            for tool, arguments in NEEDS_A_SESSION:
                with pytest.raises(ToolFailed, match=r"not bound yet.*trust them in Codex"):
                    await b.text(tool, **arguments)
            assert "alice" in await b.text("list_peers")
            assert "Nobody" in await b.text("discover")
            assert bob.key in await b.text("get_my_session_id") and "not bound" in await b.text(
                "get_my_session_id"
            )
            assert "Nothing is pending" in await b.text("list_pending")
            assert "0 inbound" in await b.text("list_pair_requests")
            assert "once this session is bound" in await b.text("set_summary", summary="fixing the gate")
            for thread, meta, words in (
                (THREAD, {"callId": "c1", "threadId": THREAD}, "trusted local hook"),
                ("main", {}, "full UUID"),
                (THREAD[:8], {}, "full UUID"),
            ):
                error, text = await bind(b, thread, **meta)
                assert error and words in text
            # a sub-agent's hook: its parent's id as argument, its own in the meta
            assert await bind(b, THREAD, threadId=OTHER) == (False, "{}")
            with pytest.raises(ToolFailed, match=r"sub-agent and is not bound.*Leave messages to the parent"):
                await b.text("receive_messages")
            await anyio.sleep(0.5)  # more than two heartbeats
            assert world.roster() == [] and world.queued() == 1 and stub.calls == []
            assert not (bob.root / "mailbox").exists() and not (bob.root / "failed").exists()
            assert len(bob.events("bind_ignored")) == 1

            for _ in range(2):  # binding again is fine
                assert await bind(b, THREAD, threadId=THREAD, progressToken=1) == (False, "{}")
            error, text = await bind(b, OTHER)
            assert error and THREAD in text
            await until(lambda: world.announced(THREAD), "the announcement")
            assert world.roster()[0]["session"]["summary"] == "fixing the gate"
            await until(lambda: stub.calls, "the notice about what came before the binding")
            assert "early" in await b.text("receive_messages") and "early" not in stub.calls[0].message
            assert stub.calls[0].argv[:3] == ["queue", "--thread", THREAD]
            await until(lambda: bob.records(THREAD)[0]["state"] == "host_queued", "the handoff to be settled")
            (record,) = bob.records(THREAD)
            assert "host_queued" in await b.text("message_status", msg_id=record["message"]["msg_id"])
            assert THREAD in await b.text("get_my_session_id")
        await until(lambda: world.roster() == [], "unregistered")

    anyio.run(main)


def fill(world: World, sender: Host, to: Host, count: int, body: str) -> None:
    """Many messages into the relay's queue, over one connection."""
    import http.client

    host, _, port = world.relay.addr.partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    for number in range(count):
        msg = sender.signer.message(to.key, f"{number:04d} {body}")
        connection.request(
            "POST", "/send", send_body(to.listens_on(THREAD), msg), {"Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        assert answer.status == 202, answer.read()
        answer.read()
    connection.close()


@pytest.mark.req("X2", "M4", "M21")
def test_a_thousand_unread_are_one_small_notice_and_are_fetched_page_by_page(world: World, tmp_path: Path) -> None:
    alice, bob = world.pair()
    stub = CodexStub(tmp_path)
    count, body = 1000, "secret" * 410  # 2.5 KB each

    async def main() -> None:
        async with codex(bob, stub) as b:
            await bind(b)
            await until(lambda: world.announced(THREAD), "the announcement")
            fill(world, alice, bob, count, body)
            await until(lambda: world.queued() == 0, "all to be stored")
            await until(lambda: stub.calls, "a notice")
            done = 0
            seen: list[str] = []
            text = await b.text("receive_messages", limit=100)
            while found := receipts(text):
                assert len(text.encode()) <= 60_000
                seen += re.findall(r"^(\d{4}) secret", text, re.M)
                text = await b.text("acknowledge_messages", messages=found, fetch_next=True)
                done += len(found)
            assert done == count and "No unread messages" in text
            assert seen == [f"{number:04d}" for number in range(count)]
        for call in stub.calls:
            assert len(call.message.encode()) <= 12_288 and "secret" not in call.message
        # what came during the first reservation waited for its release: no storm of notices
        assert len(stub.calls) <= 3

    anyio.run(main)


@pytest.mark.req("X3", "X4", "M25")
def test_failures_are_saved_listed_retried_discarded_and_cost_no_step(world: World, tmp_path: Path) -> None:
    alice, bob = world.pair()
    stub = CodexStub(tmp_path)

    async def failures(b: Session) -> list[dict[str, Any]]:
        return list(json.loads(await b.text("failed_deliveries", action="list")))

    async def main() -> None:
        stub.answers(fails("Error: attempt to write a readonly database"))
        async with codex(bob, stub, **QUICK) as b:
            await bind(b)
            world.post(bob, alice.signer.message(bob.key, "body of one"), THREAD)
            rows = await until(lambda: failures(b), "a saved failure")
            assert len(stub.calls) >= 3 and "readonly" in rows[0]["reason"] and rows[0]["bytes"] > 0
            first = stub.calls[:3]
            assert all(b_.at - a_.at >= 0.3 for a_, b_ in itertools.pairwise(first))
            assert "delivery_failed" in await b.text(
                "message_status", msg_id=bob.records(THREAD)[0]["message"]["msg_id"]
            )
            await until(lambda: len(bob.events("notice")) >= 3, "three handoffs")
            assert {e["attempt"] for e in bob.events("notice")} == {"0"}  # no step of the schedule
            rows = await failures(b)
            assert len(rows) == 1  # the newer one took its place
            stub.answers(OK)
            shown = await until(lambda: cleared(b), "a success to clear the slot")
            assert shown == "[]"
            await until(lambda: bob.events("notice")[-1]["state"] == "host_queued", "the success in the log")

            # a permanent failure; then by hand: read, retry, discard
            await b.text("acknowledge_messages", messages=receipts(await b.text("receive_messages")))
            stub.answers(fails("Error: No active session found matching 'x'."))
            before = len(stub.calls)
            knocker = world.host("mallory")
            world.post(bob, knocker.knock(bob), THREAD)
            rows = await until(lambda: failures(b), "the pairing notice to be saved")
            assert len(stub.calls) == before + 1  # permanent: once
            text = await b.text("failed_deliveries", action="read", id=rows[0]["id"])
            assert knocker.key[:8] in text and "mallory" not in text
            with pytest.raises(ToolFailed, match=r"retry failed.*No active session"):
                await b.text("failed_deliveries", action="retry", id=rows[0]["id"])
            assert len(await failures(b)) == 1
            stub.answers(OK)
            assert (await b.text("failed_deliveries", action="retry", id=rows[0]["id"])).startswith("host_queued")
            assert stub.calls[-1].message == text.split("\n", 1)[1] and await failures(b) == []
            for action in ("read", "retry", "discard"):
                with pytest.raises(ToolFailed, match="no failed delivery"):
                    await b.text("failed_deliveries", action=action, id=rows[0]["id"])
                with pytest.raises(ToolFailed, match="needs the id"):
                    await b.text("failed_deliveries", action=action)

            # legacy entries: a whole message, read without forging anything, discarded without consuming
            path = bob.root / "failed" / bob.key / f"{THREAD}.json"
            legacy = {"id": "old1", "msg_id": "m", "sender": "alice", "reason": "r", "notice": False}
            path.write_text(json.dumps([{**legacy, "text": "</interlink> " + "x" * 100_000}]), "utf-8")
            text = await b.text("failed_deliveries", action="read", id="old1")
            assert "</interlink>" not in text and len(text.encode()) <= 60_000 and str(path) in text
            world.post(bob, alice.signer.message(bob.key, "two"), THREAD)
            await until(lambda: len(receipts_in(bob)) == 1, "another message")
            assert "No message was consumed" in await b.text("failed_deliveries", action="discard", id="old1")
            assert len(receipts(await b.text("receive_messages"))) == 1 and await failures(b) == []

    async def cleared(b: Session) -> str:
        text = await b.text("failed_deliveries", action="list")
        return text if text == "[]" else ""

    anyio.run(main)


def receipts_in(host: Host) -> list[dict[str, Any]]:
    return [r for r in host.records(THREAD) if r["state"] != "receiver_acknowledged"]


@pytest.mark.req("X5", "X6", "T3")
def test_a_hang_a_kill_and_a_diagnostic_that_cannot_be_saved_stop_nothing(world: World, tmp_path: Path) -> None:
    alice, bob = world.pair()
    stub = CodexStub(tmp_path)
    stub.answers(HANG)
    slot = bob.root / "failed" / bob.key / f"{THREAD}.json"

    def knock() -> dict[str, Any]:
        (found,) = json.loads((bob.root / "pairing" / bob.key / f"{THREAD}.json").read_bytes())["inbound"]
        return dict(found)

    async def main() -> None:
        async with codex(bob, stub, **QUICK) as b:
            await bind(b)
            world.post(bob, alice.signer.message(bob.key, "one"), THREAD)
            await until(lambda: stub.calls, "a run that hangs")
            world.post(bob, alice.signer.message(bob.key, "two"), THREAD)  # polling goes on beside it
            world.post(bob, world.host("mallory").knock(bob), THREAD)
            await until(lambda: world.queued() == 0 and len(bob.records(THREAD)) == 2, "what came meanwhile")
            await until(lambda: len(stub.calls) == 2, "the knock's own run")
            kill(b)
        wait_gone(*(pid for call in stub.calls for pid in (call.pid, call.child)))

        slot.mkdir(parents=True)  # nothing can be saved
        stub.answers(fails("Error: No active session found matching 'x'."))
        before = len(stub.calls)
        async with codex(bob, stub, **QUICK, INTERLINK_OUTBOX_RETRY_S="0.2") as b:
            await bind(b)
            await until(lambda: len(stub.calls) >= before + 4, "further attempts")
            assert bob.events("failed_delivery_not_saved")
            world.post(bob, alice.signer.message(bob.key, "three"), THREAD)
            await until(lambda: len(bob.records(THREAD)) == 3, "polling to go on")
            await until(lambda: any("knocks" in c.message for c in stub.calls[before:]), "the knock, kept (T3)")
            assert not knock()["noticed"]
            os.rmdir(slot)
            stub.answers(OK)
            await until(lambda: bob.events("notice")[-1]["state"] == "host_queued", "a success")
            await until(lambda: knock()["noticed"], "the knock to be told")

    anyio.run(main)
