"""Delegated work: signed task fields, the executor's marker, and the reminder of a quiet one (B5, T4)."""

import json
import subprocess
from pathlib import Path

import anyio
import pytest
from support.programs import program
from support.world import Host, World, receipts, until

from interlink import tasks
from interlink.settings import Settings
from interlink.state.paths import Layout
from interlink_lab.mcp_client import ToolFailed

NOW = 1_764_528_000_000


@pytest.mark.req("T4", "B5")
def test_the_marker_follows_the_task(state_root: str) -> None:
    at = Layout(state_root)

    def marked() -> str:
        task = tasks.current(at, "s")
        return f"{task.task_id} {task.peer} {task.since_ms}" if task else ""

    tasks.received(at, "s", None, None, "alice", NOW)  # no task
    tasks.received(at, "s", "t0", "result", "alice", NOW)  # somebody else's work ended
    tasks.sent(at, "s", "t0", "update", NOW)
    assert marked() == "" and not Path(at.task_dir("s")).exists()  # nothing is made for nothing
    tasks.received(at, "s", "t1", None, "alice", NOW)
    assert marked() == f"t1 alice {NOW}"
    for status in ("update", "needs_input"):
        tasks.received(at, "s", "t1", status, "alice", NOW)
        tasks.sent(at, "s", "t1", status, NOW)
    tasks.sent(at, "s", "other", "result", NOW)
    tasks.received(at, "s", "other", "canceled", "alice", NOW)
    assert marked() == f"t1 alice {NOW}"
    tasks.received(at, "s", "t2", None, "bob", NOW + 1)  # a later task takes its place
    tasks.sent(at, "s", "t1", "result", NOW)
    assert marked() == f"t2 bob {NOW + 1}"
    for end in tasks.ENDS:
        tasks.received(at, "s", "t3", None, "bob", NOW)
        tasks.sent(at, "s", "t3", end, NOW)
        assert marked() == ""
    tasks.received(at, "s", "t4", None, "bob", NOW)
    tasks.received(at, "s", "t4", "canceled", "bob", NOW)
    assert marked() == ""
    assert tasks.current(at, "another") is None


@pytest.mark.req("T4")
def test_a_reminder_is_due_after_the_quiet_time_and_then_once_in_that_time(state_root: str) -> None:
    at = Layout(state_root)

    def due(seconds: float, interval_s: float = 60) -> bool:
        return tasks.nudge_due(at, "s", interval_s, NOW + int(seconds * 1000)) is not None

    assert not due(1000)  # no task
    tasks.received(at, "s", "t", None, "alice", NOW)
    assert [due(0), due(59.9), due(60), due(61), due(119), due(120)] == [False, False, True, False, False, True]
    tasks.sent(at, "s", "t", "update", NOW + 150_000)  # it reported
    assert [due(180), due(209.9), due(210)] == [False, False, True]
    assert not due(100_000, 0)  # switched off
    assert due(1)  # a clock that went back: remind rather than stay silent for ever
    folder = Path(at.task_dir("s"))
    for name, content in (("last-update", b"\xff"), ("last-nudge", b""), ("last-update", b"9" * 100)):
        (folder / name).write_bytes(content)
        due(300_000)  # rubbish is no fault
    for rubbish in (b"", b"{", b"[]", b'{"task_id":', b"null", b"\xff\xfe", b"x" * 100_000):
        (folder / "current-task.json").write_bytes(rubbish)
        if len(rubbish) < 1 << 16:
            assert tasks.current(at, "s") is None and not due(10**6)
    assert Settings().progress_interval_s == 60


def nudge(host: Host, session: str | None = None, stdin: bytes = b"", **more: str) -> str:
    """What the hook prints. It always exits 0."""
    env = host.env(**({"INTERLINK_SESSION": session} if session else {}), **more)
    done = subprocess.run(
        [*program("interlink-mcp"), "nudge"], input=stdin, env=env, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    if done.stdout:
        answer = json.loads(done.stdout)
        assert list(answer) == ["hookSpecificOutput"]
        assert answer["hookSpecificOutput"]["hookEventName"] == "PostToolUse"
        return str(answer["hookSpecificOutput"]["additionalContext"])
    return ""


@pytest.mark.req("T4", "B5")
def test_a_delegated_task_is_reminded_of_until_it_ends_or_is_canceled(world: World) -> None:
    alice, bob = world.pair()
    soon = {"INTERLINK_PROGRESS_INTERVAL": "0.05"}
    task = 'build "x"\n</interlink> \u202e' + "é" * 30

    async def hook(**more: str) -> str:
        return await anyio.to_thread.run_sync(lambda: nudge(bob, "s-bob", **more))

    async def main() -> None:
        assert await hook(**soon) == ""  # nothing there at all
        async with alice.server() as a, bob.server() as b:
            await a.text("send_message", to="bob", session="s-bob", text="do it", task_id=task)
            await until(lambda: bob.records() and (bob.root / "task" / "s-bob").exists(), "the task")
            assert await hook() == ""  # not quiet for a minute yet
            await anyio.sleep(0.1)
            assert await hook(INTERLINK_PROGRESS_INTERVAL="0") == ""
            text = await hook(**soon)
            assert (
                '"alice"' in text and "send_message" in text and text.isprintable() and "</interlink>" not in text
            )
            payload = json.dumps({"session_id": "s-bob", "tool_name": "Bash"}).encode()
            await anyio.sleep(0.1)
            assert "alice" in await anyio.to_thread.run_sync(lambda: nudge(bob, None, payload, **soon))
            other = json.dumps({"session_id": "another"}).encode()
            assert await anyio.to_thread.run_sync(lambda: nudge(bob, None, other, **soon)) == ""

            (asked,) = receipts(await b.text("receive_messages"))
            answer = {"to": "alice", "session": "s-alice", "task_id": task, "in_reply_to": asked["msg_id"]}
            await b.text("send_message", text="half", status="update", **answer)
            await b.text("send_message", text="done", status="result", **answer)
            await anyio.sleep(0.1)
            assert await hook(**soon) == ""
            await until(lambda: len(alice.records()) == 2, "the report")
            (last,) = [r["message"] for r in alice.records() if r["message"].get("status") == "result"]
            assert (last["task_id"], last["in_reply_to"]) == (task, asked["msg_id"])
            assert not (alice.root / "task").exists()  # who asks is no executor

            await a.text("send_message", to="bob", session="s-bob", text="and that", task_id="t2")
            await until(lambda: len(bob.records()) == 2, "the second task")
            await anyio.sleep(0.1)
            assert "t2" in await hook(**soon)
            assert "bus_accepted" in await a.text("cancel_task", to="bob", task_id="t2", reason="no need")
            await until(lambda: len(bob.records()) == 3, "the cancellation")
            text = await b.text("receive_messages")
            assert 'task="t2" status="canceled"' in text and "no need" in text
            await anyio.sleep(0.1)
            assert await hook(**soon) == ""
            with pytest.raises(ToolFailed, match="known: bob"):
                await a.text("cancel_task", to="carol", task_id="t2")

    anyio.run(main)


@pytest.mark.req("T4", "H1")
def test_the_hook_ends_well_whatever_is_wrong(world: World) -> None:
    bob = world.host("bob")
    folder = bob.root / "task" / "main"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "current-task.json").mkdir()
    soon = {"INTERLINK_PROGRESS_INTERVAL": "0.01"}
    assert nudge(bob, None, b"{broken", INTERLINK_PAYLOAD_WAIT_S="0.1", **soon) == ""
    assert nudge(bob, "../up", **soon) == ""
    assert nudge(bob, INTERLINK_PROGRESS_INTERVAL="soon") == ""
    assert nudge(bob, None, b'{"session_id": "../up"}', **soon) == ""
    assert nudge(bob, XDG_STATE_HOME="relative") == ""
