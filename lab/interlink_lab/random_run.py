"""Random runs: a seed goes in; topology, workload and faults come out, the same ones each time.

What happens in a run still depends on the machine; what is tried does not. At the end everything is healed, every
host fetches and acknowledges, and the checker decides.
"""

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import anyio

from interlink_lab.fixtures.policy import Policy
from interlink_lab.history import Event
from interlink_lab.nemesis import Fault, begin, heal, observed
from interlink_lab.remote import RemoteFailed
from interlink_lab.run import HostHandle, Run
from interlink_lab.scenarios.base import Scenario
from interlink_lab.topology import FAST, LARGEST, HostSpec, RelaySpec, Topology

SEEDS = Path(__file__).with_name("seeds.txt")
"""Seeds whose runs of 30 s have passed, one a line."""
KILL_EVERY_S = 2.0  # one kill in so many seconds, over all parties
CODEX = 0.3  # how often the last host is a Codex host
CHANNEL = 0.2  # how often the first host has a channel
WORK_EVERY_S = 1.2  # one piece of work in so many seconds, a host
FAIL_EVERY_S = 20.0  # a failure of the model in so many seconds, a Claude host
RESTART_S = 1.0  # a restart may take so long; beyond that the plan waits for it, so that no machine is too slow
PATIENCE = 12  # against hangs: after so many spans of real time the rest of a plan is left out
LOOK_S = 0.02
SETTLE_S = 150.0  # against hangs
CLOCK_MS = 20_000
POLICIES = (
    Policy(),
    Policy(ack="late", ack_after_s=1.5),
    Policy(ack="never"),
    Policy(lose=3),
    Policy(reply=True),
    Policy(execute=True),
    Policy(fetch_next=True, limit=3),
    Policy(busy_s=2.0),
    Policy(fetch=False),
)
KILLS = (("kill-listener", "listener", 5), ("kill-server", "server", 3), ("kill-host", "host", 1))
LINKS = ("partition", "drop-up", "drop-down", "reset", "refused", "slow")
ROGUERY = (
    "duplicate", "replay", "reorder", "delay", "forge", "429", "500", "lose-ack", "lose-answer", "garbage",
)  # fmt: skip
STORAGE = (
    ("in-the-way", "mailbox"), ("disk-full", "disk"), ("slow-sync", "disk"), ("corrupt", "mailbox"),
    ("truncate", "mailbox"), ("corrupt", "peers"), ("in-the-way", "inbox"),
)  # fmt: skip


@dataclass(frozen=True)
class Timed:
    """A fault at its time, s since the plan began; one lane's faults follow each other."""

    at_s: float
    fault: Fault

    def row(self) -> dict[str, Any]:
        return {"at": self.at_s, "fault": self.fault.kind, "target": self.fault.target,
                "lasts": self.fault.lasts_s, **self.fault.options}  # fmt: skip


@dataclass(frozen=True)
class Work:
    """Something that a host does: `op` is send, burst, task, progress, post, policy or fail."""

    at_s: float
    op: str
    args: dict[str, Any]


@dataclass
class Plan:
    """All of a run that the seed decides."""

    seed: int
    seconds: float
    topology: Topology
    lanes: dict[str, list[Timed]] = field(default_factory=dict)
    work: dict[str, list[Work]] = field(default_factory=dict)

    def faults(self) -> list[Fault]:
        """Of all lanes."""
        return [timed.fault for lane in self.lanes.values() for timed in lane]


def make_plan(seed: int, seconds: float) -> Plan:
    """The plan of a seed. Pure."""
    random = Random(seed)
    names = ("alice", "bob", "carol")[: random.choice((2, 2, 3))]
    relays = tuple(
        RelaySpec(name=f"r{n + 1}", rogue=n == 0 or random.random() < 0.5) for n in range(random.choice((1, 1, 2)))
    )
    codex = names[-1] if random.random() < CODEX else ""
    # A generator of its own, so that it changes nothing else of a seed's plan.
    channel = names[0] if Random(f"{seed} channel").random() < CHANNEL else ""
    hosts = tuple(
        HostSpec(
            name=name, kind="codex" if name == codex else "claude",
            trusts=tuple(n for n in names if n != name), policy=random.choice(POLICIES),
            env=_settings(random), channel="on" if name == channel else "",
        )
        for name in names
    )  # fmt: skip
    plan = Plan(seed, seconds, Topology(hosts=hosts, relays=relays, env=dict(FAST)))
    _plan_kills(plan, random)
    for host in hosts:
        name = host.name
        plan.lanes[f"{name}.link"] = _lane(random, seconds, 5.0, partial(_link_fault, random, name, relays))
        plan.lanes[f"{name}.storage"] = _lane(random, seconds, 9.0, partial(_storage_fault, random, name))
        plan.lanes[f"{name}.clock"] = _lane(random, seconds, 15.0, partial(_clock_fault, random, name))
        plan.work[name] = _work(random, seconds, host, names)
        if host.kind == "claude":
            _fail(plan, name)
    for relay in relays:
        if relay.rogue:
            plan.lanes[f"{relay.name}.rogue"] = _lane(random, seconds, 3.0, partial(_roguery, random, relay.name))
    return plan


def _settings(random: Random) -> dict[str, str]:
    """A host's own settings: now and then small bounds."""
    found: dict[str, str] = {}
    if random.random() < 0.3:
        found["INTERLINK_MAILBOX_MAX_RECORDS"] = "8"
    if random.random() < 0.3:
        found["INTERLINK_POLL_BATCH"] = "2"
    if random.random() < 0.3:
        found["INTERLINK_ANSWER_MAX_BYTES"] = "8192"
    if random.random() < 0.3:
        found["INTERLINK_RENEW_AFTER_S"] = "4"
    return found


def _span(random: Random) -> float:
    return round(random.uniform(0.4, 3.0), 2)


def _lane(random: Random, seconds: float, every_s: float, make: Callable[[], Fault]) -> list[Timed]:
    """Faults of one kind of work, about one in `every_s` seconds, at least one."""
    found: list[Timed] = []
    at_s = random.uniform(0, every_s)
    while at_s < seconds or not found:
        fault = make()
        found.append(Timed(round(min(at_s, seconds * 0.8), 2), fault))
        at_s += fault.lasts_s + random.uniform(0.5, 2 * every_s - 0.5)
    return found


def _plan_kills(plan: Plan, random: Random) -> None:
    """Kills, pauses and second servers: one lane a party, so that two of them never meet in one process."""
    listens = {h.name: h.kind == "claude" and not h.channel for h in plan.topology.hosts}
    names = list(listens)
    relays = [r.name for r in plan.topology.relays]
    for name in (*names, *relays):
        plan.lanes[name] = []
    count = max(4, round(plan.seconds / KILL_EVERY_S))
    for number in range(count):
        at_s = round((number + random.random()) * plan.seconds / count, 2)
        down_s = round(random.uniform(0.05, 1.0), 2)
        if random.random() < 0.2:
            relay = random.choice(relays)
            plan.lanes[relay].append(Timed(at_s, Fault("kill-relay", relay, down_s)))
            continue
        host = random.choice(names)
        kills = [k for k in KILLS if listens[host] or k[1] != "listener"]
        kind, part, _ = random.choices(kills, weights=[k[2] for k in kills])[0]
        plan.lanes[host].append(Timed(at_s, Fault(kind, f"{host}.{part}", down_s)))
    for name in names:
        for _ in range(max(1, round(plan.seconds / 20))):
            at_s = round(random.uniform(0, plan.seconds), 2)
            part = random.choice(("server", "host", "listener")[: 3 if listens[name] else 2])
            kind = random.choice(("pause", "pause", "two-servers"))
            target = f"{name}.server" if kind == "two-servers" else f"{name}.{part}"
            plan.lanes[name].append(Timed(at_s, Fault(kind, target, _span(random))))
    for name in relays:
        at_s = round(random.uniform(0, plan.seconds), 2)
        kind = random.choice(("pause", "disk-full"))
        plan.lanes[name].append(Timed(at_s, Fault(kind, name, _span(random))))
    for lane in plan.lanes.values():
        lane.sort(key=lambda timed: timed.at_s)


def _link_fault(random: Random, host: str, relays: tuple[RelaySpec, ...]) -> Fault:
    options = {} if random.random() < 0.5 else {"relay": random.choice(relays).name}
    return Fault(random.choice(LINKS), f"{host}.link", _span(random), options)


def _storage_fault(random: Random, host: str) -> Fault:
    kind, part = random.choice(STORAGE)
    return Fault(kind, f"{host}.{part}", _span(random))


def _clock_fault(random: Random, host: str) -> Fault:
    """Less than a message may be ahead of its receiver (G1), also when both clocks are bent."""
    jump = random.choice((-1, 1)) * random.randrange(1000, CLOCK_MS)
    return Fault("clock", f"{host}.clock", _span(random), {"clock_ms": jump})


def _roguery(random: Random, relay: str) -> Fault:
    return Fault(random.choice(ROGUERY), relay, _span(random), {"every": random.randrange(1, 4)})


def _work(random: Random, seconds: float, host: HostSpec, names: tuple[str, ...]) -> list[Work]:
    """What a host sends, posts and changes its mind about."""
    others = [n for n in names if n != host.name]
    found: list[Work] = []
    at_s, number, large = 0.0, 0, False
    while (at_s := at_s + random.expovariate(1 / WORK_EVERY_S)) < seconds:
        number += 1
        to, size = random.choice(others), random.choice((0, 0, 0, 200, 3000, 40_000))
        if not large and random.random() < 0.03:
            size, large = LARGEST, True
        op = random.choices(("send", "burst", "task", "progress", "post", "policy"), (60, 6, 10, 10, 6, 8))[0]
        args: dict[str, Any] = {"to": to, "bytes": size, "prefix": f"{host.name}-w{number}-"}
        if op == "burst":
            args |= {"count": random.randrange(4, 20), "bytes": min(size, 3000)}
        elif op == "progress":
            args |= {"count": random.randrange(2, 8)}
        elif op == "policy":
            args = {"policy": random.choice(POLICIES).data()}
        found.append(Work(round(at_s, 2), op, args))
    return found


def _fail(plan: Plan, name: str) -> None:
    """The model fails in a turn or two of this host. A generator of its own, as for the channel."""
    random = Random(f"{plan.seed} {name} fails")
    for _ in range(max(1, round(plan.seconds / FAIL_EVERY_S))):
        at_s = round(random.uniform(0, plan.seconds), 2)
        plan.work[name].append(Work(at_s, "fail", {"count": random.randrange(1, 3)}))
    plan.work[name].sort(key=lambda work: work.at_s)


# --- carrying it out ----------------------------------------------------------------------------------


def random_scenario(seed: int, seconds: float) -> Scenario:
    """The random run of this seed."""
    plan = make_plan(seed, seconds)

    async def body(run: Run) -> None:
        await carry_out(run, plan)

    return Scenario("random", f"{seconds:g} s from seed {seed}", plan.topology, body, span_s=seconds)


async def carry_out(run: Run, plan: Plan) -> None:
    """Faults and work over the span, then all healed, all fetched, and what the faults did is counted."""
    run.note("plan", seed=plan.seed, seconds=plan.seconds,
             lanes={name: [t.row() for t in lane] for name, lane in plan.lanes.items()})  # fmt: skip
    clock = PlanClock()
    async with anyio.create_task_group() as group:
        for lane in plan.lanes.values():
            group.start_soon(_run_lane, run, plan, clock, lane)
        for name, work in plan.work.items():
            group.start_soon(_run_work, run, plan, clock, run.host(name), work)
    await heal(run)
    run.note("healed")
    for host in run.hosts.values():
        await host.set_policy(Policy())
        await host.call("fail", count=0)
        await host.call("turn", look=True)
    await run.settled(SETTLE_S)
    run.note("statistics", **statistics(run))


class PlanClock:
    """Time of a plan, s: the machine's, without the time for which restarts kept everybody waiting."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self._held = 0.0
        self._holds: set[object] = set()
        self._since = 0.0

    @property
    def now(self) -> float:
        held = self._held + (time.monotonic() - self._since if self._holds else 0.0)
        return time.monotonic() - self.began - held

    @asynccontextmanager
    async def restarting(self) -> AsyncIterator[None]:
        """The clock stands still once this takes longer than a restart should."""
        key = object()

        async def hold() -> None:
            await anyio.sleep(RESTART_S)
            if not self._holds:
                self._since = time.monotonic()
            self._holds.add(key)

        async with anyio.create_task_group() as group:
            group.start_soon(hold)
            try:
                yield
            finally:
                group.cancel_scope.cancel()
                if key in self._holds:
                    self._holds.discard(key)
                    self._held += 0.0 if self._holds else time.monotonic() - self._since


async def _due(plan: Plan, clock: PlanClock, at_s: float) -> bool:
    """Wait for a time of the plan. False where the rest is left out."""
    while clock.now < at_s:
        await anyio.sleep(LOOK_S)
    return time.monotonic() - clock.began < plan.seconds * PATIENCE


async def _run_lane(run: Run, plan: Plan, clock: PlanClock, lane: list[Timed]) -> None:
    for timed in lane:
        if not await _due(plan, clock, timed.at_s):
            run.note("left.out", fault=timed.fault.kind, target=timed.fault.target)
            continue
        active = await begin(run, timed.fault)
        until = clock.now + timed.fault.lasts_s
        await _due(plan, clock, until)
        async with clock.restarting():
            await active.end()


async def _run_work(run: Run, plan: Plan, clock: PlanClock, host: HostHandle, work: list[Work]) -> None:
    for item in work:
        if not await _due(plan, clock, item.at_s):
            return
        while not {f"{host.name}.host", f"{host.name}.server"} <= run.ledger.running:
            if time.monotonic() - clock.began > plan.seconds * PATIENCE:
                return
            await anyio.sleep(LOOK_S)  # somebody starts it again
        try:
            await _do(run, host, item)
        except RemoteFailed as exc:
            run.note("work.failed", host=host.name, op=item.op, error=str(exc)[:200])


async def _do(run: Run, host: HostHandle, item: Work) -> None:
    args = dict(item.args)
    if item.op == "policy":
        await host.set_policy(Policy(**args["policy"]))
    elif item.op == "fail":
        await host.call("fail", **args)
    elif item.op == "post":
        text = f"[[m:{args['prefix']}p]] a local event"
        await host.command("interlink", "post", "--session", host.session, "--source", "lab",
                           "--id", args["prefix"], text)  # fmt: skip
    elif item.op == "task":
        await host.call("burst", count=1, task_id=args["prefix"], **args)
    elif item.op == "progress":
        count, prefix = args.pop("count"), args.pop("prefix")
        args["bytes"] = min(args["bytes"], 3000)
        for number in range(count):
            status = "result" if number == count - 1 else "update"
            await host.call("burst", count=1, prefix=f"{prefix}{number}-", task_id=prefix, status=status, **args)
    else:
        args.setdefault("count", 1)
        await host.call("burst", parallel=4, **args)


def statistics(run: Run) -> dict[str, Any]:
    """What was injected and what of it was seen to take effect, by kind; `kills`: processes seen to be killed."""
    injected: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    killed: set[tuple[str, float]] = set()
    faults: list[Event] = [e for e in run.history.events if e["kind"] == "fault"]
    for fault in faults:
        injected[fault["fault"]] += 1
        effect = observed(run.history, fault)
        if effect is None:
            continue
        seen[fault["fault"]] += 1
        if fault["fault"].startswith("kill-"):
            killed.add((effect["party"], effect["t"]))
    return {"injected": dict(sorted(injected.items())), "observed": dict(sorted(seen.items())),
            "kinds": len(seen), "kills": len(killed)}  # fmt: skip
