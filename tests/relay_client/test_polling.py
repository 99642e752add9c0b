"""Polling: what is handed over, what is acknowledged, and how it begins and ends."""

import asyncio
import contextlib
import itertools
import time

import pytest
from support.badrelay import (
    BadRelay,
    Way,
    drip,
    envelope,
    hold,
    in_loop,
    many,
    one,
    silent,
    status,
    until,
)
from support.relayclient import ROUTE, Taker, acked, polling, quick, state

from interlink.errors import MailboxFull
from interlink.relay.client import Arrival, Relays
from interlink.settings import Settings


@pytest.mark.req("B2")
@in_loop
async def test_a_batch_is_acknowledged_in_one_call_and_in_its_order() -> None:
    batch = many(*(envelope({"n": n}, f"t{n}") for n in range(5)))
    async with BadRelay(recv=[batch, hold()]) as fake:
        taker = Taker()
        async with polling(Relays([fake.url], quick()), taker) as relays:
            (ack,) = await fake.seen("/ack")
            await until(lambda: state(relays).up)
            assert ack.body == {"me": ROUTE, "acks": ["t0", "t1", "t2", "t3", "t4"]}
            assert taker.kept == ['{"n":0}', '{"n":1}', '{"n":2}', '{"n":3}', '{"n":4}']
            assert state(relays).batch
        first = fake.got("/recv")[0]
        assert first.query == {"me": ROUTE, "timeout_ms": "30000", "max": "256"}


@pytest.mark.req("B2", "B7")
@in_loop
async def test_a_relay_of_the_single_form_works_with_single_acknowledgements() -> None:
    async with BadRelay(recv=[one({"n": 1}, "t1"), one({"n": 2}, "t2"), hold()]) as fake:
        taker = Taker()
        async with polling(Relays([fake.url], quick()), taker) as relays:
            acks = await fake.seen("/ack", 2)
            assert [seen.body for seen in acks] == [{"me": ROUTE, "ack": "t1"}, {"me": ROUTE, "ack": "t2"}]
            assert [len(call) for call in taker.calls] == [1, 1]
            assert taker.calls[0][0] == Arrival('{"n":1}', 1, "t1")
            assert not state(relays).batch


@pytest.mark.req("B2", "B7")
@pytest.mark.parametrize("code", [422, 400])
@in_loop
async def test_a_relay_that_refuses_a_list_of_acks_gets_single_ones_from_then_on(
    code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    batches = [many(envelope(n, f"t{n}"), envelope(n, f"u{n}")) for n in range(3)]
    async with (
        BadRelay(recv=[*batches, hold()], ack=[status(code), status(200)]) as fake,
        polling(Relays([fake.url], quick()), Taker()) as relays,
    ):
        await fake.seen("/ack", 7)
        bodies = [seen.body for seen in fake.got("/ack")]
        assert bodies[0] == {"me": ROUTE, "acks": ["t0", "u0"]}
        assert [body["ack"] for body in bodies[1:]] == ["t0", "u0", "t1", "u1", "t2", "u2"]
        await until(lambda: state(relays).up)
    assert capsys.readouterr().err.count("event=relay_single") == 1


@pytest.mark.req("B2")
@in_loop
async def test_a_refused_list_of_acks_is_taken_one_by_one_so_that_one_foreign_token_costs_itself_alone() -> None:
    batch = many(envelope(1, "t1"), envelope(2, "foreign"), envelope(3, "t3"))
    ways: list[Way] = [status(403), status(200), status(403), status(200)]
    async with (
        BadRelay(recv=[batch, hold()], ack=ways) as fake,
        polling(Relays([fake.url], quick()), Taker()) as relays,
    ):
        await fake.seen("/ack", 4)
        assert [seen.body.get("ack") for seen in fake.got("/ack")] == [None, "t1", "foreign", "t3"]
        await until(lambda: state(relays).up)  # the next poll is well again


@pytest.mark.req("B2")
@in_loop
async def test_a_relay_that_refuses_max_is_asked_without() -> None:
    async with BadRelay(recv=[status(400), one(1, "t1"), hold()]) as fake:
        taker = Taker()
        async with polling(Relays([fake.url], quick()), taker):
            await fake.seen("/ack")
            assert ["max" in seen.query for seen in fake.got("/recv")[:2]] == [True, False]


@pytest.mark.req("M17")
@in_loop
async def test_a_relay_that_gives_more_than_was_asked_for_is_taken_up_to_that() -> None:
    batch = many(*(envelope(n, f"t{n}") for n in range(9)))
    async with BadRelay(recv=[batch, hold()]) as fake, polling(Relays([fake.url], quick(poll_batch=4)), Taker()):
        (ack,) = await fake.seen("/ack")
        assert ack.body["acks"] == ["t0", "t1", "t2", "t3"]


@pytest.mark.req("M1", "M17")
@in_loop
async def test_nothing_is_acknowledged_that_the_handler_did_not_name() -> None:
    calls: list[list[Arrival]] = []

    async def handler(arrivals: list[Arrival]) -> list[str]:
        calls.append(arrivals)
        return ["t2", "never given", "t2"]

    batch = many(envelope(1, "t1"), envelope(2, "t2"), envelope(3, "t3"))
    async with BadRelay(recv=batch) as fake, polling(Relays([fake.url], quick()), handler):
        await until(lambda: len(calls) >= 3)
        await fake.seen("/ack", 3)
        assert set(acked(fake)) == {"t2"}
        assert fake.got("/ack")[0].body == {"me": ROUTE, "ack": "t2"}


@pytest.mark.req("M17")
@in_loop
async def test_a_full_mailbox_pauses_the_polls_and_is_tried_again_by_itself(
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = quick(backoff_min_s=0.05, backoff_max_s=0.05)
    full = Taker(room=0)
    async with BadRelay(recv=one({"n": 1}, "t1")) as fake, polling(Relays([fake.url], settings), full) as relays:
        polls = await fake.seen("/recv", 5)
        gaps = [b.at - a.at for a, b in itertools.pairwise(polls)]
        assert min(gaps) > 0.045
        assert not fake.got("/ack")
        assert state(relays).up, "a relay is not down because we are full"
        full.room = 1
        await fake.seen("/ack")
        assert full.kept == ['{"n":1}']
    log = capsys.readouterr().err
    assert log.count("event=poll_deferred") <= 2  # before room was made, and after it was used up
    assert "could not be stored" in log
    assert "event=poll_resumed" in log


@pytest.mark.req("M17")
@pytest.mark.parametrize("error", [MailboxFull("the mailbox is full"), KeyError("secret body")])
@in_loop
async def test_a_handler_that_raises_is_asked_again_after_a_pause(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = 3
    taker = Taker()

    async def handler(arrivals: list[Arrival]) -> list[str]:
        nonlocal failing
        failing -= 1
        if failing >= 0:
            raise error
        return await taker(arrivals)

    async with (
        BadRelay(recv=[one(1, "t1"), one(1, "t1"), one(1, "t1"), one(1, "t1"), hold()]) as fake,
        polling(Relays([fake.url], quick()), handler),
    ):
        await fake.seen("/ack")
        assert len(fake.got("/recv")) >= 4
        assert len(fake.got("/ack")) == 1
    log = capsys.readouterr().err
    assert log.count("event=poll_deferred") == 1
    assert "secret body" not in log


@pytest.mark.req("G6", "M17")
@in_loop
async def test_bad_entries_are_left_out_and_the_good_ones_of_the_answer_are_kept(
    capsys: pytest.CaptureFixture[str],
) -> None:
    batch = many(
        envelope(1, 7),
        envelope(2, "ok2"),
        envelope(2, "ok2"),
        "rubbish",
        envelope(3, ""),
        envelope(4, "\ud800"),
        {"envelope": "none", "ack": "ok5"},
        {"ack": "ok6"},
        envelope({"text": "\ud800"}, "ok7"),
        envelope(8, "x" * 5000),
        envelope("text", "ok9"),
        {"envelope": {"payload": {}, "ts": True}, "ack": "ok10"},
    )
    async with BadRelay(recv=[batch, batch, hold()]) as fake:
        taker = Taker()
        async with polling(Relays([fake.url], quick()), taker):
            await fake.seen("/ack", 2)
            assert acked(fake)[:6] == ["ok2", "ok5", "ok6", "ok7", "ok9", "ok10"]
            assert [a.payload for a in taker.calls[0]] == ["2", "", "", '{"text":"?"}', '"text"', "{}"]
            assert taker.calls[0][5].ts == 0
    assert capsys.readouterr().err.count("event=poll_skipped") == 1


@pytest.mark.req("G6")
@in_loop
async def test_one_message_of_bad_bytes_does_not_hide_the_others() -> None:
    good = b'{"envelope":{"payload":{"text":"\xc3\xa9"},"ts":1},"ack":"t1"}'
    huge = b'{"envelope":{"payload":{"n":' + b"9" * 5000 + b'},"ts":1},"ack":"t2"}'
    bad = b'{"envelope":{"payload":{"text":"\xff"},"ts":1},"ack":"t3"}'
    body = b'{"status":"messages","messages":[' + b",".join([bad, huge, good]) + b"]}"
    way = status(200, body, content_type="application/json; charset=utf-8")
    async with BadRelay(recv=[way, hold()]) as fake:
        taker = Taker()
        async with polling(Relays([fake.url], quick()), taker):
            await fake.seen("/ack")
            assert acked(fake) == ["t3", "t2", "t1"]
            assert taker.kept == ['{"text":"\ufffd"}', '{"n":Infinity}', '{"text":"é"}']


@pytest.mark.req("B2", "M17")
@in_loop
async def test_a_relay_that_is_away_is_found_again_when_it_is_back(capsys: pytest.CaptureFixture[str]) -> None:
    async with BadRelay(recv=hold()) as fake:
        taker = Taker()
        async with polling(Relays([fake.url], quick()), taker) as relays:
            await fake.seen("/recv")
            await fake.stop()
            await until(lambda: "Connection refused" in state(relays).error)
            down_since = state(relays).since_ms
            fake.set("recv", [one(1, "t1"), hold()])
            await fake.start()
            await fake.seen("/ack")
            await until(lambda: state(relays).up)
            assert state(relays).error == ""
            assert state(relays).since_ms >= down_since
    log = capsys.readouterr().err
    assert log.count("event=relay_down") <= 3, log  # the cut, and the refusal
    assert log.count("event=relay_up") == 1, log


@pytest.mark.req("B2")
@in_loop
async def test_a_slow_handler_for_one_relay_does_not_hold_up_the_polls_of_another() -> None:
    started = asyncio.Event()
    kept: list[str] = []

    async def handler(arrivals: list[Arrival]) -> list[str]:
        if arrivals[0].payload == '"slow"':
            started.set()
            await asyncio.Event().wait()
        kept.append(arrivals[0].payload)
        return [a.ack for a in arrivals]

    async with (
        BadRelay(recv=one("slow")) as slow,
        BadRelay(recv=[one(1, "t1"), one(2, "t2"), hold()]) as other,
        polling(Relays([slow.url, other.url], quick()), handler),
    ):
        await started.wait()
        await until(lambda: kept == ["1", "2"])


@in_loop
async def test_cancelling_and_closing_end_soon_whatever_the_relays_do() -> None:
    ways: list[Way] = [
        hold(),
        silent(),
        drip(b"HTTP/1.1 200 OK\r\n", b"x-a: b\r\n"),
        drip(b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n", b" "),
        status(500),
    ]
    async with contextlib.AsyncExitStack() as stack:
        fakes = [await stack.enter_async_context(BadRelay(recv=way, send=way)) for way in ways]
        relays = Relays([fake.url for fake in fakes], quick())
        task = asyncio.create_task(relays.poll(ROUTE, Taker()))
        sending = asyncio.create_task(relays.send(ROUTE, "{}"))
        for fake in fakes:
            await fake.seen("/recv")
            await fake.seen("/send")
        start = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await relays.aclose()
        assert (await sending).accepted == []
        assert time.monotonic() - start < Settings.shutdown_grace_s + 1


@in_loop
async def test_closing_ends_the_polls_and_no_connection_is_made_afterwards() -> None:
    async with BadRelay() as fake:
        relays = Relays([fake.url], quick())
        task = asyncio.create_task(relays.poll(ROUTE, Taker()))
        await fake.seen("/recv")
        await relays.aclose()
        await task
        before = len(fake.requests)
        result = await relays.send(ROUTE, "{}")
        assert "closed" in str(result.failed[fake.url])
        assert len(fake.requests) == before


def test_backoff_doubles_up_to_its_end_and_starts_anew_after_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    import random

    from interlink.relay.polling import Backoff

    reach: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        reach.append((low, high))
        return high

    monkeypatch.setattr(random, "uniform", uniform)
    backoff = Backoff(quick(backoff_min_s=0.5, backoff_max_s=3.0))
    assert [backoff.next_s() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    backoff.reset()
    assert backoff.next_s() == 0.5
    assert {low for low, _high in reach} == {0.5}, "never shorter than the shortest"
    odd = Backoff(quick(backoff_min_s=2.0, backoff_max_s=1.0))
    assert [odd.next_s() for _ in range(3)] == [2.0, 2.0, 2.0]
