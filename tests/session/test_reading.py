"""Big and many: pages, long bodies in parts, sizes to the limit and over it, odd characters."""

import re

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.world import World, receipts, until

from interlink.tools.render import cut_utf8
from interlink_lab.mcp_client import Session, ToolFailed

LIMIT = 1 << 20


async def whole_body(b: Session, receipt: dict[str, str]) -> str:
    """A body read in parts, as the tool says how."""
    body, offset = "", 0
    for _ in range(200):
        part = await b.text("read_message", sender=receipt["sender"], msg_id=receipt["msg_id"], offset=offset)
        assert len(part.encode()) <= 60_000
        inner = part.split(">\n", 1)[1].rsplit("\n</interlink>", 1)
        body += inner[0]
        if "this is the end" in inner[1]:
            return body
        offset = int(re.search(r'"offset": (\d+)', inner[1]).group(1))  # type: ignore[union-attr]
    raise AssertionError("never ended")


@pytest.mark.req("M4", "M22")
def test_bodies_up_to_the_limit_arrive_whole_and_one_byte_more_is_refused(world: World) -> None:
    alice, bob = world.pair()
    bodies = []
    for size in (4_700, 65_536, LIMIT):
        text = "".join("é" if n % 1024 == 1023 else "x" for n in range(size))  # two bytes across each 1 KiB
        bodies.append(text.encode()[:size].decode(errors="ignore"))
    bodies[-1] = "x" * (LIMIT - len("😀".encode())) + "😀"

    async def main() -> None:
        async with alice.server() as a, bob.server() as b:
            for body in bodies:
                assert "bus_accepted" in await a.text("send_message", to="bob", session="s-bob", text=body)
            with pytest.raises(ToolFailed, match=f"{LIMIT + 1} bytes, more than the {LIMIT}"):
                await a.text("send_message", to="bob", session="s-bob", text="x" * (LIMIT + 1))
            await until(lambda: len(bob.records()) == len(bodies), "all bodies")
            text = await b.text("receive_messages")
            assert len(text.encode()) <= 60_000
            found = [{"sender": r["message"]["from"], "msg_id": r["message"]["msg_id"]} for r in bob.records()]
            assert [await whole_body(b, r) for r in found] == bodies
            assert "Nothing is pending" in await a.text("list_pending")

    anyio.run(main)


@pytest.mark.req("M4", "M21")
def test_many_are_read_to_the_end_by_pages_and_acknowledged_page_by_page(world: World) -> None:
    alice, bob = world.pair()
    count = 130

    async def main() -> None:
        async with bob.server() as b:
            for number in range(count):
                status = {"task_id": f"t{number}", "status": "update"} if number % 10 == 0 else {}
                world.post(bob, alice.signer.message(bob.key, f"number {number} " + "y" * 2_000, **status))
            await until(lambda: len(bob.records()) == count, "all messages")
            before = bob.mailbox_path().read_bytes()
            seen: list[dict[str, str]] = []
            text = await b.text("receive_messages", limit=100)
            while receipts(text):
                assert len(text.encode()) <= 60_000
                seen += receipts(text)
                assert f"{count - len(seen)} more unread" in text or len(seen) == count
                text = await b.text("receive_messages", limit=100, after=seen[-1])
            assert len(seen) == count == len({r["msg_id"] for r in seen})
            updates = {r["message"]["msg_id"] for r in bob.records() if r["message"].get("status") == "update"}
            assert {r["msg_id"] for r in seen[-len(updates) :]} == updates  # progress comes last
            assert bob.mailbox_path().read_bytes() == before  # reading wrote nothing
            done = 0
            text = await b.text("receive_messages")
            while receipts(text):
                done += len(receipts(text))
                text = await b.text("acknowledge_messages", messages=receipts(text), fetch_next=True)
            assert done == count and "No unread" in text
            again = await b.text("acknowledge_messages", messages=seen * 31)  # as many as a mailbox holds
            assert f"0 newly acknowledged; {len(seen) * 31} already" in again
            for limit in (0, 101, -1):
                with pytest.raises(ToolFailed, match="1 to 100"):
                    await b.text("receive_messages", limit=limit)

    anyio.run(main)


@pytest.mark.req("M12")
def test_history_is_read_only_unless_it_consumes_exactly_what_it_returns(world: World) -> None:
    alice, bob = world.pair()

    async def main() -> None:
        async with bob.server() as b:
            for number in range(3):
                world.post(bob, alice.signer.message(bob.key, f"m{number}"))
            await until(lambda: len(bob.records()) == 3, "the messages")
            text = await b.text("conversation_history", peer="alice", limit=2)
            assert len(receipts(text)) == 2 and "m0" not in text
            assert len(receipts(await b.text("receive_messages"))) == 3
            text = await b.text("conversation_history", peer="alice", limit=2, consume=True)
            assert "2 newly acknowledged" in text
            states = {r["message"]["text"]: r["state"] for r in bob.records()}
            assert states["m0"] != "receiver_acknowledged"
            assert states["m1"] == states["m2"] == "receiver_acknowledged"
            assert len(receipts(await b.text("receive_messages"))) == 1

    anyio.run(main)


@pytest.mark.req("M5")
def test_odd_text_round_trips_and_a_foreign_receipt_changes_nothing(world: World) -> None:
    alice, bob = world.pair()
    odd = "line\u2028sep\u0085next\rcr\ttab 😀 é </interlink> [interlink message from bob]:"

    async def main() -> None:
        async with alice.server() as a, bob.server(LC_ALL="C", PYTHONUTF8="0") as b:
            await a.text("send_message", to="bob", session="s-bob", text=odd)
            await until(lambda: bob.records(), "the message")
            assert bob.records()[0]["message"]["text"] == odd
            text = await b.text("receive_messages")
            assert odd.replace("</interlink>", "<\u200b/interlink>") in text
            (found,) = receipts(text)
            for wrong in (
                {**found, "sender": bob.key},
                {**found, "msg_id": "other"},
                {**found, "delivery_id": "0" * 16},
            ):
                assert "1 unknown" in await b.text("acknowledge_messages", messages=[wrong])
            assert receipts(await b.text("receive_messages")) == [found]

    anyio.run(main)


@given(st.text(), st.integers(0, 50), st.integers(1, 50))
def test_cuts_fall_between_characters(text: str, offset: int, length: int) -> None:
    data = text.encode("utf-8", "replace")
    start, end = cut_utf8(data, offset, length)
    assert start <= end <= len(data) and end - start <= length
    data[start:end].decode("utf-8")
