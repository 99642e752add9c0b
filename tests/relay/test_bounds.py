"""The relay's bounds: a full queue makes senders wait, nothing is evicted, nothing grows without end (B2)."""

import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from support.relay import HANG_S, Client, RelayProcess

Run = Callable[..., RelayProcess]
MIB = 1 << 20


@pytest.fixture(scope="module")
def hasty() -> Iterator[RelayProcess]:
    """A relay that waits for nobody as long as the defaults have it."""
    env = {"INTERLINK_RELAY_BODY_TIMEOUT_S": "0.2", "INTERLINK_RELAY_KEEP_ALIVE_S": "2"}
    with RelayProcess("--memory", env=env) as process:
        yield process


def _is_full(answer: object, status: int = 429) -> None:
    assert answer.status == status, answer  # type: ignore[attr-defined]
    assert int(answer.headers["retry-after"]) >= 1  # type: ignore[attr-defined]
    assert len(answer.json["error"]) > 20  # type: ignore[attr-defined]


@pytest.mark.req("B2")
@pytest.mark.parametrize("how", ["option", "variable"])
def test_messages_one_recipient(run: Run, how: str) -> None:
    relay = run("--queue-cap", "5") if how == "option" else run(env={"INTERLINK_QUEUE_CAP": "5"})
    client = relay.client
    for number in range(5):
        assert client.send("A#1", number).status == 202
    for _ in range(3):
        _is_full(client.send("A#1", "too many"))
    assert client.send("A#2", "another recipient has room").status == 202
    # One acknowledgement, room for one, at once.
    assert client.ack("A#1", client.recv("A#1").json["ack"]).status == 200
    assert client.send("A#1", 5).status == 202
    _is_full(client.send("A#1", 6))
    relay.restart()
    client = relay.client
    _is_full(client.send("A#1", "the counts survive a restart"))
    assert client.drain("A#1") == [1, 2, 3, 4, 5], "nothing was evicted"


@pytest.mark.req("B2")
def test_bytes_one_recipient(run: Run) -> None:
    client = run(env={"INTERLINK_RELAY_QUEUE_MAX_BYTES": "4096"}).client
    assert client.send("A#1", "x" * 3000).status == 202
    _is_full(client.send("A#1", "y" * 1100))
    assert client.send("A#1", "z" * 900).status == 202
    assert client.send("A#2", "y" * 1100).status == 202
    assert [len(payload) for payload in client.drain("A#1")] == [3000, 900]
    assert client.send("A#1", "y" * 1100).status == 202


@pytest.mark.req("B2")
def test_bytes_of_the_whole_relay(run: Run) -> None:
    client = run("--max-bytes", "100000").client
    taken = 0
    while (answer := client.send(f"A#{taken}", "x" * 5000)).status == 202:
        taken += 1
        assert taken < 25
    _is_full(answer)
    assert taken >= 15
    assert [len(client.drain(f"A#{number}")) for number in range(taken)] == [1] * taken
    assert client.send("A#0", "x" * 5000).status == 202


@pytest.mark.req("B2")
def test_many_small_messages_to_many_recipients_count_too(run: Run) -> None:
    client = run("--max-bytes", "20000").client
    taken = 0
    while (answer := client.send(f"A#{taken}", 0)).status == 202:
        taken += 1
        assert taken < 1000, "a row costs more than its payload"
    _is_full(answer)


@pytest.mark.req("B2")
def test_senders_at_once_never_pass_a_cap(run: Run) -> None:
    relay = run("--queue-cap", "50")
    statuses: list[int] = []

    def send() -> None:
        client = relay.client
        statuses.extend(client.send("A#1", 0).status for _ in range(20))

    senders = [threading.Thread(target=send) for _ in range(8)]
    for one in senders:
        one.start()
    for one in senders:
        one.join(HANG_S)
    assert sorted(statuses) == [202] * 50 + [429] * 110
    assert len(relay.client.drain("A#1")) == 50


# One request


@pytest.mark.req("B2")
def test_a_message_up_to_the_limit_and_one_byte_more(client: Client, route: str) -> None:
    limit = 2 * MIB
    assert client.send(route, "x" * (limit - 2)).status == 202
    answer = client.send(route, "x" * (limit - 1))
    assert answer.status == 413 and str(limit) in answer.json["error"]
    assert [len(payload) for payload in client.drain(route)] == [limit - 2]


def _raw(port: int, head: str, body: bytes = b"") -> http.client.HTTPResponse:
    sock = socket.create_connection(("127.0.0.1", port), timeout=HANG_S)
    sock.sendall(head.replace("\n", "\r\n").encode() + b"\r\n" + body)
    response = http.client.HTTPResponse(sock)
    response.begin()
    return response


@pytest.mark.req("B2")
def test_too_large_a_request_is_refused_before_it_is_read(client: Client, relay: RelayProcess) -> None:
    # The body never comes: an answer proves that nobody waits for it.
    response = _raw(relay.port, "POST /send HTTP/1.1\nHost: x\nContent-Length: 999999999999\n", b'{"to"')
    assert response.status == 413
    assert response.getheader("connection") == "close"
    assert "bytes" in json.loads(response.read())["error"]
    # Without a length: refused once the limit is passed, however much would follow.
    sock = socket.create_connection(("127.0.0.1", relay.port), timeout=HANG_S)
    sock.sendall(b"POST /send HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    sent = 0
    sock.setblocking(False)
    answer = b""
    end = time.monotonic() + HANG_S
    while not answer and time.monotonic() < end:
        try:
            sent += sock.send(chunk)
        except BlockingIOError:
            time.sleep(0.001)
        except OSError:
            pass  # closed on us: the answer is there to read
        try:
            answer = sock.recv(4096)
        except BlockingIOError:
            continue
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert client.call("GET", "/healthz").status == 200


@pytest.mark.req("B2")
def test_a_client_that_sends_all_of_a_large_body_first_can_read_why(client: Client, route: str) -> None:
    answer = client.send(route, "x" * 3 * MIB)
    assert answer.status == 413


@pytest.mark.req("B2")
def test_a_dripping_body_is_ended(run: Run) -> None:
    relay = run(env={"INTERLINK_RELAY_BODY_TIMEOUT_S": "0.2"})
    response = _raw(relay.port, "POST /send HTTP/1.1\nHost: x\nContent-Length: 100\n", b'{"to"')
    assert response.status == 408
    assert json.loads(response.read())["error"]


@pytest.mark.req("B2")
@pytest.mark.parametrize("path", ["/send", "/ack", "/announce", "/unregister"])
@pytest.mark.parametrize(
    "header", ["Content-Length: 100", "Transfer-Encoding: chunked", "Content-Length: 9\nExpect: 100-continue"]
)
def test_a_body_that_never_comes_is_not_waited_for(hasty: RelayProcess, path: str, header: str) -> None:
    response = _raw(hasty.port, f"POST {path} HTTP/1.1\nHost: x\n{header}\n")
    assert response.status == 408
    assert response.getheader("connection") == "close"
    assert json.loads(response.read())["error"]


@pytest.mark.req("B2")
def test_a_body_in_pieces_is_waited_for(relay: RelayProcess, route: str) -> None:
    body = json.dumps({"to": route, "payload": "in pieces"}).encode()
    sock = socket.create_connection(("127.0.0.1", relay.port), timeout=HANG_S)
    head = b"POST /send HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body)
    sock.sendall(head)
    assert sock.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n", "the endpoint waits for the body by now"
    for byte in body:
        sock.sendall(bytes([byte]))
    assert sock.recv(4096).startswith(b"HTTP/1.1 202 ")
    sock.close()


def _until_closed(sock: socket.socket) -> bytes:
    found = b""
    try:
        while chunk := sock.recv(4096):
            found += chunk
    except ConnectionResetError:
        pass  # closed on bytes that it had not read
    sock.close()
    return found


@pytest.mark.req("B2")
def test_what_does_not_become_a_request_is_closed(hasty: RelayProcess) -> None:
    get = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    post = b"POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"
    # What is sent, how many answers are read, what is sent then: nothing more.
    cases = [
        (b"", 0, b""),
        (b"G", 0, b""),
        (b"GET /he", 0, b""),
        (get[:-2], 0, b""),
        (b"\r\n", 0, b""),
        (get, 1, b""),
        (get, 1, b"G"),
        (get + b"G", 1, b""),
        (post, 1, b"a piece"),
        (post, 1, b"all of it"),
    ]
    socks = []
    for first, answers, then in cases:
        sock = socket.create_connection(("127.0.0.1", hasty.port), timeout=HANG_S)
        sock.sendall(first)
        if answers:
            assert sock.recv(4096).startswith(b"HTTP/1.1 ")
            sock.sendall(then)
        socks.append(sock)
    for case, sock in zip(cases, socks, strict=True):
        assert _until_closed(sock) == b"", case


@pytest.mark.req("B2")
def test_a_dripping_head_is_closed(hasty: RelayProcess) -> None:
    sock = socket.create_connection(("127.0.0.1", hasty.port), timeout=HANG_S)
    sock.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
    sock.settimeout(0.05)
    end = time.monotonic() + HANG_S
    while True:
        assert time.monotonic() < end, "each byte won it new time"
        try:
            sock.sendall(b"x")
            assert sock.recv(4096) == b""
        except TimeoutError:
            continue
        except OSError:
            pass  # a reset
        break
    sock.close()


@pytest.mark.req("B2")
@pytest.mark.parametrize("together", [True, False])
def test_half_a_request_behind_a_poll_does_not_end_the_poll(hasty: RelayProcess, together: bool) -> None:
    route = f"POLL#{together}"
    poll, half = f"GET /recv?me=POLL%23{together}&timeout_ms=300000 HTTP/1.1\r\nHost: x\r\n\r\n", "GET /he"
    with socket.create_connection(("127.0.0.1", hasty.port), timeout=HANG_S) as sock:
        sock.sendall((poll + half if together else poll).encode())
        hasty.client.until_waiting(1)
        if not together:
            sock.sendall(half.encode())
        clock = socket.create_connection(("127.0.0.1", hasty.port), timeout=HANG_S)
        clock.sendall(half.encode())
        assert _until_closed(clock) == b"", "the time that a head has is over"
        assert hasty.client.send(route, "it waits").status == 202
        answer = _until_closed(sock)
    assert answer.startswith(b"HTTP/1.1 200 ") and b'"it waits"' in answer, answer


@pytest.mark.req("B2")
def test_bodies_under_way_are_bounded(run: Run) -> None:
    relay = run(env={"INTERLINK_RELAY_BODIES_MAX_BYTES": "150000"})
    slow = socket.create_connection(("127.0.0.1", relay.port), timeout=HANG_S)
    slow.sendall(b"POST /send HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{")
    client = relay.client
    end = time.monotonic() + HANG_S
    while (answer := client.send("A#1", "x" * 90_000)).status == 202:
        assert time.monotonic() < end  # until the slow one is noticed
    _is_full(answer, 503)
    assert relay.client.send("A#2", "small ones pass").status == 202
    slow.close()
    while relay.client.send("A#2", "x" * 90_000).status != 202:
        assert time.monotonic() < end, "what it held is free again when it is gone"


@pytest.mark.req("B2")
def test_routes_and_ack_lists_are_bounded(run: Run) -> None:
    client = run(env={"INTERLINK_RELAY_ACKS_MAX": "3"}).client
    assert client.send("é" * 256, 1).status == 202
    assert client.send("é" * 257, 1).status == 400
    assert client.recv("é" * 257).status == 400
    assert client.post("/ack", {"me": "é" * 257, "ack": "x"}).status == 400
    token = client.recv("é" * 256).json["ack"]
    assert client.ack("é" * 256, *[token] * 4).status == 400
    assert client.ack("é" * 256, *[token] * 3).status == 200


@pytest.mark.req("B2")
def test_one_answer_is_bounded_in_bytes(run: Run) -> None:
    client = run(env={"INTERLINK_RELAY_BATCH_BYTES": "10000"}).client
    for size in (20_000, 4000, 4000, 4000):
        client.send("A#1", "x" * size)
    assert len(client.recv("A#1", most=9).json["messages"]) == 1, "one alone may exceed"
    client.ack("A#1", client.recv("A#1").json["ack"])
    assert len(client.recv("A#1", most=9).json["messages"]) == 2
    assert len(client.drain("A#1")) == 3


@pytest.mark.req("B2")
@pytest.mark.parametrize("head", ["GET /recv?me=" + "A" * 70_000, "GET /healthz HTTP/1.1\nX: " + "x" * 70_000])
def test_heads_are_bounded(relay: RelayProcess, head: str) -> None:
    # The head never ends: an answer proves that nobody goes on collecting it.
    sock = socket.create_connection(("127.0.0.1", relay.port), timeout=HANG_S)
    sock.sendall(head.replace("\n", "\r\n").encode())
    assert sock.recv(4096).startswith(b"HTTP/1.1 400 ")
    sock.close()


@pytest.mark.req("B2")
def test_a_head_before_a_large_body_is_not_counted_with_it(client: Client, route: str) -> None:
    for _ in range(3):
        assert client.send(route, "x" * 200_000).status == 202
        assert client.recv(route).status == 200


# Waiters and roster


@pytest.mark.req("B2")
def test_waiting_polls_are_bounded(run: Run) -> None:
    relay = run("--memory", env={"INTERLINK_WAITERS_MAX": "2"})
    answers: list[object] = []
    polls = [
        threading.Thread(target=lambda n=n: answers.append(relay.client.recv(f"W#{n}", 60_000).json))
        for n in (0, 1)
    ]
    for one in polls:
        one.start()
    client = relay.client
    client.until_waiting(2)
    _is_full(client.recv("A#1", 1), 503)
    client.send("A#1", "there")
    assert client.recv("A#1", 1000).json["envelope"]["payload"] == "there", "what waits is handed out all the same"
    for number in (0, 1):
        client.send(f"W#{number}", number)
    for one in polls:
        one.join(HANG_S)
    assert len(answers) == 2
    assert client.recv("B#1", 1).json == {"status": "timeout"}


@pytest.mark.req("B3")
def test_the_roster_is_bounded(run: Run) -> None:
    client = run("--memory", env={"INTERLINK_ROSTER_MAX": "20"}).client
    for number in range(20):
        assert client.post("/announce", {"pubkey": f"k{number}"}).status == 202
    _is_full(client.post("/announce", {"pubkey": "k20"}))
    assert client.post("/announce", {"pubkey": "k3"}).status == 202, "those in it are refreshed"
    assert {entry["pubkey"] for entry in client.roster()} == {f"k{number}" for number in range(20)}
    client.post("/unregister", {"pubkey": "k0"})
    assert client.post("/announce", {"pubkey": "k20"}).status == 202
    assert client.post("/announce", {"pubkey": "big", "name": "x" * 20_000}).status == 413


# The bearer token


@pytest.fixture
def token_file(tmp_path: object) -> str:
    path = f"{tmp_path}/token"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write("s3cret-0123456789abcdef\n")
    return path


@pytest.mark.req("B2")
def test_bearer_token(run: Run, token_file: str) -> None:
    relay = run("--memory", "--token-file", token_file, token="s3cret-0123456789abcdef")
    assert "token=required" in (relay.event("relay_listening") or "")
    good = relay.client
    assert good.send("A#1", 1).status == 202
    assert good.call("GET", "/roster", Authorization="bearer  s3cret-0123456789abcdef").status == 200
    calls = (("POST", "/send"), ("GET", "/recv?me=A%231"), ("POST", "/ack"), ("POST", "/announce"))
    calls += (("POST", "/unregister"), ("GET", "/roster"), ("GET", "/metrics"))
    wrong = ("", "Bearer", "Bearer ", "Bearer s3cret", "Basic s3cret-0123456789abcdef", "s3cret-0123456789abcdef")
    for method, path in calls:
        for header in (*wrong, "Bearer s3cret-0123456789abcdeF", "Bearer s3cret-0123456789abcdef0"):
            answer = Client(relay.port).call(method, path, b'{"pubkey":"k"}', Authorization=header)
            assert answer.status == 401, (method, path, header)
            assert "token" in answer.json["error"] and answer.headers["www-authenticate"] == "Bearer"
    assert Client(relay.port).send("A#1", 2).status == 401
    assert Client(relay.port).call("GET", "/healthz").status == 200
    assert good.drain("A#1") == [1] and good.roster() == []
    assert "s3cret" not in "\n".join(relay.lines)
