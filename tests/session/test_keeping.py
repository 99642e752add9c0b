"""Nothing is lost: relays down, disks and files broken, mailboxes full, senders killed."""

import json
from pathlib import Path

import anyio
import pytest
from support.world import World, kill, receipts, sent_id, until

from interlink_lab.mcp_client import ToolFailed
from interlink_lab.programs import Relay

PATIENT = {"INTERLINK_BACKOFF_MAX_S": "0.3", "INTERLINK_OUTBOX_RETRY_S": "0.2", "INTERLINK_RECONCILE_S": "0.1"}


@pytest.mark.req("T5")
def test_a_sent_message_survives_the_senders_death_while_the_relay_is_down(world: World) -> None:
    alice, bob = world.pair()

    async def main() -> None:
        async with bob.server(**PATIENT) as b:
            async with alice.server(**PATIENT) as a:
                await until(lambda: _lists(a, "s-bob"), "bob on the roster")
                world.relay.kill()
                answer = await a.text("send_message", to="bob", session="s-bob", text="kept")
                assert "pending" in answer
                assert sent_id(answer) in await a.text("list_pending")
                kill(a)
            world.relay.start()
            async with alice.server(**PATIENT) as a:
                await until(lambda: bob.records(), "the message at bob")
                (found,) = receipts(await b.text("receive_messages"))
                assert found["msg_id"] == sent_id(answer)
                assert "bus_accepted" in await a.text("message_status", msg_id=sent_id(answer))
                assert "Nothing is pending" in await a.text("list_pending")

    anyio.run(main)


async def _lists(session: object, word: str) -> bool:
    return word in await session.text("list_peers")  # type: ignore[attr-defined]


@pytest.mark.req("M15", "M16", "M17")
def test_a_full_mailbox_keeps_the_rest_on_the_relay_and_drains_by_itself(world: World) -> None:
    alice, bob = world.pair()

    async def main() -> None:
        async with bob.server(INTERLINK_MAILBOX_MAX_RECORDS="3", **PATIENT) as b:
            for number in range(5):
                world.post(bob, alice.signer.message(bob.key, f"m{number}"))
            await until(lambda: bob.events("mailbox_full"), "the mailbox to be full")
            text = await b.text("receive_messages")
            assert "mailbox is full" in text and len(receipts(text)) == 3
            assert world.queued() == 2
            await b.text("acknowledge_messages", messages=receipts(text))
            await until(lambda: world.queued() == 0, "the rest")
            text = await b.text("receive_messages")
            assert "m3" in text and "m4" in text and len(receipts(text)) == 2
        assert bob.events("mailbox_full") and bob.events("mailbox_has_room")

    anyio.run(main)


def _put(path: Path, data: bytes) -> None:
    """Replace a file whole: a server that looks at it meanwhile must not see an empty one."""
    temp = path.with_suffix(".put")
    temp.write_bytes(data)
    temp.replace(path)


@pytest.mark.req("M17")
@pytest.mark.parametrize("damage", ["cut", "newer", "directory"])
def test_a_mailbox_that_cannot_be_used_stays_as_it_is_and_mail_waits(world: World, damage: str) -> None:
    alice, bob = world.pair()

    async def main() -> None:
        async with bob.server(**PATIENT) as b:
            world.post(bob, alice.signer.message(bob.key, "first"))
            await until(lambda: [r for r in bob.records() if r["state"] == "inbox_queued"], "the first message")
            path = bob.mailbox_path()  # nothing writes to it now, until its next notice is due
            good = path.read_bytes()
            bad = good[:-20] if damage == "cut" else good.replace(b'"version":2', b'"version":99')
            if damage == "directory":
                path.rename(path.with_suffix(".aside"))
                path.mkdir()
            else:
                _put(path, bad)
            world.post(bob, alice.signer.message(bob.key, "second"))
            with pytest.raises(ToolFailed, match=r"parse|version|regular file"):
                await b.text("receive_messages")
            await until(lambda: bob.events("mailbox_fault"), "the fault in the log")
            assert world.queued() == 1
            assert path.is_dir() if damage == "directory" else path.read_bytes() == bad
            copies = list(path.parent.glob("*.corrupt-*"))
            assert [c.read_bytes() for c in copies] == ([bad] if damage == "cut" else [])
            if damage == "directory":
                path.rmdir()
            _put(path, good)
            await until(lambda: world.queued() == 0, "the second message")
            assert len(receipts(await b.text("receive_messages"))) == 2

    anyio.run(main)


@pytest.mark.req("G7")
def test_a_broken_peers_file_admits_nobody_and_a_removed_peer_is_held_back(world: World) -> None:
    alice, bob = world.pair()

    async def main() -> None:
        async with bob.server(**PATIENT) as b:
            world.post(bob, alice.signer.message(bob.key, "first"))
            await until(lambda: bob.records(), "the first message")
            bob.peers_file.write_text('{"alice": ', "utf-8")
            world.post(bob, alice.signer.message(bob.key, "second"))
            with pytest.raises(ToolFailed, match=r"peers\.json"):
                await b.text("receive_messages")
            await anyio.sleep(0.5)
            assert world.queued() == 1 and len(bob.records()) == 1
            bob.trust()
            text = await b.text("receive_messages")
            assert "No unread messages" in text and "1 unread messages of removed peers" in text
            await until(lambda: world.queued() == 0, "the second to be refused")  # now a stranger's
            bob.trust(alice)
            text = await b.text("receive_messages")
            assert "first" in text and "second" not in text

    anyio.run(main)


@pytest.mark.req("G1", "G3", "G6")
def test_bad_messages_are_refused_and_never_block_the_good_one_behind_them(world: World) -> None:
    alice, bob = world.pair()
    mallory = world.host("mallory")
    good = alice.signer.message(bob.key, "the good one")

    async def main() -> None:
        async with bob.server() as b:
            forged = alice.signer.message(bob.key, "x") | {"text": "y"}
            old = alice.signer.message(bob.key, "x", ts=1_000)
            ahead = alice.signer.message(bob.key, "x", ts=int(good["ts"]) + 3_600_000)  # type: ignore[call-overload]
            other = alice.signer.message(mallory.key, "x")
            bad = [forged, old, ahead, other, mallory.signer.message(bob.key, "x"), {"no": "message"}]
            for msg in [*bad, alice.signer.message(bob.key, "x", status="unheard of"), good, good]:
                world.post(bob, msg)
            await until(lambda: world.queued() == 0, "all to be settled")
            text = await b.text("receive_messages")
            assert [r["msg_id"] for r in receipts(text)] == [good["msg_id"]]
            reasons = sorted(e["reason"] for e in bob.events("refused"))
            assert reasons == sorted(
                ["bad_signature", "expired", "from_future", "not_for_us", "stranger", "undecodable", "undecodable"]
            )
            assert "the good one" not in bob.log()

    anyio.run(main)


@pytest.mark.req("M22")
def test_an_oversized_message_is_set_aside_with_a_notice_and_the_next_one_arrives(world: World) -> None:
    alice, bob = world.pair()

    async def main() -> None:
        async with bob.server(INTERLINK_MESSAGE_MAX_BYTES="4096") as b:
            big = alice.signer.message(bob.key, "z" * 10_000)
            world.post(bob, big)
            world.post(bob, alice.signer.message(bob.key, "small"))
            await until(lambda: bob.records(), "the small one")
            await until(lambda: world.queued() == 0, "both to be settled")
            text = await b.text("receive_messages")
            assert "small" in text and len(receipts(text)) == 1
            assert "undeliverable" in await b.text("message_status", msg_id=big["msg_id"])
            asides = [n for n in bob.notices() if n["kind"] == "aside"]
            assert len(asides) == 1 and "undeliverable" in asides[0]["content"]
            assert "zzz" not in json.dumps(bob.notices())

    anyio.run(main)


@pytest.mark.req("B2")
def test_two_relays_one_copy_and_one_of_them_may_die(
    world: World, tmp_path_factory: pytest.TempPathFactory
) -> None:
    alice, bob = world.pair()
    second = Relay(tmp_path_factory.mktemp("second"))
    second.start()
    world.urls.append(second.url)

    async def main() -> None:
        async with alice.server(**PATIENT) as a, bob.server(**PATIENT) as b:
            await a.text("send_message", to="bob", session="s-bob", text="one")
            await until(lambda: bob.records(), "the message")
            second.kill()
            await a.text("send_message", to="bob", session="s-bob", text="two")
            await until(lambda: len(bob.records()) == 2, "the second message")
            text = await b.text("receive_messages")
            assert len(receipts(text)) == 2

    try:
        anyio.run(main)
    finally:
        second.stop()


@pytest.mark.req("C6")
def test_a_second_identity_does_not_share_a_sessions_inbox(world: World) -> None:
    _alice, bob = world.pair()

    async def main() -> None:
        async with bob.server() as b:
            assert "s-bob" in await b.text("get_my_session_id")
        carol = world.host("carol")
        async with bob.server(announced=False, INTERLINK_KEY=str(carol.key_file)) as b:
            with pytest.raises(ToolFailed, match="identity"):
                await b.text("receive_messages")

    anyio.run(main)
