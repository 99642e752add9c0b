"""The client of the light commands, against the fake in a thread of its own."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate

import pytest
from support.badrelay import BadRelay, Way, answer, drip, raw, reset, silent, status

from interlink.errors import RelayError, WireError
from interlink.relay import light

NOWHERE = "http://127.0.0.1:1"
LIMIT_S = 30.0


class Threaded:
    """The fake in a loop of its own, since the client under test blocks."""

    def __init__(self) -> None:
        self.fake = BadRelay()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.fake.start(), self._loop).result()

    def set(self, **ways: Way) -> str:
        for name, way in ways.items():
            self.fake.set(name, way)
        return self.fake.url

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self.fake.stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def relay() -> Iterator[Threaded]:
    threaded = Threaded()
    yield threaded
    threaded.close()


@pytest.mark.req("B2")
def test_a_message_is_sent_as_it_is(relay: Threaded) -> None:
    light.send(relay.fake.url, "K#s", '{"text":"é"}', "tok", LIMIT_S)
    (seen,) = relay.fake.got("/send")
    assert seen.body == {"to": "K#s", "payload": {"text": "é"}}
    assert seen.headers["authorization"] == "Bearer tok"


@pytest.mark.req("B2")
def test_a_refused_message_is_an_error_with_its_status(relay: Threaded) -> None:
    url = relay.set(send=status(429, retry_after="9"))
    with pytest.raises(RelayError) as caught:
        light.send(url, "K#s", "{}", None, LIMIT_S)
    assert (caught.value.status, caught.value.retry_after_s) == (429, 9.0)
    for code in (200, 302, 401, 413):
        relay.set(send=status(code))
        with pytest.raises(RelayError) as caught:
            light.send(url, "K#s", "{}", None, LIMIT_S)
        assert caught.value.status == code
    with pytest.raises(WireError):
        light.send(url, "K#s", '"\ud800"', None, LIMIT_S)


@pytest.mark.req("B3")
def test_a_roster_is_read(relay: Threaded) -> None:
    url = relay.set(roster=answer({"roster": [{"pubkey": "a"}, 3]}))
    assert light.roster(url, "tok", LIMIT_S) == [{"pubkey": "a"}]
    assert relay.fake.requests[-1].headers["authorization"] == "Bearer tok"


def test_health_with_its_latency_and_clock(relay: Threaded) -> None:
    url = relay.set(healthz=status(200, b"{}", date=formatdate(time.time() + 3600, usegmt=True)))
    ok, detail, latency_ms, skew_ms = light.healthz(url, LIMIT_S)
    assert (ok, detail) == (True, "")
    assert latency_ms is not None and latency_ms > 0
    assert skew_ms is not None and abs(skew_ms - 3_600_000) < 1500 + latency_ms


def test_health_of_an_older_relay_and_of_what_is_none(relay: Threaded) -> None:
    url = relay.fake.url  # no /healthz, a good /roster
    assert light.healthz(url, LIMIT_S)[:2] == (True, "an older relay, without /healthz")
    relay.set(roster=status(404))
    assert light.healthz(url, LIMIT_S)[:2] == (False, "is no relay, or another version (404): check the address")
    relay.set(healthz=status(503))
    ok, detail = light.healthz(url, LIMIT_S)[:2]
    assert not ok and "(503)" in detail
    ok, detail, latency_ms, skew_ms = light.healthz(NOWHERE, LIMIT_S)
    assert (ok, latency_ms, skew_ms) == (False, None, None)
    assert detail == "cannot be reached: Connection refused"


TROUBLES: dict[str, tuple[Way, str]] = {
    "silence": (silent(), "gave no whole answer within 0.3 s"),
    "slow headers": (drip(b"HTTP/1.1 200 OK\r\n", b"x-a: b\r\n"), "gave no whole answer within 0.3 s"),
    "slow body": (drip(b"HTTP/1.1 200 OK\r\n\r\n", b" "), "gave no whole answer within 0.3 s"),
    "reset": (reset(), "broke the connection"),
    "end at once": (raw(b""), "broke the connection"),
    "no HTTP": (raw(b"rubbish\r\n\r\n"), "gave no valid HTTP answer"),
    "huge": (status(200, b" " * 9_000_000), "answers with more than 8388608 bytes"),
    "endless": (drip(b"HTTP/1.1 200 OK\r\n\r\n", b" " * 500_000, 0), "answers with more than 8388608 bytes"),
    "HTML": (status(200, b"<html>", content_type="text/html"), "answers text/html instead of JSON"),
    "broken JSON": (status(200, b"{", content_type="application/json"), "broken JSON"),
    "redirect": (status(301, location=NOWHERE), f"redirects (301) to {NOWHERE}"),
}


@pytest.mark.req("M17")
@pytest.mark.parametrize("name", TROUBLES)
def test_a_relay_that_misbehaves_is_one_clear_error_in_time(relay: Threaded, name: str) -> None:
    way, reason = TROUBLES[name]
    url = relay.set(roster=way)
    limit_s = 0.3 if "0.3 s" in reason else LIMIT_S
    with pytest.raises(RelayError) as caught:
        light.roster(url, None, limit_s)
    assert reason in str(caught.value)


def test_https_to_a_plain_relay_says_so(relay: Threaded) -> None:
    ok, detail = light.healthz(relay.fake.url.replace("http:", "https:"), LIMIT_S)[:2]
    assert not ok
    assert "TLS failed" in detail


def test_proxies_of_the_environment_are_not_used(relay: Threaded, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, NOWHERE)
    monkeypatch.delenv("no_proxy", raising=False)
    assert light.roster(relay.fake.url, None, LIMIT_S) == []


def test_it_is_light() -> None:
    heavy = "{'mcp', 'httpcore2', 'httpx2', 'anyio', 'asyncio', 'msgspec', 'starlette'}"
    code = f"import sys, interlink.relay.light, interlink.relay.urls; print(sorted({heavy} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_the_client_does_not_import_the_sdk() -> None:
    code = "import sys, interlink.relay.client; print('mcp' in sys.modules, 'starlette' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False False\n"
