"""Delivery between two hosts, and what a host may do with it."""

from interlink_lab.run import Run
from interlink_lab.scenarios.base import scenario
from interlink_lab.topology import two_hosts


@scenario("cross-host", "messages in both directions wake idle hosts, are fetched and acknowledged", two_hosts())
async def cross_host(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    for _ in range(run.times(3, 30)):
        await alice.armed()
        await bob.armed()
        await alice.send(bob)
        await bob.send(alice)
        await run.settled()
