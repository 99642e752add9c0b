"""The relay as a process: killed, stopped, started wrongly, started twice (B2, M28, M29)."""

import http.client
import os
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.programs import program
from support.relay import HANG_S, RelayProcess

Run = Callable[..., RelayProcess]


class _Sender(threading.Thread):
    """Sends numbered messages to a route of its own until the relay is gone; keeps what was answered 202."""

    def __init__(self, relay: RelayProcess, number: int, enough: threading.Event) -> None:
        super().__init__(daemon=True)
        self.route = f"K{number}#s"
        self.accepted: list[int] = []
        self.refused: list[int] = []
        self._client = relay.client
        self._enough = enough

    def run(self) -> None:
        try:
            for number in range(1_000_000):
                status = self._client.send(self.route, number).status
                (self.accepted if status == 202 else self.refused).append(number)
                if len(self.accepted) >= 80:
                    self._enough.set()
        except (OSError, http.client.HTTPException):
            return  # the relay was killed


@pytest.mark.req("B2", "M28")
def test_a_kill_loses_nothing_that_was_accepted(run: Run) -> None:
    relay = run()
    for _ in range(3):
        enough = threading.Event()
        senders = [_Sender(relay, number, enough) for number in range(12)]
        for sender in senders:
            sender.start()
        assert enough.wait(HANG_S)
        relay.kill()
        for sender in senders:
            sender.join(HANG_S)
        relay.start()
        client = relay.client
        for sender in senders:
            found = client.drain(sender.route)
            # The last one may have been stored without its answer getting out.
            assert found[: len(sender.accepted)] == sender.accepted
            assert len(found) <= len(sender.accepted) + 1
            assert sender.refused == []
            assert client.drain(sender.route) == []


@pytest.mark.req("B2", "M28")
def test_after_a_kill_what_was_acknowledged_stays_gone_and_the_order_holds(run: Run) -> None:
    relay = run()
    client = relay.client
    for number in range(40):
        client.send("A#1", number)
    items = client.recv("A#1", most=40).json["messages"]
    assert client.ack("A#1", *(item["ack"] for item in items[::2])).status == 200
    relay.restart()
    client = relay.client
    again = client.recv("A#1", most=40).json["messages"]
    assert again == items[1::2], "the same messages, times and tokens"
    assert client.ack("A#1", items[0]["ack"]).json == {"status": "ok", "acknowledged": 0}
    # Sequences go on: an old token never names a new message.
    assert client.drain("A#1") == list(range(1, 40, 2))
    relay.restart()
    client = relay.client
    client.send("A#1", "new")
    old = max(item["ack"][len("A#1") + 1 :][:20] for item in items)
    assert client.recv("A#1").json["ack"][len("A#1") + 1 :][:20] > old
    assert client.ack("A#1", items[-1]["ack"]).json["acknowledged"] == 0
    assert client.drain("A#1") == ["new"]


@pytest.mark.req("B2")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_orderly_stop(run: Run, tmp_path: Path, number: int) -> None:
    relay = run("--db", f"{tmp_path}/q.db")
    client = relay.client
    client.send("A#1", "kept")
    answers: list[object] = []
    poll = threading.Thread(target=lambda: answers.append(relay.client.recv("B#1", 300_000).json))
    poll.start()
    client.until_waiting(1)
    # A request that never becomes whole, and a connection that says nothing, hold nothing up.
    half = socket.create_connection(("127.0.0.1", relay.port))
    half.sendall(b"POST /send HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    silent = socket.create_connection(("127.0.0.1", relay.port))
    start = time.monotonic()
    assert relay.stop(number) == 0
    assert time.monotonic() - start < 30
    poll.join(HANG_S)
    assert answers == [{"status": "timeout"}]
    assert relay.event("relay_stopped")
    assert relay.event("relay_fault") is None
    half.close()
    silent.close()
    wal = tmp_path / "q.db-wal"
    assert not wal.exists() or wal.stat().st_size == 0, "the log is emptied into the file"
    relay.start()
    assert relay.client.drain("A#1") == ["kept"]


@pytest.mark.req("B2")
def test_senders_during_a_stop_know_what_was_stored(run: Run) -> None:
    relay = run()
    enough = threading.Event()
    senders = [_Sender(relay, number, enough) for number in range(8)]
    for sender in senders:
        sender.start()
    assert enough.wait(HANG_S)
    assert relay.stop() == 0
    for sender in senders:
        sender.join(HANG_S)
    client = relay.start().client
    for sender in senders:
        found = client.drain(sender.route)
        assert found[: len(sender.accepted)] == sender.accepted and len(found) <= len(sender.accepted) + 1


@pytest.mark.req("B2", "B3")
def test_the_roster_comes_back_with_its_ages(run: Run) -> None:
    relay = run(env={"INTERLINK_RELAY_ROSTER_SAVE_S": "0.05"})
    client = relay.client
    body = {"pubkey": "k", "session": {"session_id": "s"}, "name": "é", "ts": 1, "sig": "x"}
    for key in ("k", "gone"):
        assert client.post("/announce", {**body, "pubkey": key}).status == 202
    client.post("/unregister", {**body, "pubkey": "gone"})
    assert relay.stop() == 0
    before = time.time()
    relay.start()
    entries = relay.client.roster()
    assert [{k: v for k, v in entry.items() if k != "age_ms"} for entry in entries] == [body]
    assert 0 <= entries[0]["age_ms"] < (time.time() - before + HANG_S) * 1000
    # A broken copy is no reason not to start.
    relay.kill()
    db = relay.args[relay.args.index("--db") + 1]
    Path(db + ".roster").write_bytes(b'{"half')
    relay.start()
    assert relay.event("relay_roster_unreadable")
    assert relay.client.roster() == []


# Starting


@pytest.mark.req("B2", "M29")
def test_durable_by_default_below_the_state_root_and_private(run: Run, own_home: str) -> None:
    relay = run(default_db=True)
    root = Path(own_home) / "state" / "interlink"
    assert f"db={root}/bus/queue.db" in (relay.event("relay_listening") or "")
    relay.client.send("A#1", "kept")
    names = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (root / "bus").iterdir()}
    assert {"queue.db", "queue.db-wal", "queue.db.lock"} <= names.keys()
    assert set(names.values()) == {0o600}, names
    assert stat.S_IMODE((root / "bus").stat().st_mode) == stat.S_IMODE(root.stat().st_mode) == 0o700
    relay.kill()
    (root / "bus" / "queue.db").chmod(0o644)
    relay.start()
    assert stat.S_IMODE((root / "bus" / "queue.db").stat().st_mode) == 0o600, "wider modes are tightened"
    assert relay.client.drain("A#1") == ["kept"]
    assert relay.event("relay_memory_only") is None and relay.event("relay_open_address") is None


@pytest.mark.req("B2")
def test_memory_is_warned_about_and_forgets(run: Run, own_home: str) -> None:
    relay = run("--memory")
    assert "lose" in (relay.event("relay_memory_only") or "")
    client = relay.client
    for number in range(50):
        assert client.send("A#1", number).status == 202
    assert client.drain("A#1") == list(range(50))
    client.send("A#1", "lost")
    assert relay.stop() == 0 and relay.event("relay_fault") is None
    relay.start()
    assert relay.client.drain("A#1") == []
    assert not (Path(own_home) / "state").exists()


@pytest.mark.req("B2")
def test_an_address_beyond_loopback_is_warned_about_louder_without_a_token(run: Run, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text("t" * 16)
    warnings = []
    for args in ((), ("--token-file", str(token))):
        relay = RelayProcess("--memory", *args, addr="0.0.0.0:0")
        with relay:
            warnings.append(relay.event("relay_open_address") or "")
    assert "ANYONE" in warnings[0] and "--token-file" in warnings[0]
    assert "other machines" in warnings[1] and "ANYONE" not in warnings[1]


@pytest.mark.req("B2")
def test_ipv6_loopback(run: Run) -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 loopback here")
    relay = run("--memory", addr="[::1]:0")
    assert relay.addr.startswith("[::1]:") and relay.event("relay_open_address") is None


def _fails(*args: str, code: int, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [*program("interlink-bus"), *args],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == code, done
    assert done.stdout == ""
    text = done.stderr.splitlines()[-1]
    assert text.startswith("interlink-bus: ") and "Traceback" not in done.stderr
    return text


@pytest.mark.req("B2", "H1")
@pytest.mark.parametrize(
    "args",
    [
        ("--nope",),
        ("extra",),
        ("--addr",),
        ("--addr", "9440"),
        ("--addr", "127.0.0.1"),
        ("--addr", "127.0.0.1:99999"),
        ("--addr", "127.0.0.1:x"),
        ("--addr", "::1:9440"),
        ("--addr", ":9440"),
        ("--addr", "256.0.0.1:0"),
        ("--addr", "\ud800:0".encode("utf-8", "replace").decode()),
        ("--queue-cap", "0"),
        ("--queue-cap", "x"),
        ("--max-bytes", "1"),
        ("--memory", "--db", "q.db"),
    ],
)
def test_usage_errors_exit_64(args: tuple[str, ...]) -> None:
    _fails(*args, code=64)


@pytest.mark.req("B2", "H1")
def test_faults_at_the_start_exit_1(run: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = _fails("--addr", f"127.0.0.1:{port}", "--db", f"{tmp_path}/q.db", code=1)
        assert f"127.0.0.1:{port}" in text and "in use" in text
    other = tmp_path / "other"
    other.write_bytes(b"not a database, and long enough to be read as one " * 100)
    assert "move it away" in _fails("--addr", "127.0.0.1:0", "--db", str(other), code=1)
    assert other.read_bytes().startswith(b"not a database"), "left untouched"
    assert "directory" in _fails("--addr", "127.0.0.1:0", "--db", str(tmp_path), code=1)
    assert "relative" in _fails("--addr", "127.0.0.1:0", code=1, env={"XDG_STATE_HOME": "here"})
    # Another program's database, and a newer queue of ours.
    db = sqlite3.connect(tmp_path / "strange.db")
    db.execute("CREATE TABLE t (x)")
    db.close()
    assert "another program" in _fails("--addr", "127.0.0.1:0", "--db", f"{tmp_path}/strange.db", code=1)
    relay = run("--db", f"{tmp_path}/newer.db")
    relay.stop()
    db = sqlite3.connect(tmp_path / "newer.db")
    db.execute("PRAGMA user_version = 99")
    db.close()
    assert "newer" in _fails("--addr", "127.0.0.1:0", "--db", f"{tmp_path}/newer.db", code=1)


@pytest.mark.req("B2")
def test_one_relay_a_queue(run: Run, tmp_path: Path) -> None:
    relay = run("--db", f"{tmp_path}/q.db")
    text = _fails("--addr", "127.0.0.1:0", "--db", f"{tmp_path}/q.db", code=1)
    assert "another relay" in text
    assert relay.client.send("A#1", 1).status == 202


@pytest.mark.req("B2", "M29")
@pytest.mark.parametrize(
    ("content", "mode", "says"),
    [
        ("t" * 16, 0o644, "other users can read"),
        ("t" * 16, 0o640, "other users can read"),
        ("t" * 15, 0o600, "visible ASCII"),
        ("t" * 16 + " x", 0o600, "visible ASCII"),
        ("é" * 16, 0o600, "visible ASCII"),
        ("", 0o600, "visible ASCII"),
        (None, 0o600, "no token file"),
    ],
)
def test_a_bad_token_file_is_refused(tmp_path: Path, content: str | None, mode: int, says: str) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content, encoding="utf-8")
        path.chmod(mode)
    text = _fails("--memory", "--addr", "127.0.0.1:0", "--token-file", str(path), code=1)
    assert says in text and "tttt" not in text


@pytest.mark.req("B2")
def test_a_bad_setting_is_said_and_its_default_used(run: Run) -> None:
    relay = run("--memory", env={"INTERLINK_WAITERS_MAX": "many"})
    assert "INTERLINK_WAITERS_MAX" in (relay.event("setting_ignored") or "")


@pytest.mark.req("B2")
def test_the_relay_does_not_import_the_mcp_sdk() -> None:
    code = "import sys, interlink.cli.bus, interlink.relay.serving; sys.exit('mcp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=HANG_S).returncode == 0
