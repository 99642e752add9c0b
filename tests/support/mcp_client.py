"""A host made of bytes, for tests of the wire: lines in, lines out, nothing of the SDK in between."""

import json
import os
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

GUARD_S = 40.0  # against hangs, never a measure
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "claude-code", "version": "2.1.278"},
}


class RawClient:
    """One server process and its pipes. `with` kills it at the end where it still runs.

    `read_stdout`, `read_stderr`: False leaves the pipe to fill up, as a host that hangs does.
    """

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        read_stdout: bool = True,
        read_stderr: bool = True,
    ) -> None:
        self.process = subprocess.Popen(
            list(argv),
            env={**os.environ, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._log = bytearray()
        self._log_done = threading.Event()
        if read_stdout:
            self.read_stdout()
        if read_stderr:
            threading.Thread(target=self._read_log, daemon=True).start()

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _exc: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def read_stdout(self) -> None:
        """Begin to read, where the client was made not to."""
        threading.Thread(target=self._read_lines, daemon=True).start()

    def _read_lines(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:  # a binary file: split at byte 0x0A alone
            self.lines.put(line)
        self.lines.put(None)

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        while chunk := os.read(self.process.stderr.fileno(), 65536):
            self._log += chunk
        self._log_done.set()

    def send_bytes(self, data: bytes) -> None:
        """These bytes, as they are."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, message: object) -> None:
        """One message and its newline."""
        self.send_bytes(json.dumps(message).encode() + b"\n")

    def request(self, ident: object, method: str, params: object = None) -> None:
        """Send a request, its answer not awaited."""
        body: dict[str, object] = {"jsonrpc": "2.0", "id": ident, "method": method}
        if params is not None:
            body["params"] = params
        self.send(body)

    def call(self, ident: object, tool: str, arguments: object = None, meta: object = None) -> None:
        """Send a tools/call, its answer not awaited."""
        params: dict[str, object] = {"name": tool, "arguments": {} if arguments is None else arguments}
        if meta is not None:
            params["_meta"] = meta
        self.request(ident, "tools/call", params)

    def line(self) -> bytes:
        """The next line, newline included. AssertionError at the end of the stream, queue.Empty after GUARD_S."""
        line = self.lines.get(timeout=GUARD_S)
        assert line is not None, f"the server closed its stdout; its log:\n{self.log()}"
        return line

    def message(self) -> dict[str, Any]:
        """The next message."""
        found: dict[str, Any] = json.loads(self.line())
        return found

    def answer(self, ident: object) -> dict[str, Any]:
        """The answer to one request; messages before it are dropped."""
        while True:
            found = self.message()
            if found.get("id") == ident and "method" not in found:
                return found

    def handshake(self, capabilities: dict[str, object] | None = None) -> dict[str, Any]:
        """Initialize; the server's answer."""
        self.request("init", "initialize", {**INITIALIZE, "capabilities": capabilities or {}})
        found = self.answer("init")
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return found

    def close_stdin(self) -> None:
        """What a host does that ends or dies."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait(self) -> int:
        """The exit code. subprocess.TimeoutExpired after GUARD_S."""
        return self.process.wait(GUARD_S)

    def log(self) -> str:
        """What the process has written to stderr; all of it once it has ended."""
        if self.process.poll() is not None:
            self._log_done.wait(GUARD_S)
        return self._log.decode("utf-8", "replace")

    def peak_bytes(self) -> int:
        """The most resident memory that it has had so far (Linux)."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text("ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
        raise LookupError("no VmHWM")
