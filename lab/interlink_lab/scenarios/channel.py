"""A Claude host whose notices are pushed through its channel; and one whose channel is off, as real ones are."""

from interlink_lab.fixtures.policy import Policy
from interlink_lab.nemesis import Fault, at, begin
from interlink_lab.run import Run
from interlink_lab.scenarios.base import scenario
from interlink_lab.scenarios.storage import STORAGE, failing_storage, look
from interlink_lab.topology import two_hosts


@scenario(
    "channel",
    "pushes wake a host with a channel, also after its server was killed beside mail",
    two_hosts(bob={"channel": "on"}),
)
async def channel_on(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    ended = at(run, "exit", "bob.listener")
    for _ in range(run.times(2, 20)):
        await alice.armed()
        await alice.send(bob)
        await bob.send(alice)
        await run.settled()
        await bob.set_policy(Policy(fetch=False))
        pushed = at(run, "push", "bob.host")
        await alice.send(bob)
        await pushed
        killed = await begin(run, Fault("kill-server", "bob.server"))
        again = at(run, "push", "bob.host")
        await killed.end()  # connects the next one
        await again
        await look(run, "bob")
        await run.settled()
    # C10: it has nothing to wait for.
    first = await ended
    run.claim("listener-leaves", first["code"] == 0, f"a listener beside a channel ended with {first['code']}")


@scenario(
    "channel-off", "pushes that a host drops: told by the schedule, shown as sent and no more, nothing is lost",
    two_hosts(bob={"channel": "off"}),
)  # fmt: skip
async def channel_off(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    for _ in range(run.times(1, 5)):
        told = at(run, "push", "bob.host")
        msg_id = await alice.send(bob)
        first = await told
        second = await at(run, "push", "bob.host")
        run.claim("told-again", second["notice"] != first["notice"], "a dropped push is followed by a new notice")
        text: str = await bob.call("tool", tool="failed_deliveries", arguments={"action": "list"})
        run.claim("no-failure", text.strip() == "[]", f"a push that was written is no failure: {text[:200]}")
        await bob.node.remote.call("look")
        states = [e["state"] for e in run.history.of("record", party="bob") if e["msg_id"] == msg_id]
        sent = set(states) - {"receiver_stored"} == {"notification_sent"}
        run.claim("sent-no-more", sent, f"of a push that was dropped: {', '.join(states)}")
        await look(run, "bob")
        await run.settled()
    run.claim("woke-nobody", not list(run.history.of("wake", party="bob")), "a dropped push wakes nobody")


@scenario(
    "storage-channel", "each part of the storage of a host with a channel fails in turn; nothing is lost",
    two_hosts(bob={"channel": "on"}),
)  # fmt: skip
async def storage_channel(run: Run) -> None:
    await failing_storage(run, tuple(way for way in STORAGE if way[1] != "bob.inbox"))
