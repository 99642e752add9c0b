"""The trust gate and the replay memory, with messages that the lab makes itself."""

from interlink_lab.fixtures.policy import Policy
from interlink_lab.run import Run
from interlink_lab.scenarios.base import scenario
from interlink_lab.topology import HostSpec, Topology, two_hosts

ONE_IDENTITY = Topology(
    hosts=(
        HostSpec(name="alice", trusts=("bob",)),
        HostSpec(name="bob", trusts=("alice",)),
        HostSpec(name="bob2", trusts=("alice",), identity="bob"),
    )
)


@scenario(
    "gate", "strangers, forgeries, copies, collisions, copies for another session, also after a kill", ONE_IDENTITY
)
async def gate(run: Run) -> None:
    alice, bob, other = run.host("alice"), run.host("bob"), run.host("bob2")
    await alice.raw_send(bob, "who am I", stranger=True)
    await alice.raw_send(bob, "not what was signed", tamper=True)
    first = await alice.raw_send(bob, "once", copies=3)
    await run.event("record", party="bob", msg_id=first["msg_id"])
    await alice.raw_again(bob, first, sessions=[bob.session, other.session])
    await alice.raw_send(bob, "another text under a known id", fields={"msg_id": first["msg_id"]})
    await run.settled()
    for host in (bob, other):
        await host.kill("server")
        await run.event("exit", party=f"{host.name}.server")
        await host.connect()
    await alice.raw_again(bob, first, sessions=[bob.session, other.session])
    await run.quiet(1.0)
    await alice.send(bob, "the end", session=bob.session)
    await alice.send(bob, "the end", session=other.session)
    await run.settled()


@scenario(
    "exact-acks",
    "small pages, each acknowledged by its receipts alone; a kill after an acknowledgement",
    two_hosts(),
)
async def exact_acks(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    await bob.set_policy(Policy(fetch=False))
    for _ in range(run.times(6, 40)):
        await alice.send(bob)
    await run.count("record", run.times(6, 40), party="bob", since=0.0, new=True)
    await bob.call("fetch_all")
    await bob.set_policy(Policy(limit=2))
    since = run.history.now
    await bob.turn(look=True)
    await run.event("ack", party="bob", since=since)
    await bob.kill("server")
    await run.event("exit", party="bob.server")
    await bob.idle()
    await bob.connect()
    await bob.call("fetch_all")
    await bob.turn(look=True)
    await run.settled()


@scenario(
    "sender-killed", "what waits for a relay survives its sender's server, and the relay's own end", two_hosts()
)
async def sender_killed(run: Run) -> None:
    alice, bob, relay = run.host("alice"), run.host("bob"), run.relay()
    await relay.kill()
    for _ in range(run.times(3, 10)):
        await alice.send(bob, session=bob.session)
    await alice.kill("server")
    await run.event("exit", party="alice.server")
    await relay.start()
    await alice.connect()
    await run.settled()
    await bob.disconnect()
    for _ in range(run.times(3, 10)):
        await alice.send(bob, session=bob.session)
    await relay.kill()
    await relay.start()
    await bob.connect()
    await run.settled()
