"""The relay's endpoints, in the shapes of the wire (B2, B3, B7). Real process, real sockets."""

import http.client
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Callable

import pytest
from support.relay import HANG_S, Client, RelayProcess

PAYLOAD = {"from": "A", "to": "B", "text": "hello é 😀", "ts": 1234, "msg_id": "m1", "kind": "message", "sig": "x"}


@pytest.mark.req("B2", "B7")
def test_a_message_is_kept_until_it_is_acknowledged(client: Client, route: str) -> None:
    before = time.time_ns() // 1_000_000
    assert client.send(route, PAYLOAD).status == 202
    first = client.recv(route)
    assert first.status == 200
    assert first.json.keys() == {"status", "envelope", "ack"}
    assert first.json["status"] == "message"
    assert first.json["envelope"].keys() == {"payload", "ts"}
    assert first.json["envelope"]["payload"] == PAYLOAD
    assert before - 1000 <= first.json["envelope"]["ts"] <= time.time_ns() // 1_000_000 + 1000
    assert client.recv(route).json == first.json, "a poll must remove nothing"
    assert client.ack(route, first.json["ack"]).status == 200
    assert client.recv(route).json == {"status": "timeout"}


@pytest.mark.req("B2", "B7")
def test_a_payload_comes_back_byte_for_byte(client: Client, route: str) -> None:
    payload = (
        '{"a" :  1.50, "b":"\\u00e9\\/\u2028\u0085", "a": [null,true,{}], "big":18446744073709551615, "e":1e300}'
    )
    body = f'{{"extra":1, "payload": {payload} ,"to":{json.dumps(route)}}}'.encode()
    assert client.call("POST", "/send", body).status == 202
    assert b'"payload":' + payload.encode() + b',"ts":' in client.recv(route).body


@pytest.mark.req("B2")
@pytest.mark.parametrize("payload", ["text", 7, None, True, [], {}, "\0"])
def test_a_payload_is_any_json_value(client: Client, route: str, payload: object) -> None:
    assert client.send(route, payload).status == 202
    assert client.recv(route).json["envelope"]["payload"] == payload


@pytest.mark.req("B2")
def test_fifo_one_recipient_and_no_other(client: Client, route: str) -> None:
    other = route + "2"
    for number in range(30):
        assert client.send(route, number).status == 202
        assert client.send(other, -number).status == 202
    assert client.drain(route, batch=7) == list(range(30))
    assert client.drain(other) == [-number for number in range(30)]


@pytest.mark.req("B2")
def test_the_head_stays_the_head_until_acknowledged(client: Client, route: str) -> None:
    for number in range(5):
        client.send(route, number)
    batch = client.recv(route, most=5).json["messages"]
    # Acknowledged out of order: the others keep their order.
    assert client.ack(route, batch[3]["ack"], batch[1]["ack"]).status == 200
    assert client.recv(route).json["envelope"]["payload"] == 0
    assert client.drain(route) == [0, 2, 4]


@pytest.mark.req("B2", "B7")
def test_batch_form(client: Client, route: str) -> None:
    assert client.recv(route, most=2).json == {"status": "timeout"}
    for number in range(300):
        client.send(route, number)
    answer = client.recv(route, most=256).json
    assert answer.keys() == {"status", "messages"}
    assert answer["status"] == "messages"
    assert [item["envelope"]["payload"] for item in answer["messages"]] == list(range(256))
    assert all(item.keys() == {"envelope", "ack"} for item in answer["messages"])
    assert len(client.recv(route, most=2).json["messages"]) == 2
    single = client.recv(route).json
    assert single["status"] == "message" and single["ack"] == answer["messages"][0]["ack"]


@pytest.mark.req("B2")
def test_a_batch_of_one_waiting_message_is_a_list(client: Client, route: str) -> None:
    client.send(route, 1)
    assert [item["envelope"]["payload"] for item in client.recv(route, most=9).json["messages"]] == [1]


# Tokens


@pytest.mark.req("B2", "B7")
def test_ack_tokens_have_the_known_shape_and_an_unguessable_end(client: Client, route: str) -> None:
    for number in range(200):
        client.send(route, number)
    tokens = [item["ack"] for item in client.recv(route, most=200).json["messages"]]
    ends = set()
    last = 0
    for token in tokens:
        assert token.startswith(route + "\0")
        rest = token[len(route) + 1 :]
        assert re.fullmatch(r"[0-9]{20}[A-Za-z0-9_-]{11,}", rest)
        assert int(rest[:20]) > last
        last = int(rest[:20])
        ends.add(rest[20:])
    assert len(ends) == 200
    # Every place of the end varies: 64 bits that nobody can count up to.
    assert all(len(set(column)) > 16 for column in list(zip(*ends, strict=True))[:11])


def _forgeries(route: str, token: str, foreign: str) -> list[str]:
    head, end = token[: len(route) + 21], token[len(route) + 21 :]
    flipped = ("A" if end[0] != "A" else "B") + end[1:]
    far = f"{route}\0{int(head[-20:]) + 10_000_000:020d}{end}"
    return [
        head + flipped,
        head,
        head + end + "A",
        head + end[:-1],
        far,
        foreign,
        "",
        route,
        "\0",
        route + "\0" + "9" * 20,
    ]


@pytest.mark.req("B2")
def test_a_foreign_or_forged_ack_is_refused(client: Client, route: str) -> None:
    other = route + "x"
    client.send(route, 1)
    client.send(other, 2)
    token, foreign = client.recv(route).json["ack"], client.recv(other).json["ack"]
    for forged in _forgeries(route, token, foreign):
        assert client.ack(route, forged).status == 403, repr(forged)
    # The right sequence of another recipient's message under our own route.
    crossed = route + foreign[len(other) :]
    assert client.ack(route, crossed).status == 403
    assert client.recv(route).json["ack"] == token
    assert client.recv(other).json["ack"] == foreign


@pytest.mark.req("B2")
def test_a_list_with_one_foreign_ack_acknowledges_nothing(client: Client, route: str) -> None:
    other = route + "x"
    for number in range(4):
        client.send(route, number)
    client.send(other, 9)
    tokens = [item["ack"] for item in client.recv(route, most=4).json["messages"]]
    foreign = client.recv(other).json["ack"]
    for bad in _forgeries(route, tokens[0], foreign):
        for place in (0, 2, 4):
            mixed = [*tokens[:place], bad, *tokens[place:]]
            assert client.ack(route, *mixed).status == 403
    assert client.drain(route, ack=False) == [0, 1, 2, 3]
    assert client.ack(route, *tokens).status == 200
    assert client.drain(route) == []


@pytest.mark.req("B2")
def test_acknowledging_again_is_fine_and_does_nothing(client: Client, route: str) -> None:
    client.send(route, 1)
    token = client.recv(route).json["ack"]
    assert client.ack(route, token).json == {"status": "ok", "acknowledged": 1}
    client.send(route, 2)
    assert client.ack(route, token).json == {"status": "ok", "acknowledged": 0}
    both = [token, client.recv(route).json["ack"]]
    assert client.ack(route, *both, *both).json == {"status": "ok", "acknowledged": 1}
    assert client.drain(route) == []
    assert client.post("/ack", {"me": route, "acks": []}).status == 200


# Long polls


@pytest.mark.req("B2")
def test_a_waiting_poll_is_woken_by_an_arrival(relay: RelayProcess, route: str) -> None:
    answers: list[tuple[object, float]] = []

    def poll(most: int | None) -> None:
        answer = relay.client.recv(route, 60_000, most)
        answers.append((answer.json, time.monotonic()))

    # Two servers of one session: both see the same head.
    polls = [threading.Thread(target=poll, args=(most,)) for most in (None, 8)]
    for one in polls:
        one.start()
    client = relay.client
    client.until_waiting(2)
    client.send(route + "other", 0)
    sent = time.monotonic()
    client.send(route, "wake")
    for one in polls:
        one.join(HANG_S)
    assert len(answers) == 2
    heads = [a if "ack" in a else a["messages"][0] for a, _ in answers]  # type: ignore[index, operator]
    assert heads[0]["ack"] == heads[1]["ack"] and heads[0]["envelope"]["payload"] == "wake"
    assert all(at - sent < 20 for _, at in answers), "woken by the arrival, not by the timeout"
    client.until_waiting(0)


@pytest.mark.req("B2")
def test_a_poll_without_messages_times_out(client: Client, route: str) -> None:
    start = time.monotonic()
    assert client.recv(route, 150).json == {"status": "timeout"}
    assert time.monotonic() - start >= 0.14
    assert client.recv(route, 1, most=3).json == {"status": "timeout"}


@pytest.mark.req("B2")
def test_a_client_that_hangs_up_leaves_no_waiter(relay: RelayProcess, client: Client) -> None:
    link = http.client.HTTPConnection("127.0.0.1", relay.port)
    link.request("GET", "/recv?me=gone&timeout_ms=300000")
    client.until_waiting(1)
    link.close()
    client.until_waiting(0)


# Presence


def _announcement(key: str, session: str | None = "s1", **more: object) -> dict[str, object]:
    found: dict[str, object] = {"pubkey": key, "name": "alice", "ts": 1234, "sig": "unchecked", **more}
    if session is not None:
        found["session"] = {"session_id": session, "cwd": "/w", "git_root": "repo", "summary": "é"}
    return found


@pytest.mark.req("B3", "B7")
def test_announce_roster_unregister(client: Client, route: str) -> None:
    key = route.partition("#")[0]
    first, second, bare = _announcement(key), _announcement(key, "s2"), _announcement(key, None)
    for one in (first, second, bare, first):
        assert client.post("/announce", one).status == 202
    mine = [entry for entry in client.roster() if entry["pubkey"] == key]
    assert all(isinstance(entry["age_ms"], int) and 0 <= entry["age_ms"] < 3_600_000 for entry in mine)
    plain = [{k: v for k, v in entry.items() if k != "age_ms"} for entry in mine]
    assert sorted(map(json.dumps, plain)) == sorted(map(json.dumps, (first, second, bare)))
    for gone in (
        {"pubkey": key, "session": {"session_id": "s1"}},
        {"pubkey": key, "session_id": "s2"},
        {"pubkey": key},
    ):
        assert client.post("/unregister", gone).status == 202
        assert client.post("/unregister", gone).status == 202
    assert [entry for entry in client.roster() if entry["pubkey"] == key] == []


@pytest.mark.req("B3")
def test_age_is_the_relays_to_say_and_grows(client: Client, route: str) -> None:
    key = route.partition("#")[0]

    def age() -> int:
        return next(int(entry["age_ms"]) for entry in client.roster() if entry["pubkey"] == key)

    assert client.post("/announce", _announcement(key, age_ms=-5)).status == 202
    first = age()
    assert first >= 0
    time.sleep(0.03)
    second = age()
    assert second >= first + 30
    assert client.post("/announce", _announcement(key)).status == 202
    # One field of that name, not two.
    assert client.call("GET", "/roster").body.count(b'"age_ms"') == len(client.roster())


@pytest.mark.req("B3", "B7")
@pytest.mark.parametrize("path", ["/announce", "/unregister"])
@pytest.mark.parametrize(
    "body", [{}, {"pubkey": ""}, {"pubkey": 3}, {"pubkey": "k", "session": 3}, {"pubkey": "k\0"}, [], "x", None]
)
def test_presence_without_a_pubkey_is_refused(client: Client, path: str, body: object) -> None:
    answer = client.post(path, body)
    assert answer.status == 400 and answer.json["error"]


# Operation


@pytest.mark.req("B2")
def test_healthz_metrics_and_wrong_paths(client: Client, route: str) -> None:
    client.send(route, "counted")
    assert client.call("GET", "/healthz").json["status"] == "ok"
    metrics = client.call("GET", "/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    names = set(re.findall(r"^(\w+)[{ ]", metrics.body.decode(), re.MULTILINE))
    for name in (
        "sent_total",
        "acked_total",
        "queued_messages",
        "queued_bytes",
        "commit_seconds_count",
        "waiters",
    ):
        assert f"interlink_relay_{name}" in names
    assert "commit_requests_bucket" in metrics.body.decode()
    assert route.partition("#")[0] not in metrics.body.decode(), "no keys in metrics"
    assert (client.call("GET", "/nope").status, client.call("GET", "/send").status) == (404, 405)
    assert client.call("GET", "/send").json["error"]


@pytest.mark.req("B2")
def test_metrics_count_what_waits(client: Client, route: str) -> None:
    def value(name: str) -> float:
        text = client.call("GET", "/metrics").body.decode()
        return float(re.search(rf"^interlink_relay_{name} (\S+)$", text, re.MULTILINE)[1])  # type: ignore[index]

    messages, size, acked = value("queued_messages"), value("queued_bytes"), value("acked_total")
    for _ in range(3):
        client.send(route, "four")
    assert value("queued_messages") == messages + 3
    assert value("queued_bytes") == size + 3 * len('"four"')
    client.drain(route)
    assert (value("queued_messages"), value("queued_bytes"), value("acked_total")) == (messages, size, acked + 3)


@pytest.mark.req("B2")
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(("path", "status"), [("/healthz", 200), ("/nothing-here", 404)])
def test_a_client_that_half_closes_gets_its_answer(
    relay: RelayProcess, method: str, path: str, status: int
) -> None:
    for _ in range(10):
        with socket.create_connection(("127.0.0.1", relay.port), timeout=HANG_S) as sock:
            sock.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            sock.shutdown(socket.SHUT_WR)
            answer = b""
            while chunk := sock.recv(65_536):
                answer += chunk
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %d " % status), answer
        assert bool(body) == (method == "GET")


@pytest.mark.req("B2")
@pytest.mark.parametrize("count", [1, 2])
def test_garbage_behind_requests_does_not_take_their_answers(relay: RelayProcess, count: int) -> None:
    with socket.create_connection(("127.0.0.1", relay.port), timeout=HANG_S) as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * count + b"garbage\r\n\r\n")
        answer = b""
        while chunk := sock.recv(65_536):
            answer += chunk
    assert answer.count(b"HTTP/1.1 200 ") == count, answer
    assert answer.count(b"connection: close") == 1


@pytest.mark.req("B2")
def test_a_client_that_resets_amid_its_answers_is_no_fault(run: Callable[..., RelayProcess]) -> None:
    relay = run("--memory")
    for number in range(4):
        assert relay.client.send("A#1", f"{number}" * 1_000_000).status == 202
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # the rest of the answers has to wait
    sock.settimeout(HANG_S)
    sock.connect(("127.0.0.1", relay.port))
    sock.sendall(b"GET /recv?me=A%231&max=8 HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
    assert sock.recv(100).startswith(b"HTTP/1.1 200 ")
    for _ in range(5):  # until the next of them is being worked on
        assert relay.client.recv("A#1", most=8).status == 200
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
    assert relay.client.call("GET", "/healthz").status == 200
    relay.stop()
    assert relay.event("relay_stopped") is not None
    assert relay.event("relay_fault") is None, relay.lines
