"""Waking: one listener a session, one notice a reservation, nobody woken for what is consumed."""

from interlink_lab.fixtures.policy import Policy
from interlink_lab.run import Run
from interlink_lab.scenarios.base import scenario
from interlink_lab.scenarios.identities import shown
from interlink_lab.topology import FAST, Topology, two_hosts


@scenario("pile-up", "every Stop starts one more listener: one listens, one wake comes", two_hosts())
async def pile_up(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    for _ in range(run.times(4, 20)):
        await bob.turn()
        await bob.idle()
    await bob.armed()
    for _ in range(run.times(2, 10)):
        await alice.send(bob)
        await run.settled()
        await bob.armed()


@scenario("passed-over", "a notice whose messages were consumed meanwhile wakes nobody", two_hosts())
async def passed_over(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    for _ in range(run.times(1, 5)):
        await bob.armed()
        await bob.kill("listener")
        since = run.history.now
        await alice.send(bob)
        await run.event("inbox", party="bob", since=since)
        await bob.turn(look=True, rest_s=2.5)
        await run.settled()
        await bob.armed()
        await run.quiet(2.0)
    await alice.send(bob)
    await run.settled()


@scenario(
    "nobody-listens", "mail beside no listener: said so by status and doctor; the next one wakes", two_hosts()
)
async def nobody_listens(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    for _ in range(run.times(1, 5)):
        await bob.armed()
        await bob.idle()
        await bob.kill("listener")
        await bob.unarmed()
        since = run.history.now
        await alice.send(bob)
        await run.event("inbox", party="bob", since=since)
        seen = await shown(bob, bob.session)
        said = seen.get("listener_armed") is False and seen.get("unread") == 1
        run.claim("status-says-it", said, f"no listener, one unread: {seen}")
        found: str = (await bob.command("interlink", "doctor"))["out"]
        run.claim("doctor-says-it", "no listener has taken it" in found, f"doctor: {found[-600:]}")
        woken = run.history.of("wake", party="bob", since=since)
        run.claim("nobody-wakes-it", not woken, f"{len(woken)} wakes with no listener")
        await bob.whole_turn()  # its Stop starts the next one
        await run.event("wake", party="bob", since=since)
        await run.settled()


@scenario("model-fails", "a turn that the model fails, also the woken one, arms again by StopFailure", two_hosts())
async def model_fails(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    for count in (1, 2) * run.times(1, 5):
        await bob.armed()
        await bob.idle()
        since = run.history.now
        await bob.call("fail", count=count)
        await alice.send(bob)
        await run.count("turn.end", count, party="bob", since=since, failed=True)
        await run.settled()
        hooks = {e["hook"] for e in run.history.of("start", party="bob.listener", since=since)}
        run.claim("armed-again", "StopFailure" in hooks, f"listeners were started by {sorted(hooks)}")
        woken = run.history.of("wake", party="bob", since=since)
        run.claim("told-again", len(woken) > count, f"{len(woken)} wakes, of which {count} failed")


@scenario(
    "reservation",
    "unread mail is announced again by the schedule, and no arrival brings it forward",
    two_hosts(),
)
async def reservation(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    await bob.set_policy(Policy(ack="never"))
    since = run.history.now
    await alice.send(bob, "first")
    for number in range(run.times(2, 6)):
        await run.count("inbox", number + 1, party="bob", since=since)
        await alice.send(bob, "comes during a reservation")
        await run.quiet(0.3)
    await run.quiet(1.5)
    await bob.set_policy(Policy())
    await run.settled()


@scenario(
    "host-killed", "a killed host's listener ends and consumes nothing; the resumed host is woken", two_hosts()
)
async def host_killed(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    for _ in range(run.times(1, 5)):
        await bob.armed()
        await bob.kill()
        await run.event("exit", party="bob.host")
        await alice.send(bob, session=bob.session)
        await bob.unarmed()
        await bob.start("resume")
        await run.settled()


@scenario("orphan-listener", "a killed host's listener ends by itself", two_hosts(), silent=True)
async def orphan_listener(run: Run) -> None:
    bob = run.host("bob")
    await bob.armed()
    await bob.kill()
    await run.quiet(2.0)


@scenario("listener-faults", "a listener that cannot use its inbox ends, and wakes nobody", two_hosts())
async def listener_faults(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    await bob.armed()
    run.note("fault", id=1, fault="in-the-way", target="bob.files")
    await bob.node.remote.call("file_fault", what="in-the-way", path="inbox")
    await run.event("exit", party="bob.listener")  # its inbox is gone
    await bob.turn()
    await bob.idle()
    await run.quiet(1.0)
    await bob.node.remote.call("file_mend", path="inbox")
    run.note("fault.end", id=1)
    await bob.turn()
    await bob.armed()
    await alice.send(bob)
    await run.settled()


@scenario("slow-handoff", "an acknowledgement that overtakes the end of a handoff stays", two_hosts())
async def slow_handoff(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    await bob.armed()
    await bob.set_policy(Policy(limit=1))
    await bob.disconnect()
    for _ in range(3):
        await alice.send(bob, session=bob.session)
    run.note("fault", id=1, fault="slow-sync", target="bob.server")
    await bob.node.remote.call("bend", sync_ms=700)
    await bob.connect()
    await run.settled()
    await bob.node.remote.call("bend", sync_ms=0)
    run.note("fault.end", id=1)


@scenario(
    "killed-handoff", "a notice that was reserved and not handed over before a kill is sent after it", two_hosts()
)
async def killed_handoff(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    await bob.armed()
    for _ in range(run.times(1, 5)):
        since = run.history.now
        run.note("fault", id=1, fault="slow-sync", target="bob.server")
        await bob.node.remote.call("bend", sync_ms=1500)
        await alice.send(bob)
        await run.event("reservation", party="bob", since=since, state="reserved")
        await bob.kill("server")
        await bob.node.remote.call("bend", sync_ms=0)
        run.note("fault.end", id=1)
        await run.event("exit", party="bob.server", since=since)
        await bob.connect()
        await run.settled()
        await bob.armed()


SLOW = Topology(hosts=two_hosts().hosts, env={**FAST, "INTERLINK_NOTICE_SCHEDULE_S": "60"})


@scenario("kept-reservation", "a server that starts again keeps to the notice that was sent before its end", SLOW)
async def kept_reservation(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    await bob.set_policy(Policy(ack="never"))
    for number in range(run.times(1, 3)):
        since = run.history.now
        await alice.send(bob)
        await run.event("fetch", party="bob", since=since)
        await bob.idle()
        await bob.disconnect()
        await bob.connect()
        await run.event("log", party="bob.server", since=since, event="relay_up")
        await run.quiet(1.5)
        if number % 2 == 0:
            await bob.call("fetch_all")
        await bob.set_policy(Policy())
        await bob.turn(look=True)
        await run.settled()
        await bob.set_policy(Policy(ack="never"))
    await bob.set_policy(Policy())
