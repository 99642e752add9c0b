"""The main path with real processes: sent, stored, noticed, woken, fetched, acknowledged; killed in between."""

import itertools

import anyio
import pytest
from support.world import World, kill, receipts, sent_id, until

QUICK = {"INTERLINK_NOTICE_SCHEDULE_S": "0.4,0.8,1.2", "INTERLINK_RECONCILE_S": "0.1"}


@pytest.mark.req("M2", "M3", "S1")
def test_a_message_wakes_the_listener_and_is_fetched_and_acknowledged(world: World) -> None:
    alice, bob = world.pair()

    async def main() -> None:
        async with alice.server() as a, bob.server() as b:
            listener = bob.listener()
            answer = await a.text("send_message", to="bob", session="s-bob", text="secret body")
            assert "bus_accepted" in answer
            msg_id = sent_id(answer)
            assert await anyio.to_thread.run_sync(listener.wait) == 2
            assert listener.stderr is not None and listener.stdout is not None
            notice = listener.stderr.read().decode()
            assert notice.startswith("[Interlink inbox notice]") and "secret body" not in notice
            assert '"alice" (1)' in notice and listener.stdout.read() == b""
            (record,) = bob.notices()
            assert f'receive_messages(notification_id="{record["notification_id"]}")' in notice
            found = receipts(await b.text("receive_messages", notification_id=record["notification_id"]))
            assert [r["msg_id"] for r in found] == [msg_id] and found[0]["sender"] == alice.key
            assert "inbox_queued" in await b.text("message_status", msg_id=msg_id)
            status = await a.text("message_status", msg_id=msg_id)
            assert "bus_accepted" in status and "acknowledgement: unknown" in status
            done = await b.text("acknowledge_messages", messages=found)
            assert done.startswith("1 newly acknowledged")
            assert "receiver_acknowledged" in await b.text("message_status", msg_id=msg_id)
            assert "bus_accepted" in await a.text("message_status", msg_id=msg_id)  # nobody tells the sender
            assert "No unread messages" in await b.text("receive_messages")
            assert world.queued() == 0

    anyio.run(main)


@pytest.mark.req("M6", "M13", "M28")
def test_unread_survives_kill_9_with_the_same_receipt_and_acknowledged_stays_away(world: World) -> None:
    alice, bob = world.pair()

    async def main() -> None:
        async with alice.server() as a:
            async with bob.server() as b:
                await a.text("send_message", to="bob", session="s-bob", text="one")
                await until(lambda: bob.records(), "the message")
                first = receipts(await b.text("receive_messages"))
                assert receipts(await b.text("receive_messages", notification_id="stale")) == first
                kill(b)
            async with bob.server() as b:
                assert receipts(await b.text("receive_messages")) == first
                await b.text("acknowledge_messages", messages=first)
                kill(b)
            async with bob.server() as b:
                assert "No unread messages" in await b.text("receive_messages")
                again = await b.text("acknowledge_messages", messages=first)
                assert again.startswith("0 newly acknowledged; 1 already")
                assert "receiver_acknowledged" in await b.text("conversation_history", peer="alice")

    anyio.run(main)


@pytest.mark.req("M7", "S2")
def test_an_ignored_notice_comes_again_on_the_schedule_until_acknowledged(world: World) -> None:
    alice, bob = world.pair()

    async def main() -> None:
        async with alice.server() as a, bob.server(**QUICK) as b:
            answer = await a.text("send_message", to="bob", session="s-bob", text="one")
            await until(lambda: len(bob.notices()) >= 4, "four notices")
            found = receipts(await b.text("receive_messages"))
            assert "inbox_queued" in await b.text("message_status", msg_id=sent_id(answer))
            await b.text("acknowledge_messages", messages=found)
            count = len(bob.notices())
            await anyio.sleep(2.0)  # longer than the longest interval
            assert len(bob.notices()) == count
        times = [int(e["ts"]) for e in bob.events("notice")]
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        # A gap may be longer on a slow machine, never shorter (the log line comes a moment after the reservation).
        assert all(gap >= least - 150 for gap, least in zip(gaps, (400, 800, 1200), strict=False))
        ids = [n["notification_id"] for n in bob.notices()]
        assert len(set(ids)) == len(ids)

    anyio.run(main)


@pytest.mark.req("M8", "M10")
def test_an_arrival_during_a_reservation_waits_and_is_noticed_after_release(world: World) -> None:
    alice, bob = world.pair()

    async def main() -> None:
        async with alice.server() as a, bob.server(INTERLINK_RECONCILE_S="0.1") as b:
            first = sent_id(await a.text("send_message", to="bob", session="s-bob", text="one"))
            await until(lambda: len(bob.notices()) == 1, "a notice")
            second = sent_id(await a.text("send_message", to="bob", session="s-bob", text="two"))
            await until(lambda: len(bob.records()) == 2, "the second message")
            await anyio.sleep(0.5)
            assert len(bob.notices()) == 1
            assert "receiver_stored" in await b.text("message_status", msg_id=second)
            found = {r["msg_id"]: r for r in receipts(await b.text("receive_messages"))}
            await b.text("acknowledge_messages", messages=[found[first]])
            await until(lambda: len(bob.notices()) == 2, "the notice about the second")
            # manual consumption without any notice id blocks nothing later
            await b.text("conversation_history", peer="alice", consume=True)
            await a.text("send_message", to="bob", session="s-bob", text="three")
            await until(lambda: len(bob.notices()) == 3, "the notice about the third")

    anyio.run(main)


@pytest.mark.req("C11", "M9")
def test_a_notice_whose_messages_are_acknowledged_wakes_nobody(world: World) -> None:
    alice, bob = world.pair()

    async def main() -> None:
        async with alice.server() as a, bob.server() as b:
            await a.text("send_message", to="bob", session="s-bob", text="one")
            await until(lambda: len(bob.notices()) == 1, "a notice")
            await b.text("acknowledge_messages", messages=receipts(await b.text("receive_messages")))
            listener = bob.listener()
            lock = bob.root / "inbox" / "s-bob.lock"
            cursor = bob.root / "inbox" / "s-bob.cursor"
            await until(lambda: cursor.exists() and lock.exists(), "the listener to pass over it")
            assert listener.poll() is None
            await a.text("send_message", to="bob", session="s-bob", text="two")
            assert await anyio.to_thread.run_sync(listener.wait) == 2
            assert listener.stderr is not None
            assert listener.stderr.read().decode().count("[Interlink inbox notice]") == 1

    anyio.run(main)


@pytest.mark.req("M18", "M1")
def test_two_servers_of_one_session_store_once_notify_once_and_take_over(world: World) -> None:
    alice, bob = world.pair()

    async def main() -> None:
        async with alice.server() as a, bob.server() as one, bob.server() as two:
            await a.text("send_message", to="bob", session="s-bob", text="one")
            await until(lambda: len(bob.notices()) == 1, "a notice")
            await anyio.sleep(1.5)
            assert len(bob.records()) == 1 and len(bob.notices()) == 1
            assert len(receipts(await one.text("receive_messages"))) == 1
            found = receipts(await two.text("receive_messages"))
            await two.text("acknowledge_messages", messages=found)
            assert "No unread" in await one.text("receive_messages")
            assert len(bob.events("notifier")) == 1  # one of them holds the lock
            kill(one)
            await a.text("send_message", to="bob", session="s-bob", text="two")
            await until(lambda: len(bob.notices()) == 2, "a notice after the kill")
            assert len(receipts(await two.text("receive_messages"))) == 1

    anyio.run(main)


@pytest.mark.req("M14")
def test_progress_wakes_nobody_and_a_result_supersedes_it(world: World) -> None:
    alice, bob = world.pair()

    async def main() -> None:
        async with alice.server() as a, bob.server(INTERLINK_RECONCILE_S="0.1") as b:
            for number in (1, 2):
                await a.text(
                    "send_message",
                    to="bob",
                    session="s-bob",
                    text=f"step {number}",
                    task_id="t",
                    status="update",
                )
            await until(lambda: len(bob.records()) == 2, "the progress")
            await anyio.sleep(0.5)
            assert bob.notices() == []
            text = await b.text("receive_messages")
            assert "step 2" in text and "step 1" not in text
            await a.text("send_message", to="bob", session="s-bob", text="done", task_id="t", status="result")
            await until(lambda: len(bob.notices()) == 1, "a notice about the result")
            text = await b.text("receive_messages")
            assert "done" in text and "step 2" not in text
            assert "superseded by" in await b.text("conversation_history", peer="alice")

    anyio.run(main)
