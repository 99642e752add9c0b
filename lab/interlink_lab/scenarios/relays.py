"""Relays that end and come back: nothing is lost, one copy is kept."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import permutations

import anyio

from interlink_lab.handles import RelayHandle
from interlink_lab.run import Run
from interlink_lab.scenarios.base import scenario
from interlink_lab.topology import HostSpec, RelaySpec, Topology, two_hosts

THREE_HOSTS = Topology(
    relays=(RelaySpec(name="r1"), RelaySpec(name="r2")),
    hosts=(
        HostSpec(name="alice", trusts=("bob", "carol")),
        HostSpec(name="bob", trusts=("alice", "carol")),
        HostSpec(name="carol", trusts=("alice", "bob")),
    ),
)


@asynccontextmanager
async def down(run: Run, relay: RelayHandle, sig: str = "KILL") -> AsyncIterator[None]:
    """A relay is down while the block runs, as a fault of the history; it comes back on its address."""
    ident = f"{relay.name}-{len(run.history.events)}"
    since = run.history.now
    run.note("fault", id=ident, fault="relay-down", target=relay.name, lasts=True, signal=sig)
    await relay.signal(sig)
    await run.event("exit", relay.name, since=since)
    yield
    await relay.start()
    run.note("fault.end", id=ident)


async def all_to_all(run: Run) -> None:
    """Each host writes to each other one."""
    for sender, receiver in permutations(run.hosts.values(), 2):
        msg_id = await sender.send(receiver, session=receiver.session)
        run.claim("taken", msg_id is not None, f"{sender.name} to {receiver.name}: taken while a relay is up")


@scenario("federated", "two relays, each dies and comes back: all to all, one copy of each is kept", THREE_HOSTS)
async def federated(run: Run) -> None:
    for _ in range(run.times(1, 6)):
        for name in ("r1", "r2"):
            await all_to_all(run)
            async with down(run, run.relay(name)):
                await all_to_all(run)
                await run.settled()  # the other relay is enough
            await all_to_all(run)
            await run.settled()


@scenario("relay-restart", "the only relay ends at rest and amid a burst, by SIGKILL and by SIGTERM", two_hosts())
async def relay_restart(run: Run) -> None:
    alice, bob, relay = run.host("alice"), run.host("bob"), run.relay()
    for number in range(run.times(1, 8)):
        for sig in ("KILL", "TERM"):
            async with down(run, relay, sig):
                msg_id = await alice.send(bob, session=bob.session)
                said: str = await alice.call("tool", tool="message_status", arguments={"msg_id": msg_id})
                pending = ": pending " in said or "[pending]" in said  # ours, and the Rust system's words
                run.claim("pending", pending, f"without a relay: {said[:120]}")
            await run.settled()
            begun = run.history.now
            async with anyio.create_task_group() as group:
                group.start_soon(_burst, run, f"r{number}-{sig}-")
                await run.count("send.ok", 5, "alice", since=begun)
                async with down(run, relay, sig):
                    await run.count("send.ok", 10, "alice", since=begun)
            await run.settled()


async def _burst(run: Run, prefix: str) -> None:
    bob = run.host("bob")
    await run.host("alice").call(
        "burst", to="bob", session=bob.session, count=20, prefix=prefix, parallel=2, rate=40
    )
