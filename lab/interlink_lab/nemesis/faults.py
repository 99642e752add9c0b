"""What can go wrong, and how it is made to: each kind begins a fault on a run and says how it is ended."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio

from interlink_lab.history import Event
from interlink_lab.nemesis.observe import observed
from interlink_lab.remote import RemoteFailed
from interlink_lab.run import HostHandle, Run

Undo = Callable[[], Awaitable[None]]
STEP = "step"  # an option of every kind, for the history alone
ARMED_S = 5.0  # a listener that is to be killed gets so long to arm; without one nothing is killed


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """`begin` starts it; `parts`: those of a host that it takes (none: no host; "*": any, for files a path below
    the state folder); `relay`: whether it takes a relay, `rogue`: only one with the rogue proxy; `options`: with
    what they are without being given."""

    begin: Callable[[Run, "Fault"], Awaitable[Undo | None]]
    parts: tuple[str, ...] = ()
    relay: bool = False
    rogue: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """The forms of target, for people."""
        hosts = [f"HOST.{part}".replace(".*", ".FILE") for part in self.parts]
        return " or ".join([*hosts, *(["RELAY (rogue)" if self.rogue else "RELAY"] if self.relay else [])])


@dataclass(frozen=True)
class Fault:
    """One fault. `target`: `bob.server`, `bob.listener`, `bob.host`, `bob.link`, `bob.mailbox`, `bob.disk`,
    `bob.clock` or a relay's name; `lasts_s`: until it is ended; `options`: what the kind takes, and the history
    shows.
    """

    kind: str
    target: str
    lasts_s: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def party(self) -> str:
        """The host or relay that has it."""
        return self.target.partition(".")[0]

    @property
    def part(self) -> str:
        """The part of the host: server, link, mailbox ..."""
        return self.target.partition(".")[2]


class Active:
    """A fault that is on. `missed`: there was nothing that it could be done to."""

    def __init__(self, run: Run, event: Event, undo: Undo | None) -> None:
        self._run = run
        self._undo = undo
        self.event = event
        self.number: int = event["id"]
        self.missed = undo is None
        run.heals[self.number] = self.end

    async def end(self) -> None:
        """End it, once."""
        if self._run.heals.pop(self.number, None) is None:
            return
        if self._undo is not None:
            await self._undo()
        self._run.note("fault.end", id=self.number, missed=self.missed)


async def begin(run: Run, fault: Fault) -> Active:
    """Begin a fault. ValueError for a kind, a target or an option that there is not: nothing was done."""
    kind = _checked(run, fault)
    number = run.fault(fault.kind, fault.target, lasts=True, **fault.options)
    event = run.history.events[-1]
    try:
        undo = await kind.begin(run, fault)
    except RemoteFailed as exc:
        run.note("fault.missed", id=number, why=str(exc)[:200])
        undo = None
    return Active(run, event, undo)


def _checked(run: Run, fault: Fault) -> _Kind:
    """Its kind. ValueError: a fault that is none would leave a run green, or blame the product."""
    kind = KINDS.get(fault.kind)
    if kind is None:
        raise ValueError(f"no fault {fault.kind!r}: one of {', '.join(KINDS)}")
    relay = run.relays.get(fault.target)
    fits = kind.relay if relay else fault.party in run.hosts and (fault.part in kind.parts or "*" in kind.parts)
    if not fits:
        there = ", ".join((*run.hosts, *run.relays))
        raise ValueError(f"{fault.kind} on {fault.target!r}: it takes {kind.where}; there are {there}")
    if relay and kind.rogue and not relay.spec.rogue:
        raise ValueError(f"{fault.kind} on {fault.target!r}: that relay has no rogue proxy (RelaySpec.rogue)")
    unknown = fault.options.keys() - kind.options.keys() - {STEP}
    if unknown:
        known = ", ".join(kind.options) or "none"
        raise ValueError(f"{fault.kind}: no option {', '.join(sorted(unknown))}; it takes {known}")
    return kind


async def inject(run: Run, fault: Fault) -> Active:
    """Begin a fault, let it last, end it."""
    active = await begin(run, fault)
    try:
        await anyio.sleep(fault.lasts_s)
    finally:
        with anyio.CancelScope(shield=True):
            await active.end()
    return active


async def seen(run: Run, active: Active) -> Event:
    """Wait until the history shows that a fault took effect. LabFailed where it does not within the guard time."""
    what = f"an effect of {active.event['fault']} on {active.event['target']}"
    found: Event = await run.until(lambda: observed(run.history, active.event), what)
    return found


async def heal(run: Run) -> None:
    """End every fault, in the order in which they began; then bring up whatever is down."""
    for number in sorted(run.heals):
        await run.heals[number]()
    for relay in run.relays.values():
        if relay.name not in run.ledger.running:
            await relay.start()
    for host in run.hosts.values():
        await back_up(run, host)


async def back_up(run: Run, host: HostHandle) -> None:
    """See that a host and its server run."""
    if f"{host.name}.host" not in run.ledger.running:
        await host.start(source="resume")
    elif f"{host.name}.server" not in run.ledger.running:
        await host.call("connect")


# --- processes ----------------------------------------------------------------------------------------


async def _kill_server(run: Run, fault: Fault) -> Undo | None:
    host = run.host(fault.party)
    gone = _gone(run, f"{host.name}.server")
    if not await host.signal("KILL", "server"):
        return None

    async def undo() -> None:
        try:
            await run.until(gone, f"the end of {host.name}'s server")
            await host.call("connect")
        except RemoteFailed:
            return  # its host was killed too, and brings a server of its own

    return undo


async def _kill_listener(run: Run, fault: Fault) -> Undo | None:
    host = run.host(fault.party)
    with anyio.move_on_after(ARMED_S):
        while not await host.signal("KILL", "listener"):
            await anyio.sleep(0.05)
        return lambda: _turn(host)
    return None


async def _kill_host(run: Run, fault: Fault) -> Undo | None:
    host = run.host(fault.party)
    gone = _gone(run, f"{host.name}.host")
    if not await host.signal("KILL"):
        return None

    async def undo() -> None:
        await run.until(gone, f"the end of {host.name}")
        await host.start(source="resume")

    return undo


async def _kill_relay(run: Run, fault: Fault) -> Undo | None:
    relay = run.relay(fault.target)
    gone = _gone(run, relay.name)
    if not await relay.signal("KILL"):
        return None

    async def undo() -> None:
        await run.until(gone, f"the end of {relay.name}")
        await relay.start()

    return undo


def _gone(run: Run, party: str) -> Callable[[], bool]:
    """Whether the party's process has ended since this was made."""
    seen = len(run.history.events)
    return lambda: any(e["party"] == party and e["kind"] == "exit" for e in run.history.events[seen:])


async def _turn(host: HostHandle) -> None:
    try:
        await host.call("turn", text="go on")
    except RemoteFailed:
        return  # its host was killed too


async def _pause(run: Run, fault: Fault) -> Undo | None:
    role = "relay" if fault.party in run.relays else fault.part
    owner = run.relays.get(fault.party) or run.host(fault.party)
    name = "" if role == "relay" else fault.party
    pids = await owner.node.remote.call("signal", role=role, name=name, sig="STOP")
    if not pids:
        return None

    async def undo() -> None:
        await owner.node.remote.call("continue", pids=pids)

    return undo


async def _two_servers(run: Run, fault: Fault) -> Undo | None:
    host = run.host(fault.party)
    remote = host.node.remote
    arguments = {"name": host.name, "session": host.session, "env": host.env}
    if not await remote.call("second_server", on=True, **arguments):
        return None

    async def undo() -> None:
        await remote.call("second_server", on=False, **arguments)

    return undo


# --- network ------------------------------------------------------------------------------------------


def _link(mode: str) -> _Kind:
    async def start(run: Run, fault: Fault) -> Undo | None:
        host, relay = run.host(fault.party), fault.options.get("relay")
        more = {k: v for k, v in fault.options.items() if k != "relay"}
        await host.set_link(mode, relay, **more)

        async def undo() -> None:
            await host.set_link("up", relay)

        return undo

    slow = {"delay_s": 0.05, "rate": 0.0} if mode == "slow" else {}
    return _Kind(begin=start, parts=("link",), options={"relay": None, **slow})


def _rogue(mode: str) -> _Kind:
    async def start(run: Run, fault: Fault) -> Undo | None:
        remote = run.relay(fault.target).node.remote
        await remote.call("rogue_set", mode=mode, **fault.options)

        async def undo() -> None:
            await remote.call("rogue_set", mode="up")

        return undo

    return _Kind(begin=start, relay=True, rogue=True, options={"every": 1, "delay_s": 0.2})


# --- storage and clock --------------------------------------------------------------------------------


def _file(what: str) -> _Kind:
    async def start(run: Run, fault: Fault) -> Undo | None:
        remote = run.host(fault.party).node.remote
        await remote.call("file_fault", what=what, path=fault.part)

        async def undo() -> None:
            await remote.call("file_mend", path=fault.part)

        return undo

    return _Kind(begin=start, parts=("mailbox", "inbox", "pairing", "peers", "*"))


async def _disk_full(run: Run, fault: Fault) -> Undo | None:
    name = "relay" if fault.party in run.relays else fault.party
    owner = run.relays.get(fault.party) or run.host(fault.party)
    await owner.node.remote.call("fill_disk", name=name, full=True)

    async def undo() -> None:
        await owner.node.remote.call("fill_disk", name=name, full=False)

    return undo


def _bend(**values: int) -> Callable[[Run, Fault], Awaitable[Undo | None]]:
    async def start(run: Run, fault: Fault) -> Undo | None:
        remote = run.host(fault.party).node.remote
        await remote.call("bend", **{k: int(fault.options.get(k, v)) for k, v in values.items()})

        async def undo() -> None:
            await remote.call("bend", **dict.fromkeys(values, 0))

        return undo

    return start


KINDS: dict[str, _Kind] = {
    "kill-server": _Kind(begin=_kill_server, parts=("server",)),
    "kill-listener": _Kind(begin=_kill_listener, parts=("listener",)),
    "kill-host": _Kind(begin=_kill_host, parts=("host",)),
    "kill-relay": _Kind(begin=_kill_relay, relay=True),
    "pause": _Kind(begin=_pause, parts=("server", "listener", "host"), relay=True),
    "two-servers": _Kind(begin=_two_servers, parts=("server",)),
    "partition": _link("blackhole"),
    "drop-up": _link("drop-up"),
    "drop-down": _link("drop-down"),
    "reset": _link("reset"),
    "refused": _link("refused"),
    "slow": _link("slow"),
    **{mode: _rogue(mode) for mode in (
        "duplicate", "replay", "reorder", "delay", "forge", "429", "500", "lose-ack", "lose-answer", "garbage",
    )},
    **{what: _file(what) for what in ("corrupt", "truncate", "in-the-way", "read-only", "unreadable")},
    "disk-full": _Kind(begin=_disk_full, parts=("disk",), relay=True),
    "slow-sync": _Kind(begin=_bend(sync_ms=200), parts=("disk",), options={"sync_ms": 200}),
    "clock": _Kind(begin=_bend(clock_ms=20_000), parts=("clock",), options={"clock_ms": 20_000}),
}  # fmt: skip
