"""A real Codex for tests: its daemon, a client of it, a home of its own, no vendor.

    codex = CodexHome(program, folder, api.url)
    codex.trust()                        # what a person does in the terminal
    with codex.daemon() as client:
        thread = client.thread(codex.work)

`folder` must have a short path: the daemon's socket is below it.
"""

import base64
import json
import os
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from host_tests.waiting import GUARD_S, until

CONFIG = """\
model = "fake-model"
model_provider = "fake"
check_for_update_on_startup = false

[model_providers.fake]
name = "fake"
base_url = "{url}"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
supports_websockets = false

[features]
plugins = false # it would look for them on the network

[analytics]
enabled = false

[projects."{work}"]
trust_level = "trusted"
"""


class CodexHome:
    """One CODEX_HOME, with the policy for approvals that Codex has by itself."""

    def __init__(self, program: Path, folder: Path, api: str) -> None:
        self.program, self.home, self.work = program, folder / "codex", folder / "work"
        for path in (self.home, self.work, folder / "home"):
            path.mkdir(parents=True)
        (self.home / "config.toml").write_text(CONFIG.format(url=api, work=self.work))
        self.env = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(folder / "home"),
            "LANG": "C.UTF-8",
            "CODEX_HOME": str(self.home),
            "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"],
            "XDG_CONFIG_HOME": os.environ["XDG_CONFIG_HOME"],
        }

    def run(self, *args: str, limit_s: float = GUARD_S) -> "subprocess.CompletedProcess[str]":
        """Run `codex ARGS...` to its end."""
        return subprocess.run(
            [str(self.program), *args],
            env=self.env,
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
        )

    def hooks(self) -> list[dict[str, Any]]:
        """What Codex itself says of the hooks."""
        with self._app_server() as call:
            rows = call("hooks/list", {"cwds": [str(self.work)]})["data"]
            return [hook for row in rows for hook in row["hooks"]]

    def trust(self) -> None:
        """A person's part: trust every hook as it is now."""
        value = {hook["key"]: {"trusted_hash": hook["currentHash"]} for hook in self.hooks()}
        edit = {"keyPath": "hooks.state", "mergeStrategy": "upsert", "value": value}
        with self._app_server() as call:
            call("config/batchWrite", {"edits": [edit], "filePath": None, "expectedVersion": None})

    @contextmanager
    def _app_server(self) -> Iterator[Callable[[str, Any], Any]]:
        process = subprocess.Popen(
            [str(self.program), "app-server"],
            env=self.env,
            cwd=self.work,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdin is not None and process.stdout is not None
        numbers = iter(range(1, 1000))

        def send(message: dict[str, Any]) -> None:
            assert process.stdin is not None
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            process.stdin.flush()

        def call(method: str, params: Any) -> Any:
            number = next(numbers)
            send({"id": number, "method": method, "params": params})
            assert process.stdout is not None
            for line in process.stdout:
                answer = json.loads(line)
                if answer.get("id") == number and "method" not in answer:
                    return result_of(answer)
            raise AssertionError(f"codex app-server ended before it answered {method}")

        try:
            call("initialize", HELLO)
            send({"method": "initialized"})
            yield call
        finally:
            process.terminate()
            process.wait(GUARD_S)
            process.stdin.close()
            process.stdout.close()

    @contextmanager
    def daemon(self) -> Iterator["Client"]:
        """Start the daemon; a client that stays attached, so that threads stay loaded."""
        try:
            self.start_daemon()
            with self.client() as client:
                yield client
        finally:
            self.stop_daemon()

    def start_daemon(self) -> None:
        started = self.run("app-server", "daemon", "start")
        assert started.returncode == 0, started

    def stop_daemon(self) -> None:
        """Stop the daemon and all that it leaves behind, also where a turn hangs in it."""
        try:
            daemon = self.daemon_pid()
        except FileNotFoundError:
            return
        try:
            self.run("app-server", "daemon", "stop", limit_s=20)
        except subprocess.TimeoutExpired:
            os.kill(daemon, signal.SIGKILL)
        finally:
            self._end_updater()

    def daemon_pid(self) -> int:
        """The daemon's process."""
        return int(json.loads((self.home / "app-server-daemon" / "daemon.pid").read_text())["pid"])

    @contextmanager
    def client(self) -> Iterator["Client"]:
        """One more client of the daemon that runs."""
        client = Client(self.home / "app-server-control" / "app-server-control.sock")
        try:
            yield client
        finally:
            client.close()

    def _end_updater(self) -> None:
        """The daemon leaves a process behind that would look for updates."""
        try:
            pid = int(json.loads((self.home / "app-server-daemon" / "daemon-updater.pid").read_text())["pid"])
            os.kill(pid, signal.SIGTERM)
        except (FileNotFoundError, ProcessLookupError):
            return


HELLO = {
    "clientInfo": {"name": "test", "title": "test", "version": "0"},
    "capabilities": {"experimentalApi": True},
}


def result_of(answer: dict[str, Any]) -> Any:
    assert "error" not in answer, answer
    return answer["result"]


class Client:
    """JSON-RPC over the daemon's control socket, a WebSocket of text frames."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        key = base64.b64encode(os.urandom(16)).decode()
        lines = ["GET / HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade"]
        lines += [f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", ""]
        self._socket.sendall("\r\n".join(lines).encode())
        self._file = self._socket.makefile("rb")
        assert b" 101 " in self._file.readline()
        while self._file.readline().strip():
            pass
        self._answers: dict[int, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self._number = 0
        threading.Thread(target=self._read, daemon=True).start()
        self.call("initialize", HELLO)
        self._send(1, json.dumps({"jsonrpc": "2.0", "method": "initialized"}).encode())

    def call(self, method: str, params: Any) -> Any:
        """The result of one request. AssertionError for an error, or after GUARD_S."""
        self._number += 1
        number = self._number
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self._send(1, json.dumps(message).encode())
        return result_of(until(lambda: self._answers.get(number), f"the answer to {method}"))

    def thread(self, folder: Path, **start: Any) -> str:
        """Start a thread; its id, once its MCP server is up. Hooks of a turn that ends before that all fail."""
        ident = str(self.call("thread/start", {"cwd": str(folder), **start})["thread"]["id"])
        self._server_up(ident, 1)
        return ident

    def resume(self, thread: str) -> None:
        """Load a saved thread; returns once its MCP server is up."""
        before = self._servers_up(thread)
        self.call("thread/resume", {"threadId": thread})
        self._server_up(thread, before + 1)

    def _servers_up(self, thread: str) -> int:
        up = {"threadId": thread, "name": "interlink", "status": "ready"}
        return sum(up.items() <= event["params"].items() for event in self.of("mcpServer/startupStatus/updated"))

    def _server_up(self, thread: str, count: int) -> None:
        until(lambda: self._servers_up(thread) >= count, "the thread's MCP server")

    def say(self, thread: str, text: str) -> None:
        """One turn of the user, to its end."""
        turn = self.begin(thread, text)
        until(lambda: turn in self.ended(thread), "the end of the turn")

    def begin(self, thread: str, text: str) -> str:
        """Start a turn of the user; its id."""
        given = {"threadId": thread, "input": [{"type": "text", "text": text}]}
        return str(self.call("turn/start", given)["turn"]["id"])

    def interrupt(self, thread: str, turn: str) -> None:
        """What Esc does."""
        self.call("turn/interrupt", {"threadId": thread, "turnId": turn})
        until(lambda: turn in self.ended(thread), "the end of the interrupted turn")

    def allow(self, number: int) -> dict[str, Any]:
        """A person allows the call of a tool that was asked about, from 0; what was asked."""
        asks = until(lambda: self.of("mcpServer/elicitation/request")[number:], "the question about a call")
        answer = {"jsonrpc": "2.0", "id": asks[0]["id"], "result": {"action": "accept", "content": {}}}
        self._send(1, json.dumps(answer).encode())
        asked: dict[str, Any] = asks[0]["params"]
        return asked

    def ended(self, thread: str) -> list[str]:
        """The ids of the turns of a thread that are over."""
        events = [event["params"] for event in self.of("turn/completed")]
        return [str(params["turn"]["id"]) for params in events if params["threadId"] == thread]

    def of(self, *methods: str) -> Sequence[dict[str, Any]]:
        """Notifications and requests of the host with one of these names."""
        return [event for event in self.events if event.get("method") in methods]

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # the reader holds the socket open until it is at the end
        self._socket.close()

    def _read(self) -> None:
        try:
            while head := self._file.read(2):
                size = head[1] & 0x7F
                if size == 126:
                    (size,) = struct.unpack(">H", self._file.read(2))
                elif size == 127:
                    (size,) = struct.unpack(">Q", self._file.read(8))
                data = self._file.read(size)
                if head[0] & 0xF == 9:
                    self._send(10, data)
                elif head[0] & 0xF == 1:
                    self._take(json.loads(data))
        except (OSError, ValueError):
            return  # closed

    def _take(self, message: dict[str, Any]) -> None:
        if "method" in message:
            self.events.append(message)
        else:
            self._answers[message["id"]] = message

    def _send(self, kind: int, data: bytes) -> None:
        mask, size = os.urandom(4), len(data)
        head = bytes([0x80 | kind])
        if size < 126:
            head += bytes([0x80 | size])
        elif size < 1 << 16:
            head += bytes([0x80 | 126]) + struct.pack(">H", size)
        else:
            head += bytes([0x80 | 127]) + struct.pack(">Q", size)
        self._socket.sendall(head + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(data)))
