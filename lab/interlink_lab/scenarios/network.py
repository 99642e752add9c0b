"""Restarts, and networks that do not carry: each party killed at each step, partitions, relays that misbehave."""

import re
from dataclasses import replace
from random import Random

import anyio

from interlink_lab.fixtures.policy import Policy
from interlink_lab.nemesis import Fault, at, begin, heal, inject, seen
from interlink_lab.remote import RemoteFailed
from interlink_lab.run import LabFailed, Run
from interlink_lab.scenarios.base import scenario
from interlink_lab.topology import FAST, HostSpec, RelaySpec, Topology, two_hosts

STEPS: dict[str, tuple[str, str, dict[str, str]] | None] = {
    "before": None,
    "stored": ("log", "bob.server", {"event": "stored"}),
    "notice": ("inbox", "bob.files", {"what": "notice"}),
    "fetch": ("fetch", "bob.agent", {}),
    "ack-begin": ("ack.begin", "bob.agent", {}),
    "ack": ("ack", "bob.agent", {}),
}
PARTIES = {
    "kill-server": "bob.server",
    "kill-listener": "bob.listener",
    "kill-host": "bob.host",
    "kill-relay": "r1",
}
WITHOUT_LISTENER = ("fetch", "ack-begin", "ack")  # its exit was what woke the host


def combinations() -> list[tuple[str, str]]:
    """Every (kill, step) in which there is something to kill."""
    return [(k, s) for k in PARTIES for s in STEPS if k != "kill-listener" or s not in WITHOUT_LISTENER]


@scenario("restart-each-step", "each party is killed at each step of a delivery and comes back", two_hosts())
async def restart_each_step(run: Run) -> None:
    chosen = combinations()
    if not run.is_long:
        random = Random(run.seed)
        chosen = [random.choice([c for c in chosen if c[0] == kill]) for kill in PARTIES]
    for kill, step in chosen:
        await run.host("bob").armed()
        await one_restart(run, kill, step)


async def one_restart(run: Run, kill: str, step: str) -> None:
    """One delivery from alice to bob with one kill in it. It names the session: a relay that was killed may not
    know him until he announces himself again."""
    alice, bob = run.host("alice"), run.host("bob")
    fault = Fault(kill, PARTIES[kill], options={"step": step})
    where = STEPS[step]
    if where is None:
        active = await begin(run, fault)
        await alice.send(bob, session=bob.session)
    else:
        kind, party, data = where
        point = at(run, kind, party, **data)
        await alice.send(bob, session=bob.session)
        await point
        active = await begin(run, fault)
    await active.end()
    await run.settled()


@scenario(
    "lost-fetch-answer", "answers to fetches are lost: everything stays unread and comes again",
    two_hosts(bob={"policy": Policy(lose=2, limit=2)}),
)  # fmt: skip
async def lost_fetch_answer(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    await bob.armed()
    for _ in range(run.times(3, 12)):
        await alice.send(bob)
    await run.settled()


async def _cut(run: Run, kinds: tuple[str, ...]) -> None:
    """Messages before, during and after each cut of bob's link; the schedule's longest interval may pass in it."""
    alice, bob = run.host("alice"), run.host("bob")
    for _ in range(run.times(1, 5)):
        for kind in kinds:
            await bob.armed()
            cut = await begin(run, Fault(kind, "bob.link"))
            await alice.send(bob)
            await bob.send(alice)
            await seen(run, cut)
            await cut.end()
            await alice.send(bob)
            await run.settled()


@scenario("partition", "a host is cut off from the relay, whole or by refusals and resets", two_hosts())
async def partition(run: Run) -> None:
    await _cut(run, ("partition", "refused", "reset"))


@scenario("one-way", "the network carries one direction alone, or slowly", two_hosts())
async def one_way(run: Run) -> None:
    await _cut(run, ("drop-up", "drop-down", "slow"))


def _rogue_relay(**more: object) -> Topology:
    return replace(two_hosts(), relays=(RelaySpec(rogue=True),), **more)  # type: ignore[arg-type]


ROGUERY = ("duplicate", "replay", "reorder", "delay", "429", "500", "lose-ack", "lose-answer", "garbage")


@scenario(
    "flaky-relay", "a relay that duplicates, replays, reorders, delays, answers errors and loses acknowledgements",
    _rogue_relay(),
)  # fmt: skip
async def flaky_relay(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    await bob.armed()
    for mode in ROGUERY * run.times(1, 6):
        flaky = await begin(run, Fault(mode, "r1", options={"every": 1 if mode in ("reorder", "lose-ack") else 2}))
        point = at(run, "rogue", "r1", did=mode)
        for _ in range(3):
            await alice.send(bob)
        if mode != "reorder":  # it needs two messages in one answer, which nobody can promise
            await point
        point.drop()
        await flaky.end()
    await run.settled()


@scenario(
    "forged", "messages of an unknown key, and in a friend's name with a false signature, change nothing",
    _rogue_relay(),
)  # fmt: skip
async def forged(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    await bob.armed()
    forging = await begin(run, Fault("forge", "r1"))
    for _ in range(run.times(3, 30)):
        point = at(run, "log", "bob.server", event="refused")
        await alice.send(bob)
        await point
        await run.settled()
    await forging.end()
    await alice.send(bob)
    await run.settled()


@scenario(
    "stranger", "a host that nobody trusts sends and is not stored; once it is trusted, it is",
    Topology(hosts=(
        HostSpec(name="alice", trusts=("bob",)),
        HostSpec(name="bob", trusts=("alice",)),
        HostSpec(name="mallory", trusts=("bob",)),
    )),
)  # fmt: skip
async def stranger(run: Run) -> None:
    alice, bob, mallory = (run.host(n) for n in ("alice", "bob", "mallory"))
    await bob.armed()
    for number in range(run.times(2, 20)):
        point = at(run, "log", "bob.server", event="refused")
        sent = at(run, "send.begin", "mallory")
        await mallory.send(bob)
        await point
        run.note("expect", lost=[(await sent)["token"]])
        await alice.send(bob, f"round {number}")
    await run.settled()
    run.note("trust", host="bob", keys=[alice.key, mallory.key])
    await bob.trust(alice, mallory)
    await bob.call("tool", tool="list_peers", arguments={})  # reads the peers anew
    await mallory.send(bob)
    await run.settled()


@scenario(
    "renewal", "a listener asks to be renewed after 3 s, is armed again, and a later message still wakes",
    two_hosts(env={**FAST, "INTERLINK_RENEW_AFTER_S": "3"}),
)  # fmt: skip
async def renewal(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    for _ in range(run.times(1, 5)):
        await bob.armed()
        point = at(run, "exit", "bob.listener", code=2)
        await point
        await bob.armed()
        await alice.send(bob)
        await run.settled()


@scenario("sleeping-host", "a machine sleeps for longer than the schedule and wakes up with mail", two_hosts())
async def sleeping_host(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    longest = max(run.topology.schedule_s()) + 1
    for _ in range(run.times(1, 4)):
        await bob.armed()
        asleep = [await begin(run, Fault("pause", f"bob.{part}")) for part in ("host", "server", "listener")]
        for _ in range(3):
            await alice.send(bob)
        await anyio.sleep(longest)
        for part in reversed(asleep):
            await part.end()
        await run.settled()


@scenario("pause-relay", "the relay stands still while messages are sent, and goes on", two_hosts())
async def pause_relay(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    for _ in range(run.times(1, 5)):
        await bob.armed()
        still = await begin(run, Fault("pause", "r1"))
        for _ in range(run.times(1, 3)):
            await alice.send(bob, session=bob.session)
            await bob.send(alice, session=alice.session)
        await still.end()
        await run.settled()


@scenario("two-servers", "two servers of one session: one record, one notice, whoever of them ends", two_hosts())
async def two_servers(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    for _ in range(run.times(1, 5)):
        await bob.armed()
        second = await begin(run, Fault("two-servers", "bob.server"))
        await alice.send(bob)
        await run.settled()
        await bob.armed()
        killed = await begin(run, Fault("kill-server", "bob.server"))
        told = at(run, "inbox", "bob.files", what="notice")
        await alice.send(bob)
        await told
        await killed.end()
        await second.end()
        await run.settled()


@scenario(
    "pairing-under-restart", "two strangers pair while relay and servers are killed, then write to each other",
    Topology(hosts=(HostSpec(name="alice"), HostSpec(name="bob")), env={**FAST, "INTERLINK_TRUST": "tools"}),
)  # fmt: skip
async def pairing_under_restart(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    await bob.armed()
    random = Random(run.seed)

    async def tool(host: str, name: str, **arguments: str) -> str:
        try:
            return str(await run.host(host).call("tool", tool=name, arguments=arguments))
        except RemoteFailed as exc:
            return str(exc)

    async def knocked() -> bool:
        await tool("alice", "request_pair", target=bob.key)
        return alice.key[:8] in await tool("bob", "list_pair_requests")

    async def accepted() -> bool:
        await tool("bob", "accept_pair", fingerprint=alice.key[:8])
        return bob.key[:8] in await tool("alice", "list_peers") and alice.key[:8] in await tool(
            "bob", "list_peers"
        )

    run.note("trust", host="bob", keys=[alice.key])
    run.note("trust", host="alice", keys=[bob.key])
    for step in (knocked, accepted):
        for _ in range(run.times(1, 4)):
            kind, target = random.choice([("kill-relay", "r1"), ("kill-server", "bob.server"),
                                          ("kill-server", "alice.server")])  # fmt: skip
            await inject(run, Fault(kind, target, lasts_s=0.2))
        await heal(run)
        await run.until(step, step.__name__)
    for one, other in ((alice, bob), (bob, alice)):
        await one.send(_petname(await tool(one.name, "list_peers"), other.key))
    await run.settled()


def _petname(listed: str, key: str) -> str:
    """A key's name in an answer of list_peers. LabFailed where it is not there."""
    found = re.search(rf"^- (\S+) \[{re.escape(key[:8])}\]", listed, re.MULTILINE)
    if found is None:
        raise LabFailed(f"{key[:8]} is not in {listed!r}")
    return found[1]
