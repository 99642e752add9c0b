"""A relay that misbehaves: it is down with a reason, it is not asked in a hot loop, it holds up no other."""

import asyncio
import gzip
import itertools
import time

import pytest
from support.badrelay import (
    BadRelay,
    Seen,
    Way,
    answer,
    drip,
    envelope,
    hold,
    in_loop,
    many,
    nothing,
    one,
    raw,
    reset,
    silent,
    status,
    until,
)
from support.relayclient import Taker, acked, polling, quick, state

from interlink.relay.client import Arrival, Relays

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
TYPED = {"content_type": "application/json"}
DEEP = b'{"status":' + b"[" * 40_000 + b"]" * 40_000 + b"}"
GZIPPED = gzip.compress(b'{"status":"timeout"}')
MISBEHAVIOURS: dict[str, tuple[Way, str]] = {
    "wrong content type": (status(200, b"<html>", content_type="text/html"), "answers text/html instead of JSON"),
    "no content type": (status(200, b'{"status":"timeout"}'), "answers of no type instead of JSON"),
    "invalid JSON": (status(200, b'{"status":', **TYPED), "answers with broken JSON"),
    "deep JSON": (status(200, DEEP, **TYPED), "answers with broken JSON"),
    "JSON of another kind": (answer([1, 2]), "answers with JSON that is no object"),
    "unknown status": (answer({"status": "surprise"}), "in a shape that is not known"),
    "messages that are none": (answer({"status": "messages", "messages": {"a": 1}}), "in a shape that is not"),
    "no usable ack": (many(envelope(1, None)), "without an acknowledgement token"),
    "huge answer": (status(200, b" " * 5_000_000, **TYPED), "answers with more than"),
    "endless body": (drip(HEAD + b"transfer-encoding: chunked\r\n\r\n", b"ff0\r\n" + b" " * 0xFF0 + b"\r\n"), ""),
    "slow drip": (drip(HEAD + b"content-length: 9999\r\n\r\n", b" "), "gave no whole answer within"),
    "endless headers": (drip(b"HTTP/1.1 200 OK\r\n", b"x-a: b\r\n" * 4000), ""),
    "slow headers": (drip(b"HTTP/1.1 200 OK\r\n", b"x-a: b\r\n"), "gave no whole answer within"),
    "endless interim answers": (drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), "gave no whole answer within"),
    "silence": (silent(), "gave no whole answer within"),
    "reset": (reset(), ""),
    "reset in the body": (reset(HEAD + b"content-length: 9999\r\n\r\n{"), ""),
    "end in the body": (raw(HEAD + b"content-length: 9999\r\n\r\n{"), "gave no valid HTTP answer"),
    "no HTTP": (raw(b"SSH-2.0-OpenSSH_9.9\r\n"), "gave no valid HTTP answer"),
    "end at once": (raw(b""), "gave no valid HTTP answer"),
    "TLS alert": (raw(b"\x15\x03\x01\x00\x02\x02\x50"), "gave no valid HTTP answer"),
    "wrong length": (status(200, b"{}", content_length="-1", **TYPED), "gave no valid HTTP answer"),
    "compressed": (status(200, GZIPPED, content_encoding="gzip", **TYPED), "compressed"),
    "not found": (status(404), "is no relay, or another version (404)"),
    "method not allowed": (status(405), "is no relay, or another version (405)"),
    "redirect": (status(302, location="http://127.0.0.1:1/else"), "redirects (302) to http://127.0.0.1:1/else"),
    "needs a token": (status(401), "needs a token"),
    "server fault": (status(500), "has a fault of its own (500)"),
    "no content": (status(204), "answers 204"),
    "switching protocols": (
        raw(b"HTTP/1.1 101 X\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"),
        "gave no valid HTTP answer",
    ),
}


@pytest.mark.req("B2", "M17")
@pytest.mark.parametrize("name", MISBEHAVIOURS)
@in_loop
async def test_a_relay_that_misbehaves_is_down_with_a_reason_and_holds_up_no_other(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    way, reason = MISBEHAVIOURS[name]
    settings = quick(
        poll_timeout_ms=300, call_timeout_s=0.5, message_max_bytes=1024, poll_answer_max_bytes=100_000
    )
    batches = [many(envelope(n, f"t{n}")) for n in range(20)]
    async with BadRelay(recv=way) as bad, BadRelay(recv=[*batches, hold()]) as good:
        taker = Taker()
        async with polling(Relays([bad.url, good.url], settings), taker) as relays:
            await until(lambda: len(taker.kept) == 20)
            await until(lambda: state(relays, 0).up is False)
            error = state(relays, 0).error
            assert error and reason in error
            await until(lambda: state(relays, 1).up)
            await bad.seen("/recv", 3)  # it is asked again, all the same
            assert not bad.got("/ack")
            # It mends itself as soon as the relay does.
            bad.set("recv", [one("late", "mended"), hold()])
            await until(lambda: "mended" in acked(bad))
            await until(lambda: state(relays, 0).up)
    told = [line for line in capsys.readouterr().err.splitlines() if f"url={bad.url} " in line]
    reasons = [line.partition(" event=")[2] for line in told if "event=relay_down" in line]
    assert len(reasons) == len(set(reasons)), "one reason, one line"


@pytest.mark.req("M17")
@in_loop
async def test_a_relay_of_https_that_speaks_http_says_so() -> None:
    async with BadRelay() as fake, BadRelay(recv=[one(1, "t1"), hold()]) as good:
        urls = [fake.url.replace("http://", "https://"), good.url]
        async with polling(Relays(urls, quick()), Taker()) as relays:
            await until(lambda: state(relays).up is False)
            assert "TLS failed" in state(relays).error
            await good.seen("/ack")


@pytest.mark.req("M17")
@in_loop
async def test_a_relay_that_answers_nothing_at_once_is_not_asked_in_a_hot_loop() -> None:
    settings = quick(poll_min_s=0.1)
    start = time.monotonic()
    async with BadRelay(recv=nothing()) as fake, polling(Relays([fake.url], settings), Taker()) as relays:
        polls = await fake.seen("/recv", 4)
        assert polls[3].at - start > 0.29
        assert state(relays).up


@pytest.mark.req("M17")
@in_loop
async def test_a_relay_that_gives_acknowledged_messages_again_is_slowed_down_and_named() -> None:
    settings = quick(backoff_min_s=0.05, backoff_max_s=0.05)
    async with BadRelay(recv=one(1, "t1")) as fake, polling(Relays([fake.url], settings), Taker()) as relays:
        polls = await fake.seen("/recv", 5)
        gaps = [b.at - a.at for a, b in itertools.pairwise(polls[1:])]
        assert min(gaps) > 0.045
        await until(lambda: "again" in state(relays).error)


@pytest.mark.req("M17")
@in_loop
async def test_an_ack_that_fails_is_followed_by_a_pause_and_comes_again_with_the_message() -> None:
    settings = quick(backoff_min_s=0.05, backoff_max_s=0.05)
    async with (
        BadRelay(recv=one(1, "t1"), ack=status(500)) as fake,
        polling(Relays([fake.url], settings), Taker()) as relays,
    ):
        polls = await fake.seen("/recv", 4)
        gaps = [b.at - a.at for a, b in itertools.pairwise(polls)]
        assert min(gaps) > 0.045
        assert state(relays).up is False
        assert "(500)" in state(relays).error
        fake.set("ack", status(200))
        fake.set("recv", [one(1, "t1"), hold()])
        await until(lambda: state(relays).up)


@pytest.mark.req("M17")
@in_loop
async def test_a_poll_waits_as_long_as_a_busy_relay_asks_for() -> None:
    busy = status(503, retry_after="1")
    async with BadRelay(recv=[busy, hold()]) as fake, polling(Relays([fake.url], quick()), Taker()):
        first, second = (await fake.seen("/recv", 2))[:2]
        assert second.at - first.at > 0.95


@pytest.mark.req("M17")
@in_loop
async def test_an_answer_too_big_is_asked_for_in_smaller_ones_and_the_relay_stays_up() -> None:
    async def way(seen: Seen, out: asyncio.StreamWriter) -> None:
        most = int(seen.query.get("max", "1"))
        batch = many(*(envelope("x" * 3000, f"t{n}") for n in range(most)))
        await batch(seen, out)

    settings = quick(poll_batch=64, poll_answer_max_bytes=65_536, message_max_bytes=1024)
    sizes: list[int] = []

    async def handler(arrivals: list[Arrival]) -> list[str]:
        sizes.append(len(arrivals))
        fake.set("recv", hold())
        return [a.ack for a in arrivals]

    async with BadRelay(recv=way) as fake, polling(Relays([fake.url], settings), handler) as relays:
        await fake.seen("/ack")
        await until(lambda: state(relays).up)
        assert sizes == [16]
        assert [seen.query["max"] for seen in fake.got("/recv")[:3]] == ["64", "32", "16"]
