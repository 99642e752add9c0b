"""A real Claude Code for tests: one process that reads turns from a stream, an environment of its own, no vendor.

    with ClaudeHost(program, folder, api.url) as claude:
        claude.say("hello")
        result = claude.result(0)

`interlink setup claude` has been run for its configuration folder: it is the shipped plugin that is tested.
"""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.cli import ok
from support.programs import pythonpath
from support.setup import install

from host_tests.fake_messages_api import API_KEY
from host_tests.waiting import until

TOOL = "mcp__plugin_interlink_interlink__"
ALLOWED = ",".join(TOOL + name for name in ("receive_messages", "acknowledge_messages", "send_message"))
MODEL = "claude-sonnet-4-5"
STREAM = ("--input-format", "stream-json", "--output-format", "stream-json", "--verbose")


def set_up(folder: Path, *options: str) -> dict[str, str]:
    """Install the plugin by `interlink setup` for a Claude Code below `folder`; the environment to run it in."""
    for name in ("home", "tmp", "work", "config"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    env = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "LANG": "C.UTF-8",
        "PYTHONPATH": pythonpath({}),
        "CLAUDE_CONFIG_DIR": str(folder / "config"),
        "XDG_DATA_HOME": str(folder / "data"),
        "ANTHROPIC_API_KEY": API_KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "MCP_TIMEOUT": "120000",  # ms for a server's start: on a busy machine the host gives up after 30 s
        "DISABLE_TELEMETRY": "1",
        "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"],
        "XDG_CONFIG_HOME": os.environ["XDG_CONFIG_HOME"],
    }
    program = install(folder / "in stalled")
    ok("setup", "claude", "--yes", "--program", str(program), *options, env=env)
    return env


class ClaudeHost:
    """One `claude -p` whose turns come from a stream; it stays until it is ended."""

    def __init__(self, program: Path, folder: Path, env: dict[str, str], api: str, *args: str) -> None:
        self.folder = folder
        self._log = (folder / "claude.log").open("ab")
        self.process = subprocess.Popen(
            command(program, *STREAM, *args),
            cwd=folder / "work",
            env={**env, "ANTHROPIC_BASE_URL": api},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.lines: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> "ClaudeHost":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.end()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self.lines.append(json.loads(line))

    def say(self, text: str) -> None:
        """One turn of the user."""
        assert self.process.stdin is not None
        message = {"type": "user", "message": {"role": "user", "content": text}}
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def results(self) -> list[dict[str, Any]]:
        """The ends of turns so far."""
        return [line for line in self.lines if line.get("type") == "result"]

    def result(self, number: int) -> dict[str, Any]:
        """The end of this turn, from 0."""

        def there() -> list[dict[str, Any]]:
            found = self.results()[number:]
            assert found or self.process.poll() is None, f"claude ended: {self.log()}"
            return found

        found: dict[str, Any] = until(there, f"the end of turn {number}")[0]
        return found

    @property
    def pid(self) -> int:
        return self.process.pid

    def ended(self) -> str | None:
        """None while it lives; else the end of its log."""
        return None if self.process.poll() is None else self.log()

    def log(self) -> str:
        return (self.folder / "claude.log").read_text("utf-8", "replace")[-2000:]

    def end(self) -> None:
        """As a person's Ctrl-C or a closing terminal does: SIGTERM, then SIGKILL."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self._log):
            if stream is not None:
                stream.close()


def command(program: Path, *args: str) -> Sequence[str]:
    """`claude -p` with the tools that an agent needs to answer."""
    return [str(program), "-p", *args, "--model", MODEL, "--allowedTools", ALLOWED]
