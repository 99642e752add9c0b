"""`interlinked` becomes claude with the channel switched on (N2). The claude here is a recorder."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.programs import program

from interlink.setup import claude as plugin

RECORDER = f"""#!{sys.executable}
import json, os, sys
with open(os.environ["RECORD"], "w") as file:
    names = ("INTERLINK_CHANNELS", "INTERLINK_SESSION", "KEPT")
    json.dump([sys.argv[1:], {{n: os.environ.get(n) for n in names}}, os.getpid(), sys.stdin.read()], file)
os.write(1, b"out")
if sys.argv[1:2] == ["die"]:
    os.kill(os.getpid(), 9)
sys.exit(37)
"""
FLAG = ["--dangerously-load-development-channels", f"plugin:{plugin.PLUGIN}"]


class Run:
    """One run of `interlinked` with a recording claude on PATH."""

    def __init__(self, folder: Path, *args: str, name: str = "claude", env: dict[str, str] | None = None) -> None:
        (folder / "bin").mkdir(exist_ok=True)
        recorder = folder / "bin" / name
        recorder.write_text(RECORDER)
        recorder.chmod(0o755)
        self.record = folder / "record"
        path = f"{folder / 'bin'}:{os.environ['PATH']}"
        process = subprocess.Popen(
            [*program("interlinked"), *args],
            env={**os.environ, "PATH": path, "RECORD": str(self.record), "KEPT": "yes", **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.out, self.err = process.communicate("typed", timeout=60)
        self.code, self.pid = process.returncode, process.pid

    def seen(self) -> list[Any]:
        """What claude was given: arguments, environment, pid, standard input."""
        found: list[Any] = json.loads(self.record.read_text())
        return found


@pytest.mark.req("N2")
def test_arguments_streams_and_exit_code_go_through(tmp_path: Path) -> None:
    args = ["--resume", "a b", "", "-p", "it's $HOME", "\u00e9"]
    done = Run(tmp_path, *args, env={"INTERLINK_SESSION": "s1"})
    given, env, pid, typed = done.seen()
    assert given == [*args, *FLAG] and done.code == 37
    assert env == {"INTERLINK_CHANNELS": "1", "INTERLINK_SESSION": "s1", "KEPT": "yes"}
    assert (done.out, typed) == ("out", "typed")
    if os.name == "posix":
        assert pid == done.pid  # it became claude: signals reach it, nothing stands between


@pytest.mark.req("N2")
def test_what_follows_two_dashes_stays_behind_the_flag(tmp_path: Path) -> None:
    assert Run(tmp_path, "--model", "m", "--", "--not-an-option").seen()[0] == [
        "--model",
        "m",
        *FLAG,
        "--",
        "--not-an-option",
    ]
    assert Run(tmp_path).seen()[0] == FLAG


@pytest.mark.req("N2")
def test_a_death_by_signal_is_handed_on(tmp_path: Path) -> None:
    assert Run(tmp_path, "die").code == -9


@pytest.mark.req("N2")
def test_it_says_what_holds_where_channels_are_off(tmp_path: Path) -> None:
    (line,) = Run(tmp_path).err.splitlines()
    assert "channels are not available" in line and "plain `claude`" in line


@pytest.mark.req("N2")
def test_the_program_may_be_named_and_must_be_there(tmp_path: Path) -> None:
    assert Run(tmp_path, name="other", env={"INTERLINK_CLAUDE_BIN": "other"}).seen()[0] == FLAG
    env = {**os.environ, "PATH": str(tmp_path / "empty")}
    missing = subprocess.run(program("interlinked"), env=env, capture_output=True, text=True)
    assert missing.returncode == 1 and missing.stderr.startswith("interlinked: no `claude` on PATH: install it")
