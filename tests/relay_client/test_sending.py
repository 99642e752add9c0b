"""Sending to several relays, announcing, rosters: what each caller is told, and how long it waits for whom."""

import asyncio
import time
from email.utils import formatdate

import pytest
from support.badrelay import BadRelay, answer, gated, hold, in_loop, raw, reset, silent, status, until
from support.relayclient import ROUTE, Taker, polling, quick, state

from interlink.errors import RelayError, UsageError, WireError
from interlink.relay.client import Relays
from interlink.settings import Settings

NOWHERE = "http://127.0.0.1:1"


@pytest.mark.req("B2")
@in_loop
async def test_a_message_goes_to_every_relay_as_it_is() -> None:
    async with BadRelay() as a, BadRelay() as b:
        relays = Relays([a.url, b.url], quick())
        result = await relays.send(ROUTE, '{"text":"é \\u2028","n":1.0}')
        assert result == ([a.url, b.url], {})
        for fake in (a, b):
            (seen,) = fake.got("/send")
            assert seen.body == {"to": ROUTE, "payload": {"text": "é \u2028", "n": 1.0}}
            assert seen.headers["content-type"] == "application/json"
            assert "authorization" not in seen.headers
        await relays.aclose()


@pytest.mark.req("B2")
@in_loop
async def test_one_relay_of_two_is_enough_and_the_other_is_named_with_its_reason() -> None:
    async with BadRelay() as good:
        relays = Relays([NOWHERE, good.url], quick())
        result = await relays.send(ROUTE, "{}")
        assert result.accepted == [good.url]
        assert "Connection refused" in str(result.failed[NOWHERE])
        assert [s.up for s in relays.status()] == [False, True]
        await relays.aclose()


@pytest.mark.req("B2")
@in_loop
async def test_with_every_relay_down_nothing_is_raised_and_nothing_accepted() -> None:
    async with BadRelay(send=reset()) as a, BadRelay(send=raw(b"rubbish\r\n\r\n")) as b:
        relays = Relays([a.url, b.url, NOWHERE], quick())
        result = await relays.send(ROUTE, "{}")
        assert result.accepted == []
        assert set(result.failed) == {a.url, b.url, NOWHERE}
        await relays.aclose()
    none = Relays([], quick())
    assert await none.send(ROUTE, "{}") == ([], {})
    assert await none.roster() == []
    assert none.status() == []
    await none.aclose()


@pytest.mark.parametrize("code", [200, 204, 302, 401, 403, 404, 500])
@pytest.mark.req("B2", "S2")
@in_loop
async def test_only_202_is_an_acceptance(code: int) -> None:
    async with BadRelay(send=status(code)) as fake:
        relays = Relays([fake.url], quick())
        result = await relays.send(ROUTE, "{}")
        assert result.accepted == []
        assert result.failed[fake.url].status == code
        assert str(code) in str(result.failed[fake.url])
        assert state(relays).up is False
        await relays.aclose()


RETRY = [
    ("7", 7.0),
    ("0", 0.0),
    ("99999999999999999999", 60.0),
    (formatdate(1_000_030, usegmt=True), 30.0),
    (formatdate(0, usegmt=True), 0.0),
    ("soon", None),
    ("-5", None),
    ("٣", None),
]


@pytest.mark.req("B2")
@pytest.mark.parametrize(("text", "seconds"), RETRY)
@in_loop
async def test_a_full_relay_says_when_to_try_again_and_counts_as_up(text: str, seconds: float | None) -> None:
    date = formatdate(1_000_000, usegmt=True)
    text = text.encode().decode("latin-1")
    async with BadRelay(send=status(429, retry_after=text, date=date)) as fake:
        relays = Relays([fake.url], quick())
        error = (await relays.send(ROUTE, "{}")).failed[fake.url]
        assert (error.status, error.retry_after_s) == (429, seconds)
        assert state(relays).up is True
        await relays.aclose()


@pytest.mark.req("B2", "M22")
@in_loop
async def test_a_message_too_big_for_a_relay_is_told_apart_from_a_relay_that_is_full() -> None:
    async with BadRelay(send=status(413)) as fake:
        relays = Relays([fake.url], quick())
        error = (await relays.send(ROUTE, "{}")).failed[fake.url]
        assert (error.status, error.retry_after_s) == (413, None)
        assert state(relays).up is True
        await relays.aclose()


@pytest.mark.req("B2", "M17")
@in_loop
async def test_a_slow_relay_costs_one_grace_and_then_no_more_while_it_is_late() -> None:
    settings = quick(send_grace_s=0.3, send_timeout_s=30)
    async with BadRelay() as good, BadRelay(send=silent()) as slow:
        relays = Relays([slow.url, good.url], settings)
        start = time.monotonic()
        assert await relays.send(ROUTE, "1") == ([good.url], {})
        assert time.monotonic() - start > 0.29
        for n in range(20):
            assert (await relays.send(ROUTE, str(n))).accepted == [good.url]
        assert time.monotonic() - start < 20 * 0.3, "each send waited for the slow one again"
        await relays.aclose()


@pytest.mark.req("B2")
@in_loop
async def test_a_late_relay_still_gets_the_message_in_the_background() -> None:
    settings, gate = quick(send_grace_s=0.05), asyncio.Event()
    async with BadRelay() as good, BadRelay(send=gated(gate, status(202))) as late:
        relays = Relays([late.url, good.url], settings)
        assert await relays.send(ROUTE, "1") == ([good.url], {})
        assert state(relays).up is None
        gate.set()
        await until(lambda: state(relays).up)
        assert len(late.got("/send")) == 1
        await relays.aclose()


@pytest.mark.req("B2", "M17")
@in_loop
async def test_sends_do_not_pile_up_for_a_relay_that_hangs() -> None:
    settings = quick(send_grace_s=0.01, send_parallel=3)
    async with BadRelay() as good, BadRelay(send=silent()) as slow:
        relays = Relays([slow.url, good.url], settings)
        for n in range(30):
            await relays.send(ROUTE, str(n))
        await slow.seen("/send", 3)
        await until(lambda: len([t for t in asyncio.all_tasks() if t.get_name() == f"relay {slow.url}"]) <= 3)
        assert len(slow.got("/send")) == 3
        await relays.aclose()
        assert len(good.got("/send")) == 30


@in_loop
async def test_a_send_ends_in_time_when_every_relay_hangs() -> None:
    async with BadRelay(send=silent()) as a, BadRelay(send=silent()) as b:
        relays = Relays([a.url, b.url], quick(send_timeout_s=0.2))
        result = await relays.send(ROUTE, "{}")
        assert result.accepted == []
        assert {str(e) for e in result.failed.values()} == {"took no message within 0.2 s"}
        await relays.aclose()


@in_loop
async def test_a_cancelled_send_leaves_no_task_behind() -> None:
    async with BadRelay(send=silent()) as fake:
        relays = Relays([fake.url], quick())
        task = asyncio.create_task(relays.send(ROUTE, "{}"))
        await fake.seen("/send")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not [t for t in asyncio.all_tasks() if t.get_name().startswith("relay ")]
        await relays.aclose()


@in_loop
async def test_a_payload_that_is_no_text_is_refused_before_anything_is_sent() -> None:
    async with BadRelay() as fake:
        relays = Relays([fake.url], quick())
        for to, payload in ((ROUTE, '"\ud800"'), ("K#\ud800", "{}")):
            with pytest.raises(WireError, match="surrogate"):
                await relays.send(to, payload)
        assert not fake.requests
        await relays.aclose()


@pytest.mark.req("B2")
@in_loop
async def test_the_token_is_shown_to_the_relay_and_never_follows_a_redirect() -> None:
    async with BadRelay() as other:
        away = status(307, location=other.url + "/send")
        async with (
            BadRelay(send=away) as fake,
            polling(Relays([fake.url], quick(), token="s3cret"), Taker()) as relays,
        ):
            result = await relays.send(ROUTE, "{}")
            assert f"to {other.url}/send" in str(result.failed[fake.url])
            await fake.seen("/recv")
            assert {seen.headers["authorization"] for seen in fake.requests} == {"Bearer s3cret"}
            assert not other.requests


@pytest.mark.parametrize("token", ["a\nb", "é", " a", "a\r"])
def test_a_token_that_no_header_can_hold_is_refused(token: str) -> None:
    with pytest.raises(UsageError, match="token") as caught:
        Relays([], Settings(), token=token)
    assert repr(token) not in str(caught.value)


@in_loop
async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with BadRelay() as fake, BadRelay() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        relays = Relays([fake.url], quick())
        assert (await relays.send(ROUTE, "{}")).accepted == [fake.url]
        assert not proxy.requests
        await relays.aclose()


@pytest.mark.req("B3", "M17")
@in_loop
async def test_announcements_go_to_all_and_a_failure_is_logged_when_it_changes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with BadRelay() as good, BadRelay(announce=status(500)) as bad:
        relays = Relays([bad.url, good.url], quick())
        for _ in range(3):
            await relays.announce({"pubkey": "K"})
        assert [seen.body for seen in good.got("/announce")] == [{"pubkey": "K"}] * 3
        bad.set("announce", status(202))
        for _ in range(3):
            await relays.announce({"pubkey": "K"})
        assert state(relays).up
        await relays.aclose()
    log = capsys.readouterr().err
    assert log.count("event=relay_down") == 1
    assert log.count("event=relay_up") == 2  # each once


@pytest.mark.req("B3", "M17")
@in_loop
async def test_unregistering_is_bounded_in_all(capsys: pytest.CaptureFixture[str]) -> None:
    async with BadRelay(unregister=silent()) as hung, BadRelay() as good:
        relays = Relays([hung.url, NOWHERE, good.url], quick(unregister_timeout_s=1.5))
        start = time.monotonic()
        await relays.unregister({"pubkey": "K"})
        assert time.monotonic() - start < 10
        assert good.got("/unregister")[0].body == {"pubkey": "K"}
        await relays.aclose()
    log = capsys.readouterr().err
    assert f"event=unregister_failed url={NOWHERE}" in log
    assert f"event=unregister_failed url={hung.url}" in log


def entry(key: str) -> dict[str, object]:
    return {"pubkey": key, "age_ms": 1, "session": {"session_id": "s"}}


@pytest.mark.req("B3")
@in_loop
async def test_rosters_of_all_relays_come_together_and_what_is_no_entry_is_left_out() -> None:
    rubbish = answer({"roster": [entry("a"), 1, None, "x", [], entry("b")]})
    async with BadRelay(roster=rubbish) as a, BadRelay(roster=answer({"roster": [entry("c")]})) as b:
        relays = Relays([a.url, NOWHERE, b.url], quick())
        assert [e["pubkey"] for e in await relays.roster()] == ["a", "b", "c"]
        # A short memory: asked again at once, it asks nobody.
        found = await asyncio.gather(*(relays.roster() for _ in range(5)))
        assert [len(f) for f in found] == [3] * 5
        assert len(a.got("/roster")) == 1
        await relays.aclose()


@pytest.mark.req("B3")
@in_loop
async def test_a_roster_is_bounded_in_entries_and_in_bytes() -> None:
    many = answer({"roster": [entry(str(n)) for n in range(50)]})
    big = answer({"roster": [{"pubkey": "x" * 200_000}]})
    async with BadRelay(roster=many) as a, BadRelay(roster=big) as b:
        relays = Relays([a.url, b.url], quick(roster_max=10, roster_max_bytes=100_000))
        assert [e["pubkey"] for e in await relays.roster()] == [str(n) for n in range(10)]
        await relays.aclose()


@pytest.mark.req("B3", "M17")
@in_loop
async def test_a_slow_roster_is_left_out_and_waited_for_again_once_it_came() -> None:
    settings, gate = quick(roster_grace_s=0.1, roster_cache_s=0), asyncio.Event()
    slow_way = [gated(gate, answer({"roster": [entry("b")]})), answer({"roster": [entry("b")]})]
    async with BadRelay(roster=answer({"roster": [entry("a")]})) as a, BadRelay(roster=slow_way) as b:
        relays = Relays([a.url, b.url], settings)
        assert [e["pubkey"] for e in await relays.roster()] == ["a"]
        assert [e["pubkey"] for e in await relays.roster()] == ["a"]
        gate.set()
        await until(lambda: not [t for t in asyncio.all_tasks() if t.get_name() == f"relay {b.url}"])
        assert len(b.got("/roster")) == 1, "the late call went on, no second one joined it"
        settings.roster_grace_s = 30
        assert [e["pubkey"] for e in await relays.roster()] == ["a", "b"]
        await relays.aclose()


@in_loop
async def test_no_roster_at_all_is_empty_and_no_error() -> None:
    async with BadRelay(roster=status(500)) as a, BadRelay(roster=answer({"no": 1})) as b:
        relays = Relays([a.url, b.url, NOWHERE], quick())
        assert await relays.roster() == []
        await relays.aclose()


@pytest.mark.parametrize("ahead_s", [0, 3600, -86_400])
@in_loop
async def test_the_relays_clock_is_compared_with_ours(ahead_s: int) -> None:
    date = formatdate(time.time() + ahead_s, usegmt=True)
    async with BadRelay(announce=status(202, date=date)) as fake:
        relays = Relays([fake.url], quick())
        assert (state(relays).skew_ms, state(relays).latency_ms) == (None, None)
        await relays.announce({"pubkey": "K"})
        skew, latency = state(relays).skew_ms, state(relays).latency_ms
        assert latency is not None and 0 < latency < 60_000
        assert skew is not None and abs(skew - ahead_s * 1000) <= 1500 + latency
        fake.set("announce", status(202, date="yesterday"))
        await relays.announce({"pubkey": "K"})
        assert state(relays).skew_ms == skew, "a Date that is none changes nothing"
        await relays.aclose()


@pytest.mark.req("M17")
@in_loop
async def test_connections_do_not_grow_and_are_used_again() -> None:
    async with BadRelay(recv=hold()) as fake:
        relays = Relays([fake.url], quick())
        for n in range(50):
            await relays.send(ROUTE, str(n))
        assert fake.connections == 1
        await asyncio.gather(*(relays.send(ROUTE, str(n)) for n in range(50)))
        assert fake.connections <= Settings.send_parallel + 1
        await relays.aclose()


@in_loop
async def test_a_failure_is_a_relay_error_whatever_the_relay_is() -> None:
    async with BadRelay(send=raw(b"HTTP/1.1 202 \xff\xfe\r\n\x00: 1\r\n\r\n")) as fake:
        relays = Relays([fake.url], quick())
        assert isinstance((await relays.send(ROUTE, "{}")).failed[fake.url], RelayError)
        await relays.aclose()
