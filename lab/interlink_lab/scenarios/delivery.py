"""Delivery between two hosts, and what a host may do with it."""

from interlink_lab.run import Run
from interlink_lab.scenarios.base import scenario
from interlink_lab.topology import FAST, Topology, two_hosts


@scenario("cross-host", "messages in both directions wake idle hosts, are fetched and acknowledged", two_hosts())
async def cross_host(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    for _ in range(run.times(3, 30)):
        await alice.armed()
        await bob.armed()
        await alice.send(bob)
        await bob.send(alice)
        await run.settled()


@scenario("one-message", "one message wakes an idle host", two_hosts())
async def one_message(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    for _ in range(run.times(1, 20)):
        await bob.armed()
        await alice.send(bob)
        await run.settled()


POLL_S = 300
LONG_POLL = Topology(hosts=two_hosts().hosts, env={**FAST, "INTERLINK_POLL_TIMEOUT_MS": str(POLL_S * 1000)})


@scenario("long-poll", "an arrival ends the long poll that waits for it, which would wait for minutes", LONG_POLL)
async def long_poll(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    for _ in range(run.times(2, 20)):
        await bob.armed()
        await alice.send(bob)
        woken = await run.settled(min(run.patience_s, POLL_S / 5))
        run.claim("woken", woken, f"what was sent beside a poll of {POLL_S} s came before its end")


SMALL = Topology(hosts=two_hosts().hosts, env={**FAST, "INTERLINK_POLL_BATCH": "2"})


@scenario("small-batches", "what waits in the relay comes in several batches", SMALL)
async def small_batches(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    await bob.disconnect()
    for _ in range(run.times(6, 60)):
        await alice.send(bob, session=bob.session)
    await bob.connect()
    await run.settled()
