"""Tasks: progress wakes nobody, a newer update replaces an older one, a result replaces them all."""

import time

from interlink_lab.fixtures.policy import Policy
from interlink_lab.run import HostHandle, Run
from interlink_lab.scenarios.base import scenario
from interlink_lab.topology import two_hosts


@scenario("delegation", "a task with progress and a result; only what deserves it wakes", two_hosts())
async def delegation(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    await bob.set_policy(Policy(execute=True, updates=run.times(3, 10)))
    for number in range(run.times(1, 5)):
        await alice.armed()
        await alice.send(bob, "please build", task_id=f"task-{number}")
        await run.event("send.ok", party="bob", status="result", task_id=f"task-{number}")
        await run.settled()


@scenario("late-progress", "progress alone, or behind its result, wakes nobody and is not shown", two_hosts())
async def late_progress(run: Run) -> None:
    for number in range(run.times(1, 5)):
        await _late_progress(run, run.host("alice"), run.host("bob"), f"t{number}")


async def _late_progress(run: Run, alice: HostHandle, bob: HostHandle, task: str) -> None:
    await alice.armed()
    await alice.set_policy(Policy(fetch=False))
    for status in ("update", "update"):
        await bob.send(alice, status, task_id=task, status=status)
    await run.count("record", 2, party="alice", since=0.0, task=task)
    await run.quiet(2.0)
    await alice.call("fetch_all")
    early = time.time_ns() // 1_000_000
    sent = await bob.send(alice, "the result", task_id=task, status="result")
    await run.event("record", party="alice", msg_id=sent)
    await alice.call("fetch_all")
    await _comes_late(run, alice, bob, task, early)
    await alice.set_policy(Policy())
    await alice.turn(look=True)
    await run.settled()
    await alice.armed()
    await run.quiet(2.0)


async def _comes_late(run: Run, alice: HostHandle, bob: HostHandle, task: str, ts: int) -> None:
    """Progress that was signed before the end of its task and comes behind it; then alice reads all there is."""
    fields = {"task_id": task, "status": "update", "ts": ts, "reply_to": f"{bob.key}#{bob.session}"}
    sent = await bob.raw_send(alice, "late", fields=fields)
    await run.event("record", party="alice", msg_id=sent["msg_id"])
    await alice.call("fetch_all")


@scenario(
    "task-ends", "a question and each end of a task wake; progress behind any end wakes nobody", two_hosts()
)  # fmt: skip
async def task_ends(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    for number in range(run.times(1, 5)):
        for status in ("failed", "canceled", "result"):
            task = f"{status}-{number}"
            await alice.send(bob, "please build", task_id=task)
            await run.settled()
            early = time.time_ns() // 1_000_000
            await bob.send(alice, "at it", task_id=task, status="update")
            asked = await bob.send(alice, "which branch?", task_id=task, status="needs_input")
            await run.settled()
            await alice.send(bob, "main", task_id=task, in_reply_to=asked)
            await run.settled()
            await bob.send(alice, "the end", task_id=task, status=status)
            await run.settled()
            await alice.armed()
            since = run.history.now
            await _comes_late(run, alice, bob, task, early)
            await run.quiet(1.5)
            told = run.history.of("inbox", "wake", party="alice", since=since)
            run.claim("late-wakes-nobody", not told, f"{len(told)} notices or wakes behind `{status}`")
