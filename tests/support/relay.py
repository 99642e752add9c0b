"""A real relay process and a small client for tests.

with RelayProcess("--db", path) as relay:
    relay.client.send("KEY#s", {"text": "hi"})
    relay.kill(); relay.start()      # same port, same queue
"""

import http.client
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from support.programs import program

HANG_S = 60.0  # a guard against hanging, never a measure


class Answer(NamedTuple):
    """One HTTP answer; `json` is None where the body is none."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body) if self.body else None


class RelayProcess:
    """`interlink-bus` on 127.0.0.1, port 0 at first and the same port afterwards. Ready once `start` returns.

    Without `--db` or `--memory` the queue is at its default place, below this test's state root.
    """

    def __init__(
        self,
        *args: str,
        env: Mapping[str, str] | None = None,
        command: Sequence[str] | None = None,
        addr: str = "127.0.0.1:0",
        token: str | None = None,
        wait: bool = True,
    ) -> None:
        """`env` is added to this process's; `command` replaces the program; `token` is what `client` shows."""
        self.args = list(args)
        self.env = dict(env or {})
        self.command = list(command) if command is not None else program("interlink-bus")
        self.addr = addr
        self.token = token
        self.lines: list[str] = []
        self._fresh: list[str] = []
        self._wait = wait
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def __enter__(self) -> "RelayProcess":
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.kill()

    @property
    def process(self) -> "subprocess.Popen[str]":
        assert self._process is not None, "start() comes first"
        return self._process

    @property
    def port(self) -> int:
        return int(self.addr.rpartition(":")[2])

    @property
    def url(self) -> str:
        return f"http://{self.addr}"

    @property
    def client(self) -> "Client":
        """A client of its own connection."""
        return Client(self.port, self.token)

    def start(self) -> "RelayProcess":
        """Start, or start again on the same port; returns when it listens. AssertionError where it does not."""
        self._fresh = []
        ready = threading.Event()
        self._process = subprocess.Popen(
            [*self.command, "--addr", self.addr, *self.args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, **self.env},
        )
        self._reader = threading.Thread(target=self._read, args=(self._process, ready), daemon=True)
        self._reader.start()
        if self._wait:
            ready.wait(HANG_S)
            listening = self.event("relay_listening")
            assert listening is not None, f"the relay did not start: {self._fresh}"
            self.addr = listening.partition(" addr=")[2].split()[0]
        return self

    def _read(self, process: "subprocess.Popen[str]", ready: threading.Event) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            self.lines.append(line.rstrip("\n"))
            self._fresh.append(line.rstrip("\n"))
            if "event=relay_listening " in line:
                ready.set()
        process.stderr.close()
        ready.set()

    def event(self, name: str) -> str | None:
        """The first log line of this event since the last start."""
        return next((line for line in self._fresh if f" event={name} " in f"{line} "), None)

    def until_event(self, name: str) -> str:
        """The same, once it is there: a line may come later than the answer that it belongs to."""
        end = time.monotonic() + HANG_S
        while (line := self.event(name)) is None:
            assert time.monotonic() < end, f"no event {name}: {self._fresh}"
            time.sleep(0.005)
        return line

    def wait_exit(self) -> int:
        """The exit code; the log is whole then."""
        code = self.process.wait(HANG_S)
        if self._reader is not None:
            self._reader.join(HANG_S)
        return code

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end (SIGTERM) and return its exit code."""
        self.process.send_signal(number)
        return self.wait_exit()

    def kill(self) -> None:
        """SIGKILL; nothing where it is gone already."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        if self._process is not None:
            self.wait_exit()

    def restart(self) -> "RelayProcess":
        """SIGKILL and start on the same port and queue."""
        self.kill()
        return self.start()


class Client:
    """One keep-alive connection, opened when it is needed."""

    def __init__(self, port: int, token: str | None = None) -> None:
        self._link = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_S)
        self._token = token

    def call(self, method: str, target: str, body: bytes | None = None, **headers: str) -> Answer:
        """One request. Raises OSError or http.client.HTTPException."""
        if self._token:
            headers.setdefault("Authorization", f"Bearer {self._token}")
        try:
            self._link.request(
                method, target, body, {name.replace("_", "-"): text for name, text in headers.items()}
            )
            response = self._link.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        except (OSError, http.client.HTTPException):
            self._link.close()
            raise

    def post(self, path: str, body: Any) -> Answer:
        """POST of a value as JSON."""
        return self.call("POST", path, json.dumps(body).encode(), Content_Type="application/json")

    def send(self, to: str, payload: Any) -> Answer:
        return self.post("/send", {"to": to, "payload": payload})

    def recv(self, me: str, timeout_ms: int | None = 0, most: int | None = None) -> Answer:
        target = f"/recv?me={quote(me, safe='')}"
        target += "" if timeout_ms is None else f"&timeout_ms={timeout_ms}"
        return self.call("GET", target + ("" if most is None else f"&max={most}"))

    def ack(self, me: str, *tokens: str) -> Answer:
        """One token: the single form; several: the list form."""
        return self.post("/ack", {"me": me, "ack": tokens[0]} if len(tokens) == 1 else {"me": me, "acks": tokens})

    def drain(self, me: str, *, batch: int = 256, ack: bool = True) -> list[Any]:
        """Payloads of all that waits, acknowledged, in order."""
        found: list[Any] = []
        while (answer := self.recv(me, 0, batch)).json["status"] == "messages":
            items = answer.json["messages"]
            found += [item["envelope"]["payload"] for item in items]
            if not ack:
                break
            assert self.ack(me, *(item["ack"] for item in items)).status == 200
        return found

    def roster(self) -> list[dict[str, Any]]:
        answer = self.call("GET", "/roster")
        assert answer.status == 200, answer
        return list(answer.json["roster"])

    def until_waiting(self, count: int) -> None:
        """Return once so many polls wait at the relay."""
        end = time.monotonic() + HANG_S
        while f"interlink_relay_waiters {float(count)}" not in self.call("GET", "/metrics").body.decode():
            assert time.monotonic() < end, f"there were never {count} polls waiting"
            time.sleep(0.005)

    def close(self) -> None:
        self._link.close()
