"""The client with real relay processes: killed and started again, one of two down, with a token."""

import asyncio
import json
from pathlib import Path

import pytest
from support.badrelay import in_loop, until
from support.relay import RelayProcess
from support.relayclient import ROUTE, Taker, polling, quick, state

from interlink.errors import RelayError
from interlink.relay import light
from interlink.relay.client import Relays

LIMIT_S = 30.0
TOKEN = "a-token-of-a-test-0123"


async def started(*args: str, **kwargs: str) -> RelayProcess:
    return await asyncio.to_thread(RelayProcess(*args, **kwargs).start)  # type: ignore[arg-type]


@pytest.mark.req("B2")
@in_loop
async def test_a_real_relay_takes_batches_and_forgets_what_was_acknowledged(tmp_path: Path) -> None:
    relay = await started("--db", str(tmp_path / "q.db"))
    try:
        taker = Taker()
        relays = Relays([relay.url], quick())
        for n in range(300):
            assert (await relays.send(ROUTE, json.dumps({"n": n}))).accepted == [relay.url]
        async with polling(relays, taker):
            await until(lambda: len(taker.kept) == 300)
            assert [json.loads(p)["n"] for p in taker.kept] == list(range(300))
            assert max(len(call) for call in taker.calls) > 200
            await until(lambda: relay.client.drain(ROUTE, ack=False) == [])
            assert state(relays).batch
            skew = state(relays).skew_ms
            assert skew is not None and abs(skew) < 5000
    finally:
        relay.kill()


@pytest.mark.req("B2", "M17")
@in_loop
async def test_a_relay_killed_in_the_middle_of_polling_loses_nothing_and_is_found_again(tmp_path: Path) -> None:
    relay = await started("--db", str(tmp_path / "q.db"))
    try:
        taker = Taker()
        relays = Relays([relay.url], quick())
        async with polling(relays, taker):
            sent = 0
            for _round in range(3):
                for _ in range(20):
                    assert (await relays.send(ROUTE, str(sent))).accepted
                    sent += 1
                await asyncio.to_thread(relay.kill)
                result = await relays.send(ROUTE, '"lost"')
                assert result.accepted == [], "nothing is accepted by a relay that is gone"
                await until(lambda: state(relays).up is False)
                await asyncio.to_thread(relay.start)
            await until(lambda: len(set(taker.kept)) == sent)
            await until(lambda: state(relays).up)
            # An acknowledgement may have been cut off: such a message comes twice, none comes never.
            assert {int(p) for p in taker.kept} == set(range(sent))
    finally:
        relay.kill()


@pytest.mark.req("B2")
@in_loop
async def test_with_one_of_two_relays_down_messages_go_on_and_it_joins_again(tmp_path: Path) -> None:
    a = await started("--db", str(tmp_path / "a.db"))
    b = await started("--db", str(tmp_path / "b.db"))
    try:
        taker = Taker()
        relays = Relays([a.url, b.url], quick())
        async with polling(relays, taker):
            assert set((await relays.send(ROUTE, '"both"')).accepted) == {a.url, b.url}
            await until(lambda: taker.kept == ['"both"'] * 2)  # one copy is kept by the mailbox, not here
            await asyncio.to_thread(b.kill)
            for n in range(10):
                assert (await relays.send(ROUTE, str(n))).accepted == [a.url]
            await until(lambda: len(taker.kept) == 12)
            await asyncio.to_thread(b.start)
            await until(lambda: all(s.up for s in relays.status()))
            assert set((await relays.send(ROUTE, '"again"')).accepted) == {a.url, b.url}
            await until(lambda: taker.kept.count('"again"') == 2)
    finally:
        a.kill()
        b.kill()


@pytest.mark.req("B2", "M1")
@in_loop
async def test_what_the_handler_does_not_name_stays_on_a_real_relay(tmp_path: Path) -> None:
    relay = await started("--db", str(tmp_path / "q.db"))
    try:
        taker = Taker(room=2)
        relays = Relays([relay.url], quick())
        for n in range(5):
            await relays.send(ROUTE, str(n))
        async with polling(relays, taker):
            await until(lambda: len(taker.calls) >= 3)
            assert taker.kept == ["0", "1"]
            taker.room = 1000
            await until(lambda: taker.kept == ["0", "1", "2", "3", "4"])
            await until(lambda: relay.client.drain(ROUTE, ack=False) == [])
    finally:
        relay.kill()


@pytest.mark.req("B2")
@in_loop
async def test_a_full_queue_of_a_real_relay_is_429_with_a_time(tmp_path: Path) -> None:
    relay = await started("--db", str(tmp_path / "q.db"), "--queue-cap", "2")
    try:
        relays = Relays([relay.url], quick())
        results = [await relays.send(ROUTE, str(n)) for n in range(3)]
        assert [len(r.accepted) for r in results] == [1, 1, 0]
        error = results[2].failed[relay.url]
        assert error.status == 429
        assert error.retry_after_s == 5
        with pytest.raises(RelayError) as caught:
            await asyncio.to_thread(light.send, relay.url, ROUTE, "{}", None, LIMIT_S)
        assert (caught.value.status, caught.value.retry_after_s) == (429, 5)
        await relays.aclose()
    finally:
        relay.kill()


@pytest.mark.req("B2")
@in_loop
async def test_a_real_relay_with_a_token_is_told_apart_from_one_without(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o600)
    relay = await started("--memory", "--token-file", str(file), token=TOKEN)
    try:
        stranger = Relays([relay.url], quick())
        taker = Taker()
        async with polling(stranger, taker):
            await until(lambda: state(stranger).up is False)
            assert "needs a token" in state(stranger).error
            assert (await stranger.send(ROUTE, "{}")).failed[relay.url].status == 401
        friend = Relays([relay.url], quick(), token=TOKEN)
        async with polling(friend, taker):
            assert (await friend.send(ROUTE, "{}")).accepted == [relay.url]
            await until(lambda: taker.kept == ["{}"])
        assert light.healthz(relay.url, LIMIT_S).ok
        with pytest.raises(RelayError, match="token"):
            light.roster(relay.url, None, LIMIT_S)
        assert light.roster(relay.url, TOKEN, LIMIT_S) == []
        light.send(relay.url, ROUTE, '{"a":1}', TOKEN, LIMIT_S)
        assert relay.client.drain(ROUTE) == [{"a": 1}]
    finally:
        relay.kill()
