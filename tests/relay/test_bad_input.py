"""Whatever a client sends, the relay answers 400 with a reason, never 5xx, and lives on (B2)."""

import json
import socket
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.relay import HANG_S, Client, RelayProcess

DEEP = 100_000
BAD_SENDS = [
    b"",
    b"x",
    b"{",
    b"[]",
    b"null",
    b'"to"',
    b"{}",
    b'{"to":"A#1"}',
    b'{"payload":1}',
    b'{"to":1,"payload":1}',
    b'{"to":null,"payload":1}',
    b'{"to":"","payload":1}',
    b'{"to":"A\\u0000B","payload":1}',
    b'{"to":"A\x00B","payload":1}',
    b'{"to":"\\ud800","payload":1}',
    b'{"to":"\\udc00x","payload":1}',
    b'{"to":"\xff","payload":1}',
    b'{"to":"A#1","payload":"\\ud800"}',
    b'{"to":"A#1","payload":{"a":["\\udfff\\ud800"]}}',
    b'{"to":"A#1","payload":{"\\ud800":1}}',
    b'{"to":"A#1","payload":"\xff\xfe"}',
    b'{"to":"A#1","payload":"\xed\xa0\x80"}',
    b'{"to":"A#1","payload":NaN}',
    b'{"to":"A#1","payload":Infinity}',
    b'{"to":"A#1","payload":1e999}',
    b'{"to":"A#1","payload":18446744073709551616}',
    b'{"to":"A#1","payload":-9223372036854775809}',
    b'{"to":"A#1","payload":[[' + b"1" * 5000 + b"]]}",
    b'{"to":"A#1","payload":01}',
    b'{"to":"A#1","payload":"a\nb"}',
    b'{"to":"A#1","payload":1}x',
    b'{"to":"A#1","payload":1,}',
    b"\xef\xbb\xbf" + b'{"to":"A#1","payload":1}',
    b'{"to":"A#1","payload":' + b"[" * DEEP + b"]" * DEEP + b"}",
    b'{"to":"A#1","payload":' + b"[" * DEEP,
    b'{"to":"A#1","payload":' + b"[" * 66 + b"]" * 66 + b"}",
    b'{"to":"A#1","payload":' + b'{"a":' * 126 + b"1" + b"}" * 126 + b"}",
    b'{"to":"' + b"A" * 513 + b'","payload":1}',
    '{"to":"A#1","payload":1}'.encode("utf-16"),
]
BAD_ACKS = [
    b"",
    b"[]",
    b"{}",
    b'{"me":"A#1"}',
    b'{"ack":"x"}',
    b'{"me":"A#1","ack":1}',
    b'{"me":"A#1","acks":"x"}',
    b'{"me":"A#1","acks":[1]}',
    b'{"me":"A#1","acks":null}',
    b'{"me":"A#1","ack":"x","acks":[]}',
    b'{"me":"","ack":"x"}',
    b'{"me":1,"ack":"x"}',
    b'{"me":"A\\u0000","ack":"x"}',
    b'{"me":"A#1","ack":"\\ud800"}',
    b'{"me":"A#1","acks":' + b"[" * DEEP + b"]" * DEEP + b"}",
]
BAD_QUERIES = [
    "",
    "me=",
    "timeout_ms=1",
    "me=%00",
    "me=A%00B",
    "me=%ff",
    "me=%ed%a0%80",
    f"me={'A' * 513}",
    *(
        f"me=A&timeout_ms={bad}"
        for bad in ("", "x", "-1", "1.5", "1e3", "%201", "+1", "0x1", "300001", "9" * 30, "%D9%A3")
    ),
    *(f"me=A&max={bad}" for bad in ("", "x", "-1", "0", "1", "257", "2.5", "9" * 30, "%D9%A3")),
    "&".join(f"a{number}=1" for number in range(50)) + "&me=A",
]


def _refused(answer: Any) -> None:
    assert answer.status == 400, answer
    assert answer.headers["content-type"] == "application/json"
    assert len(answer.json["error"]) > 10


@pytest.mark.req("B2")
@pytest.mark.parametrize("body", BAD_SENDS, ids=range(len(BAD_SENDS)))
def test_bad_sends(client: Client, body: bytes) -> None:
    _refused(client.call("POST", "/send", body))
    assert client.recv("A#1").json == {"status": "timeout"}, "nothing was stored"


@pytest.mark.req("B2")
@pytest.mark.parametrize("body", BAD_ACKS, ids=range(len(BAD_ACKS)))
def test_bad_acks(client: Client, body: bytes) -> None:
    _refused(client.call("POST", "/ack", body))


@pytest.mark.req("B2")
@pytest.mark.parametrize("query", BAD_QUERIES, ids=range(len(BAD_QUERIES)))
def test_bad_queries(client: Client, query: str) -> None:
    _refused(client.call("GET", f"/recv?{query}"))


@pytest.mark.req("B3")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"pubkey":"\\ud800"}',
        b'{"pubkey":"k","x":"\\ud800"}',
        b'{"pubkey":"k","x":"\xff"}',
        b'{"pubkey":"k","x":1e999}',
        b'{"pubkey":"k","session":{"session_id":7}}',
        b'{"pubkey":"k","session":' + b"[" * 8000 + b"]" * 8000 + b"}",
        b'{"pubkey":"k","x":' + b"[" * 66 + b"]" * 66 + b"}",
        b'{"pubkey":"k","x":18446744073709551616}',
    ],
)
def test_bad_announcements(client: Client, body: bytes) -> None:
    _refused(client.call("POST", "/announce", body))
    assert client.roster() == []


@pytest.mark.req("B2")
@pytest.mark.parametrize(
    "text",
    [
        b"\r\n\r\n",
        b"GARBAGE\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /recv?me=\xff HTTP/1.1\r\n\r\n",
        b"GET /%ff HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"POST /send HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /send HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
        b"POST /send HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /send HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET /recv?me=A HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nHost: x\r\n\r\n",
        b"HEAD /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    ],
)
def test_broken_http(relay: RelayProcess, client: Client, text: bytes) -> None:
    with socket.create_connection(("127.0.0.1", relay.port), timeout=HANG_S) as sock:
        sock.sendall(text)
        sock.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := sock.recv(65_536):
            answer += chunk
    assert not answer.startswith(b"HTTP/1.1 5"), answer
    assert client.call("GET", "/healthz").status == 200
    assert relay.event("relay_fault") is None, relay.lines


# Fuzz

_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)
_names = st.sampled_from(["to", "payload", "me", "ack", "acks", "pubkey", "session", "session_id", "age_ms"])
_bodies = st.binary(max_size=200) | st.dictionaries(_names, _values | st.just("A#1"), max_size=4).map(
    lambda value: json.dumps(value).encode()
)
_fuzz = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.req("B2")
@_fuzz
@given(path=st.sampled_from(["/send", "/ack", "/announce", "/unregister"]), body=_bodies)
@example(path="/announce", body=b'{"pubkey":"k","n":100000000000000000000000000000000}')
@example(path="/ack", body=b'{"me":"A#1","ack":"A#1\\u000099999999999999999999x"}')
def test_any_body_is_answered(relay: RelayProcess, client: Client, path: str, body: bytes) -> None:
    answer = client.call("POST", path, body)
    assert answer.status in (200, 202, 400, 403, 413), answer
    # What was taken can be handed out again, to every parser.
    for back in (client.recv("A#1", 0, 256), client.call("GET", "/roster")):
        assert back.status == 200
        json.loads(back.body.decode("utf-8"))
    assert relay.event("relay_fault") is None


@pytest.mark.req("B2")
@_fuzz
@given(
    query=st.binary(max_size=60)
    | st.lists(st.sampled_from([b"me=A&", b"timeout_ms=", b"max=", b"1", b"&"])).map(b"".join)
)
def test_any_query_is_answered(client: Client, query: bytes) -> None:
    answer = client.call("GET", f"/recv?timeout_ms=0&{quote(query, safe='=&%+;')}")
    assert answer.status in (200, 400), answer
