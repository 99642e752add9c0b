"""A Codex host: woken by its queue, whatever the queue program answers, and in whatever state its thread is."""

import json
from typing import Any

import anyio

from interlink_lab.fixtures import codex_program
from interlink_lab.handles import HostHandle
from interlink_lab.history import Event
from interlink_lab.remote import RemoteFailed
from interlink_lab.run import Run
from interlink_lab.scenarios.base import scenario
from interlink_lab.topology import FAST, two_hosts

# Answer of `codex queue` -> words that the saved failure must have. The first are in the short form too.
WAYS = {
    "locked": "database is locked",
    "no-rollout": "no rollout found",
    "hang": "unknown",
    "killed": "137",
    "ephemeral": "ephemeral thread does not support",
    "no-session": "No active session found",
    "embedded": "embedded app server",
    "model": "`model` config override",
    "argument": "unexpected argument",
    "no-message": "required arguments were not provided",
    "empty": "a value is required",
    "queued-hang": "unknown",
    "1 Error: [[not a token]] \x1b[31m": "Error",
}
SHORT_WAYS = 4
REFUSED = ("no-rollout", "ephemeral", "no-session", "argument", "no-message", "empty")  # for good
CALLS_LATE_S = 10.0


async def status(host: HostHandle, msg_id: str | None) -> str:
    """The state that `message_status` gives."""
    text: str = await host.call("tool", tool="message_status", arguments={"msg_id": msg_id})
    return text.split(": ", 1)[1].split(" ", 1)[0]


async def failures(host: HostHandle) -> list[dict[str, Any]]:
    """What `failed_deliveries` lists."""
    found: list[dict[str, Any]] = json.loads(
        await host.call("tool", tool="failed_deliveries", arguments={"action": "list"})
    )
    return found


def calls(run: Run, host: HostHandle, since: float, **data: Any) -> list[Event]:
    """Calls of the host's `codex queue` since then."""
    return run.history.of("queue", party=host.name, since=since, **data)


@scenario("codex-cross-host", "messages in both directions between a Claude and a Codex host", two_hosts("codex"))
async def codex_cross_host(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    for _ in range(run.times(3, 30)):
        await alice.armed()
        await alice.send(bob)
        await bob.send(alice)
        await run.settled()


@scenario(
    "codex-queue-failures",
    "`codex queue` fails in each way: the failure is shown, nothing is lost, the schedule goes on",
    two_hosts("codex"),
)
async def codex_queue_failures(run: Run) -> None:
    bob = run.host("bob")
    for way, words in list(WAYS.items())[: run.times(SHORT_WAYS, len(WAYS))]:
        await _fails(run, bob, way, words)
    await bob.call("answers", answers=["no-rollout"])
    failed = await _sent_and_failed(run, bob, "by hand")
    read: str = await bob.call("tool", tool="failed_deliveries", arguments={"action": "read", "id": failed["id"]})
    run.claim("failed-read", "receive_messages" in read and "[[m:" not in read, f"action=read: {read[:200]}")
    await bob.call("answers", answers=["real"])
    await _recovered(run, bob, "by hand")


async def _sent_and_failed(run: Run, bob: HostHandle, way: str) -> dict[str, Any]:
    """A message whose handoff failed: its saved failure. Claims that the states are honest."""
    msg_id = await run.host("alice").send(bob, f"while {way[:20]!r}".replace("[[", "(("))
    found: list[dict[str, Any]] = await run.until(lambda: failures(bob), f"a saved failure after {way}")
    state = await status(bob, msg_id)
    # What was queued although nobody knew may have been read by now.
    honest = ("delivery_failed", "receiver_acknowledged") if way == "queued-hang" else ("delivery_failed",)
    run.claim("failed-state", state in honest, f"{way}: state {state} with a saved failure")
    run.claim("one-slot", len(found) == 1, f"{way}: {len(found)} saved failures of ordinary notices")
    return found[0]


async def _recovered(run: Run, bob: HostHandle, way: str) -> None:
    """The schedule goes on: the message reaches the agent, and the saved failure is cleared."""
    await run.settled()

    async def cleared() -> bool:
        return not await failures(bob)

    await run.until(cleared, f"no saved failure after {way}")
    await bob.idle()


async def _fails(run: Run, bob: HostHandle, way: str, words: str) -> None:
    since = run.history.now
    await bob.call("answers", answers=[way])
    failed = await _sent_and_failed(run, bob, way)
    run.claim("failed-reason", words in failed["reason"], f"{way}: the reason says {failed['reason'][:200]!r}")
    most = 1 if way in (*REFUSED, *codex_program.KILLED) else 3

    def tries() -> list[Event]:
        return [e for e in calls(run, bob, since) if e["notice"] == failed["msg_id"]]

    with anyio.move_on_after(CALLS_LATE_S):  # what the program wrote down is read a moment later
        while len(tries()) < most:
            await anyio.sleep(0.05)
    tried = tries()
    run.claim("tries", len(tried) == most, f"{way}: {len(tried)} calls for a notice, {most} are due")
    await bob.call("answers", answers=["real"])
    if way == "queued-hang":  # nothing may be left to hand over: the next message's success clears the failure
        await run.settled()
        await run.host("alice").send(bob)
    await _recovered(run, bob, way)


@scenario(
    "codex-queue-warnings",
    "`codex queue --resume` warns and ends with 0: the notice is queued, and nothing is saved as failed",
    two_hosts("codex", {"options": {"version": "0.171.0"}}, env={**FAST, "INTERLINK_NOTICE_SCHEDULE_S": "600"}),
)
async def codex_queue_warnings(run: Run) -> None:
    for way in codex_program.WARNINGS:
        await _warned(run, run.host("alice"), run.host("bob"), way)


async def _warned(run: Run, alice: HostHandle, bob: HostHandle, way: str) -> None:
    since = run.history.now
    await bob.call("answers", answers=[way])
    await bob.turn(held=True)  # what is queued waits, so that the state can be seen
    msg_id = await alice.send(bob)
    await run.until(lambda: calls(run, bob, since, answer=way, taken=True), f"a call that ends with {way}")

    async def queued() -> bool:
        return await status(bob, msg_id) == "host_queued"

    await run.until(queued, f"host_queued after {way}")
    saved = await failures(bob)
    run.claim("warned-is-queued", not saved, f"{way}: {len(saved)} saved failures")
    asked = calls(run, bob, since)
    run.claim("warned-once", len(asked) == 1, f"{way}: {len(asked)} calls for a notice, 1 is due")
    await bob.call("release")
    await run.settled()
    await bob.idle()


@scenario(
    "codex-unloaded-and-paused",
    "a thread that is busy, interrupted, not loaded or killed: what is queued runs later, in order",
    two_hosts("codex"),
)
async def codex_unloaded_and_paused(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    for _ in range(run.times(1, 5)):
        await _busy(run, alice, bob)
        await _interrupted(run, alice, bob)
        await _unloaded(run, alice, bob)
    await _host_killed(run, alice, bob)


async def _busy(run: Run, alice: HostHandle, bob: HostHandle) -> None:
    since = run.history.now
    await bob.turn(busy_s=1.5)
    await alice.send(bob)
    await run.until(lambda: calls(run, bob, since, outcome="ok"), "a queued notice")
    await run.settled()
    await bob.idle()
    ended = run.history.of("turn.end", party="bob", since=since, cause="user")[0]
    woken = run.history.of("wake", party="bob", since=since)[0]
    run.claim("queued-behind-a-turn", woken["t"] >= ended["t"], "a queued turn runs after the busy one")


async def _interrupted(run: Run, alice: HostHandle, bob: HostHandle) -> None:
    await bob.turn(busy_s=600)
    await run.event("turn", "bob", cause="user", since=run.history.now - 1)
    await bob.call("interrupt")
    since = run.history.now
    msg_id = await alice.send(bob)
    await run.until(lambda: len(calls(run, bob, since, outcome="ok")) >= 2, "the schedule beside a paused queue")
    state = await status(bob, msg_id)
    run.claim("no-more-than-queued", state == "host_queued", f"state {state} although no turn ran")
    ran = run.history.of("turn", party="bob", since=since)
    run.claim("paused", not ran, "no turn runs while the queue is paused")
    await bob.whole_turn()
    await run.settled()
    await bob.idle()


async def _unloaded(run: Run, alice: HostHandle, bob: HostHandle) -> None:
    await bob.call("unload")
    since = run.history.now
    # It said goodbye, so that its session has to be named.
    msg_id = await alice.send(bob, session=bob.session)
    run.claim("accepted", msg_id is not None, "a message to an unloaded thread is taken")
    await bob.call("load")
    try:
        text = await bob.call("tool", tool="receive_messages", arguments={})
    except RemoteFailed as exc:
        text = str(exc)
    run.claim("unbound", "not bound" in text, f"a loaded thread without a turn answers {text[:120]!r}")
    stored = run.history.of("record", party="bob", since=since, new=True)
    run.claim("unbound-polls-nothing", not stored, "nothing is stored before a hook bound the thread")
    await bob.whole_turn()
    await run.settled()
    await bob.idle()


async def _host_killed(run: Run, alice: HostHandle, bob: HostHandle) -> None:
    """A host that is killed amid a turn leaves its queue paused; the user's next turn runs it."""
    since = run.history.now
    await bob.turn(busy_s=600)
    await alice.send(bob)
    await run.until(lambda: calls(run, bob, since, outcome="ok"), "a queued notice")
    await bob.kill()
    await run.event("exit", "bob.host", since=since)
    await bob.start("resume")
    await run.settled()


@scenario(
    "codex-ephemeral",
    "a thread that cannot be queued to: failures are shown, and its mail is there at the next turn of the user",
    two_hosts("codex", {"options": {"ephemeral": True}}),
)
async def codex_ephemeral(run: Run) -> None:
    bob = run.host("bob")
    for _ in range(run.times(1, 5)):
        failed = await _sent_and_failed(run, bob, "ephemeral")
        run.claim("failed-reason", "ephemeral" in failed["reason"], f"the reason says {failed['reason'][:200]!r}")
        await bob.whole_turn(look=True)
        await run.settled()


@scenario(
    "codex-orphan",
    "a server that is killed while its queue program hangs leaves no such program behind",
    two_hosts("codex", env={**FAST, "INTERLINK_CODEX_TIMEOUT_S": "60"}),
)
async def codex_orphan(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    for _ in range(run.times(1, 5)):
        await bob.call("answers", answers=["hang"])
        since = run.history.now
        await alice.send(bob)
        await run.event("reservation", party="bob", since=since, state="reserved")
        await run.quiet(1.0)  # the program has started
        await bob.kill("server")
        await run.event("exit", party="bob.server", since=since)
        await bob.call("answers", answers=["real"])
        await bob.connect()
        await run.settled()
