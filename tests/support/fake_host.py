"""A fake of a host process: it starts the server as its child and hooks as the real one does, and decides nothing.

    with FakeHost() as host:
        host.server("interlink-mcp", CLAUDE_CODE_SESSION_ID="a")
        hook = host.hook("... wait", {"session_id": "b"})
        code, said = host.ended(hook)

The process is this file. `CLAUDE_PID`, the shell between host and hook, the hook's own process group, the payload
on a pipe and the order of it all are what a real host was seen to do; the rest of a host is not here.
"""

import itertools
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

GUARD_S = 60.0  # against hangs, never a measure


class FakeHost:
    """One fake host. `arguments` end its command line, `env` is added to what its children get."""

    def __init__(self, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        self._numbers = itertools.count(1)
        self._ended: dict[int, queue.SimpleQueue[tuple[int, str]]] = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> "FakeHost":
        return self

    def __exit__(self, *_exc: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(GUARD_S)
        self._process.stdout.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def server(self, *argv: str, **env: str) -> None:
        """Start an MCP server as a child. It lives until the host ends."""
        self._say({"do": "server", "argv": argv, "env": env})

    def hook(self, command: str, payload: Mapping[str, object], **env: str) -> int:
        """Start a hook; the number by which `ended` knows it."""
        number = next(self._numbers)
        self._ended[number] = queue.SimpleQueue()
        self._say({"do": "hook", "number": number, "command": command, "payload": payload, "env": env})
        return number

    def ended(self, number: int) -> tuple[int, str]:
        """(exit code, standard error) of a hook, once it has ended."""
        return self._ended[number].get(timeout=GUARD_S)

    def running(self, number: int) -> bool:
        """True while a hook has not ended."""
        return self._ended[number].empty()

    def _say(self, message: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            number, code, said = json.loads(line)
            self._ended[number].put((code, said))


def _hook(message: dict[str, Any], lock: threading.Lock) -> "subprocess.Popen[bytes]":
    """As the host: `/bin/sh -c`, in a group of its own, CLAUDE_PID set, the payload on a pipe and then its end."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", message["command"]],
        env={**os.environ, "CLAUDE_PID": str(os.getpid()), **message["env"]},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )

    def report() -> None:
        _, said = process.communicate(json.dumps(message["payload"]).encode() + b"\n")
        with lock:
            print(json.dumps([message["number"], process.returncode, said.decode()]), flush=True)

    threading.Thread(target=report).start()
    return process


def _main() -> None:
    servers, hooks, lock = [], [], threading.Lock()
    for line in sys.stdin:
        message = json.loads(line)
        if message["do"] == "server":
            env = {**os.environ, **message["env"]}
            servers.append(
                subprocess.Popen(message["argv"], env=env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
            )
        else:
            hooks.append(_hook(message, lock))
    for process in hooks:
        if process.poll() is None:
            os.killpg(process.pid, 15)  # the shell and the listener behind it
    for server in servers:
        assert server.stdin is not None
        server.stdin.close()
        server.wait()


if __name__ == "__main__":
    _main()
