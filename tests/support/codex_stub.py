"""A `codex` program for tests: it records how it is called and answers as a file says.

stub = CodexStub(tmp_path)
stub.answers(fails("No active session found matching 'x'."), OK)     # the last one stays
... INTERLINK_CODEX_BIN=stub.bin ...
stub.calls                                                           # one Call a run, in order
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

OK: dict[str, Any] = {"code": 0}
HANG: dict[str, Any] = {"hang": True}

_PROGRAM = r"""#!{python} -IS
import fcntl, json, os, signal, sys, time
folder = {folder!r}
with open(folder + "/lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    with open(folder + "/answers.json") as f:
        answers = json.load(f)
    now = answers[0]
    with open(folder + "/answers.json", "w") as f:
        json.dump(answers[1:] or answers, f)
    child = 0
    if now.get("hang") or now.get("leaves_child"):
        child = os.fork()
        if child == 0:
            if now.get("leaves_child"):
                os.setsid()  # as a daemon does; our standard error stays open in it
            time.sleep(now.get("child_s", 300))
            os._exit(0)
    stdin = os.read(0, 10)
    record = dict(argv=sys.argv[1:], stdin=stdin.decode(), pid=os.getpid(), child=child, at=time.monotonic(),
                  stdout=os.readlink("/proc/self/fd/1"), home=os.environ.get("CODEX_HOME", ""))
    with open(folder + "/calls.jsonl", "a") as f:
        f.write(json.dumps(record) + "\n")
    fcntl.flock(lock, fcntl.LOCK_UN)  # a child has the same open file
if now.get("hang"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(300)
if now.get("killed"):
    os.kill(os.getpid(), signal.SIGKILL)
sys.stderr.write(now.get("err", ""))
sys.stdout.write(now.get("out", ""))
sys.stderr.flush()
sys.stdout.flush()
os._exit(now["code"])
"""


def fails(err: str, code: int = 1) -> dict[str, Any]:
    """An answer with an exit code and words on standard error."""
    return {"code": code, "err": err + "\n"}


class Call(NamedTuple):
    """One run. `at`: its monotonic clock, s; `child`: a process that it started, 0 for none."""

    argv: list[str]
    stdin: str
    pid: int
    child: int
    at: float
    stdout: str
    home: str

    @property
    def message(self) -> str:
        return next(word for word in self.argv if word.startswith("--message=")).removeprefix("--message=")


class CodexStub:
    """The program `bin` in a folder of its own; `package`: the version that a package.json beside it gives."""

    def __init__(self, folder: Path, package: str | None = None) -> None:
        self.folder = folder / "codex"
        (self.folder / "bin").mkdir(parents=True)
        self.bin = str(self.folder / "bin" / "codex")
        Path(self.bin).write_text(_PROGRAM.format(python=sys.executable, folder=str(self.folder)), "utf-8")
        Path(self.bin).chmod(0o755)
        if package is not None:
            table = {"name": "@openai/codex", "version": package}
            (self.folder / "package.json").write_text(json.dumps(table), "utf-8")
        self.answers(OK)

    def answers(self, *found: dict[str, Any]) -> None:
        """What the next runs answer; the last one is for all that follow."""
        temp = self.folder / "answers.new"
        temp.write_text(json.dumps(found), "utf-8")
        temp.replace(self.folder / "answers.json")

    @property
    def calls(self) -> list[Call]:
        """The runs so far."""
        path = self.folder / "calls.jsonl"
        if not path.exists():
            return []
        return [Call(**json.loads(line)) for line in path.read_bytes().split(b"\n")[:-1]]


def gone(pid: int) -> bool:
    """True when no process of this id runs (a zombie that nobody has fetched yet does not)."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True


def wait_gone(*pids: int, guard_s: float = 30) -> None:
    """Returns once none of them runs. AssertionError after the guard time."""
    until = time.monotonic() + guard_s
    while not all(gone(pid) for pid in pids):
        assert time.monotonic() < until, f"still running: {[p for p in pids if not gone(p)]}"
        time.sleep(0.01)
