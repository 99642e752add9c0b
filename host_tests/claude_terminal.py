"""A real Claude Code as a person has it: interactive, in a terminal (tmux) that tests can read and type into."""

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from host_tests.claude_host import ALLOWED, MODEL
from host_tests.fake_messages_api import API_KEY
from host_tests.waiting import GUARD_S, until
from interlink.state.process import Process


class ClaudeTerminal:
    """One `claude` in a tmux of its own; `with` ends both."""

    def __init__(self, program: Path, folder: Path, env: Mapping[str, str], api: str) -> None:
        seed(folder)
        self._socket = str(folder / "tmux")
        words = ["env", "-i", *(f"{name}={value}" for name, value in {**env, "ANTHROPIC_BASE_URL": api}.items())]
        words += ["TERM=xterm-256color", str(program), "--model", MODEL, "--allowedTools", ALLOWED]
        self._env = {**env, "PATH": os.environ["PATH"]}
        where = ["-x", "150", "-y", "50", "-c", str(folder / "work")]
        self._tmux("-f", "/dev/null", "new-session", "-d", *where, shlex.join(words))
        self.pid = int(self._tmux("list-panes", "-F", "#{pane_pid}"))
        self._process = Process.of(self.pid)

    def __enter__(self) -> "ClaudeTerminal":
        return self

    def __exit__(self, *_exc: object) -> None:
        """As a terminal does that is closed."""
        server = int(self._tmux("display-message", "-p", "#{pid}"))
        os.kill(server, signal.SIGTERM)
        until(lambda: self.ended() is not None, "the end of claude in its terminal")

    def ended(self) -> str | None:
        """None while it lives."""
        return None if self._process is not None and self._process.alive() else "the terminal is gone"

    def screen(self) -> str:
        """What the terminal shows."""
        return self._tmux("capture-pane", "-p")

    def shows(self, text: str) -> None:
        """Return once the screen has this text. AssertionError with the screen after a while."""
        try:
            until(lambda: text in self.screen(), f"{text!r} on the screen")
        except AssertionError as exc:
            raise AssertionError(f"{exc}:\n{self.screen()}") from exc

    def type(self, text: str) -> None:
        """Type this text."""
        self._tmux("send-keys", "-l", text)

    def enter(self) -> None:
        self._tmux("send-keys", "Enter")

    def _tmux(self, *args: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", self._socket, *args], capture_output=True, text=True, env=self._env, timeout=GUARD_S
        )
        assert done.returncode == 0, done
        return done.stdout


def seed(folder: Path) -> None:
    """What a person's first start would have asked: theme, the key, the trust in this folder."""
    trusted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    table = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [API_KEY[-20:]], "rejected": []},
        "projects": {os.path.realpath(folder / "work"): trusted},
    }
    (folder / "config" / ".claude.json").write_text(json.dumps(table), "utf-8")
