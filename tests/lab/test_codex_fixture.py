"""The lab's Codex thread: its hooks bind, its queue runs in order, an interrupt pauses it; and its `codex`."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from interlink_lab.fixtures import codex_program
from interlink_lab.fixtures.policy import Policy
from interlink_lab.node.hostproc import HostProcess
from interlink_lab.programs import host_environment

GUARD_S = 60.0  # against hangs, never a measure
THREAD = "01900000-1234-7000-8000-123456789abc"
OTHER = "01900000-1234-7000-8000-000000000000"
SERVER = [sys.executable, "-m", "interlink.cli.mcp"]  # no key, no relay: hooks are answered all the same


class Thread:
    """One fixture, and what it reported."""

    def __init__(self, folder: Path, group: anyio.abc.TaskGroup) -> None:
        self.events: list[dict[str, Any]] = []
        self._more = asyncio.Event()
        self.home = folder / "bob.work" / ".codex"
        self.program = folder / "bob.work" / ".codex-cli" / "bin" / "codex"
        self._env = host_environment(folder / "home", "http://127.0.0.1:9", "bob")
        self._folder = folder
        self._group = group
        self.host: HostProcess

    async def start(self, **config: Any) -> None:
        policy = Policy(fetch=False).data()
        config = {"kind": "codex", "session": THREAD, "policy": policy, "server": SERVER, **config}
        self.host = HostProcess("bob", self._folder, self._env, config, self._take)
        await self.host.start(self._group)
        await self.host.call("idle")

    async def idle(self) -> None:
        while not await self.host.call("idle"):
            await self._more.wait()  # an event tells of each change
            self._more.clear()

    async def seen(self, kind: str, count: int = 1, **data: Any) -> None:
        while len(self.of(kind, **data)) < count:
            await self._more.wait()
            self._more.clear()

    def _take(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        self._more.set()

    def of(self, kind: str, **data: Any) -> list[dict[str, Any]]:
        return [e for e in self.events if e["kind"] == kind and data.items() <= e.items()]

    def hooks(self) -> list[str]:
        return [e["hook"] for e in self.of("hook")]

    async def queue(self, text: str, *more: str) -> None:
        """Run the program as the product does."""
        argv = [str(self.program), "queue", "--thread", THREAD, f"--message={text}", *more]
        await anyio.run_process(argv, env={**os.environ, "CODEX_HOME": str(self.home)})


@asynccontextmanager
async def a_thread(folder: Path, **config: Any) -> AsyncIterator[Thread]:
    async with asyncio.timeout(GUARD_S), anyio.create_task_group() as group:
        thread = Thread(folder, group)
        await thread.start(**config)
        try:
            yield thread
        finally:
            await thread.host.end()


def under(folder: Path, case: Callable[[Thread], Awaitable[None]], **config: Any) -> None:
    async def run() -> None:
        async with a_thread(folder, **config) as thread:
            await case(thread)

    asyncio.run(run())


@pytest.mark.req("X1", "H12", "H14")
def test_hooks_bind_and_the_queue_runs_one_turn_a_message_in_order(tmp_path: Path) -> None:
    async def case(thread: Thread) -> None:
        assert thread.of("start", party="bob.server") and not thread.hooks()  # the server runs, unbound
        await the_hooks_of_the_shipped_config(thread)
        assert not thread.of("hook.failed")
        await a_queue_behind_a_turn_and_an_interrupt(thread)

    under(tmp_path, case)


async def the_hooks_of_the_shipped_config(thread: Thread) -> None:
    [server] = thread.host.pids("server")
    passed = Path(f"/proc/{server}/environ").read_bytes().split(b"\0")
    assert f"CODEX_HOME={thread.home}".encode() in passed
    assert b"INTERLINK_URL=http://127.0.0.1:9" in passed
    await thread.host.call("turn")
    await thread.seen("hook", hook="Stop")
    await thread.host.call("turn")
    await thread.seen("hook", 2, hook="Stop")
    assert thread.hooks() == ["SessionStart", "UserPromptSubmit", "Stop", "UserPromptSubmit", "Stop"]
    await thread.host.call("send", to="alice", text="[[m:1]]")  # refused: there is no key
    assert thread.hooks()[5:] == ["PreToolUse"]


async def a_queue_behind_a_turn_and_an_interrupt(thread: Thread) -> None:
    texts = ["first", "--second\nline", '[interlink] receive_messages(notification_id="ab12") "$HOME"']
    await thread.host.call("turn", busy_s=GUARD_S)
    await thread.seen("turn", 3, cause="user")
    for text in texts:
        await thread.queue(text)
    assert await thread.host.call("queued") == texts
    assert not thread.of("turn", cause="queue")
    await thread.host.call("interrupt")
    await thread.seen("turn.end", interrupted=True)
    await thread.queue("last")
    assert await thread.host.call("idle")
    assert not thread.of("turn", cause="queue")  # paused
    await thread.host.call("turn")
    await thread.seen("turn.end", 4, cause="queue")
    assert [e["text"] for e in thread.of("wake")] == [*texts, "last"]
    assert [e["cause"] for e in thread.of("turn")][2:] == ["user", "user", "queue", "queue", "queue", "queue"]
    await thread.seen("queue", 4)
    calls = thread.of("queue", outcome="ok", session=THREAD, wrong="")
    assert [c["notice"] for c in calls] == ["", "", "ab12", ""]
    assert thread.hooks().count("UserPromptSubmit") == 8


@pytest.mark.req("H10")
def test_an_unloaded_or_killed_thread_keeps_its_queue(tmp_path: Path) -> None:
    async def case(thread: Thread) -> None:
        await thread.host.call("turn")
        await thread.idle()
        await thread.host.call("unload")
        await thread.seen("exit", party="bob.server", code=0)
        await thread.queue("stored")
        assert await thread.host.call("queued") == ["stored"]
        await thread.queue("wakes it", "--resume")
        await thread.seen("turn.end", 2, cause="queue")
        assert [e["text"] for e in thread.of("wake")] == ["stored", "wakes it"]
        assert thread.hooks().count("SessionStart") == 2
        assert len(thread.of("start", party="bob.server")) == 2
        await a_kill_amid_a_turn_pauses(thread)

    under(tmp_path, case, version="0.171.0")


async def a_kill_amid_a_turn_pauses(thread: Thread) -> None:
    await thread.host.call("turn", busy_s=GUARD_S)
    await thread.seen("turn", 2, cause="user")
    await thread.queue("left")
    await thread.seen("queue", 3)
    os.kill(thread.host.pids("host")[0], signal.SIGKILL)
    await thread.seen("exit", party="bob.host", code=-signal.SIGKILL)
    await thread.start(version="0.171.0")
    await thread.seen("queue", 3)
    assert await thread.host.call("idle") and len(thread.of("wake")) == 2
    await thread.host.call("turn")
    await thread.seen("wake", text="left")
    assert len(thread.of("queue")) == 3  # each call is told once


# --- the program alone ------------------------------------------------------------------------------------


@pytest.fixture
def codex(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    codex_program.install(str(tmp_path), str(home))
    for thread, ephemeral in ((THREAD, False), (OTHER, True)):
        state = {"ephemeral": ephemeral, "loaded": True}
        (home / f"thread-{thread}.json").write_text(json.dumps(state), "utf-8")
    return tmp_path


def queue(folder: Path, *argv: str, home: str = "home") -> tuple[int, str]:
    """(exit code, standard error)."""
    env = {"CODEX_HOME": str(folder / home), "PATH": os.environ["PATH"]}
    done = subprocess.run([folder / "bin" / "codex", "queue", *argv], env=env, capture_output=True, text=True)
    return done.returncode, done.stderr


@pytest.mark.req("H10", "H11", "H14")
def test_the_program_answers_as_codex_does(codex: Path) -> None:
    unknown = THREAD.replace("1234", "9999")
    assert queue(codex, "--thread", THREAD, "--message=--foo bar") == (0, "")
    rows = (codex / "home" / "queue.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(row)["text"] for row in rows] == ["--foo bar"]
    for argv, code, words in (
        (["--thread", THREAD, "--message", "--foo"], 2, "unexpected argument '--foo'"),
        (["--thread", THREAD, "--message="], 2, "a value is required"),
        (["--thread", THREAD], 2, "--message <TEXT>"),
        (["--thread", THREAD, "--message=x", "--resume"], 2, "unexpected argument '--resume'"),
        (["--thread", "a-name", "--message=x"], 1, "No active session found matching 'a-name'."),
        (["--thread", unknown, "--message=x"], 1, f"no rollout found for thread id {unknown}"),
        (["--thread", OTHER, "--message=x"], 1, "ephemeral thread does not support"),
    ):
        found = queue(codex, *argv)
        assert found[0] == code and words in found[1], (argv, found)
    assert "no rollout" in queue(codex, "--thread", THREAD, "--message=x", home="another")[1]
    assert len((codex / "home" / "queue.jsonl").read_bytes().splitlines()) == 1


def test_the_program_follows_its_script(codex: Path) -> None:
    argv = ["--thread", THREAD, "--message=x"]
    assert queue(codex, *argv)[0] == 0
    codex_program.script(str(codex), ["locked", "7 Error: of no kind", "killed", "real"])
    found = [queue(codex, *argv) for _ in range(5)]
    assert [code for code, _ in found] == [1, 7, -signal.SIGKILL, 0, 0]
    assert [text for _, text in found[:2]] == ["Error: database is locked\n", "Error: of no kind\n"]
    calls = [json.loads(line) for line in (codex / "calls.jsonl").read_text("utf-8").splitlines()]
    assert [c["outcome"] for c in calls] == ["ok", "failed", "failed", "killed", "ok", "ok"]
    with pytest.raises(ValueError, match="no answer"):
        codex_program.script(str(codex), ["whatever"])


@pytest.mark.parametrize("name", codex_program.WARNINGS)
def test_the_program_warns_and_takes_the_text(codex: Path, name: str) -> None:
    codex_program.script(str(codex), [name])
    code, text = queue(codex, "--thread", THREAD, "--message=x")
    assert code == 0 and f"Warning: message was queued, but could not resume thread {THREAD}: " in text
    assert len((codex / "home" / "queue.jsonl").read_bytes().splitlines()) == 1


def ignored(pid: int) -> int:
    """The signals that a process ignores, one bit each."""
    found = re.search(r"^SigIgn:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text("ascii"), re.MULTILINE)
    assert found is not None
    return int(found[1], 16)


def test_a_hanging_program_does_not_end_by_sigterm(codex: Path) -> None:
    codex_program.script(str(codex), ["hang"])
    process = subprocess.Popen([codex / "bin" / "codex", "queue", "--thread", THREAD, "--message=x"])
    deadline = time.monotonic() + GUARD_S
    while not (codex / "calls.jsonl").exists() or not ignored(process.pid) & 1 << signal.SIGTERM - 1:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.terminate()
    process.kill()
    assert process.wait(GUARD_S) == -signal.SIGKILL
