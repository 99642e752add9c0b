"""Tasks: progress wakes nobody, a newer update replaces an older one, a result replaces them all."""

import time

from interlink_lab.fixtures.policy import Policy
from interlink_lab.run import Run
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
    alice, bob = run.host("alice"), run.host("bob")
    await alice.armed()
    await alice.set_policy(Policy(fetch=False))
    for status in ("update", "update"):
        await bob.send(alice, status, task_id="t", status=status)
    await run.count("record", 2, party="alice", since=0.0, task="t")
    await run.quiet(2.0)
    await alice.call("fetch_all")
    early = time.time_ns() // 1_000_000
    sent = await bob.send(alice, "the result", task_id="t", status="result")
    await run.event("record", party="alice", msg_id=sent)
    await alice.call("fetch_all")
    fields = {"task_id": "t", "status": "update", "ts": early, "reply_to": f"{bob.key}#{bob.session}"}
    await bob.raw_send(alice, "late", fields=fields)
    await run.count("record", 5, party="alice", since=0.0, task="t")
    await alice.call("fetch_all")
    await alice.set_policy(Policy())
    await alice.turn(look=True)
    await run.settled()
    await alice.armed()
    await run.quiet(2.0)
