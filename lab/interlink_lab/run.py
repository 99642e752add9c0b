"""A run: a topology brought up on a backend, driven by a scenario, recorded, brought to rest and down again.

async with open_run(topology, folder) as run:
    alice, bob = run.host("alice"), run.host("bob")
    await alice.send(bob)
    await run.settled()
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from interlink_lab.backends.base import Backend, NodeHandle
from interlink_lab.backends.process import ProcessBackend
from interlink_lab.handles import HostHandle, RelayHandle
from interlink_lab.history import Event, History
from interlink_lab.ledger import Ledger
from interlink_lab.programs import binaries
from interlink_lab.remote import RemoteFailed
from interlink_lab.topology import RelaySpec, Topology

__all__ = ["HostHandle", "LabFailed", "RelayHandle", "Run", "open_run", "prepare_backend"]

GUARD_S = 60.0  # against hangs, never a measure
DRAIN_S = 8.0  # in which a server that works acknowledges what it was handed
BUG_GUARD_S = 25.0  # where a seeded bug is expected to keep a run from its end


class LabFailed(Exception):
    """The lab could not do what a scenario asked for: no verdict on the product."""


class Run:
    """What a scenario holds in its hands."""

    def __init__(self, topology: Topology, backend: Backend, history: History, long: bool, seed: int) -> None:
        self.topology = topology
        self.backend = backend
        self.history = history
        self.is_long = long
        self.seed = seed
        self.ledger = Ledger()
        self.patience_s = GUARD_S  # of `settled`; less where a seeded bug is expected to keep it from settling
        self.relays: dict[str, RelayHandle] = {}
        self.hosts: dict[str, HostHandle] = {}
        self.nodes: list[NodeHandle] = []
        self.hooks: list[Callable[[Event], None]] = []  # told of each event
        self.heals: dict[int, Callable[[], Awaitable[None]]] = {}  # what ends each fault that is on

    # --- for scenarios --------------------------------------------------------------------------------

    def host(self, name: str) -> HostHandle:
        """ValueError where the topology has none of that name."""
        if name not in self.hosts:
            raise ValueError(f"no host {name!r}: {', '.join(self.hosts)}")
        return self.hosts[name]

    def relay(self, name: str = "r1") -> RelayHandle:
        """ValueError where the topology has none of that name."""
        if name not in self.relays:
            raise ValueError(f"no relay {name!r}: {', '.join(self.relays)}")
        return self.relays[name]

    def times(self, short: int, long: int) -> int:
        """How often, in the form of the scenario that runs."""
        return long if self.is_long else short

    async def until(self, look: Callable[[], Any], what: str, guard_s: float | None = None) -> Any:
        """What `look` (plain or async) gives once it gives something. LabFailed after the guard time."""
        patience_s = self.patience_s if guard_s is None else guard_s
        with anyio.move_on_after(patience_s):
            while True:
                found = look()
                if isinstance(found, Awaitable):
                    found = await found
                if found:
                    return found
                await anyio.sleep(0.02)
        raise LabFailed(f"waited {patience_s:g} s for {what}")

    async def event(self, kind: str, party: str | None = None, since: float = 0.0, **data: Any) -> Event:
        """The first such event at or after `since`, once there is one."""

        def look() -> Event | None:
            return next(iter(self.history.of(kind, party=party, since=since, **data)), None)

        found: Event = await self.until(look, f"event {kind} of {party} {data}")
        return found

    async def count(
        self, kind: str, number: int, party: str | None = None, since: float = 0.0, **data: Any
    ) -> int:
        """Wait until there are so many such events since a time; how many there are then."""

        def look() -> int:
            found = len(self.history.of(kind, party=party, since=since, **data))
            return found if found >= number else 0

        seen: int = await self.until(look, f"{number} events {kind} of {party}")
        return seen

    async def quiet(self, seconds: float) -> None:
        """Let time pass: the span of a scenario in which nothing is to happen."""
        self.note("quiet", seconds=seconds)
        await anyio.sleep(seconds)

    def claim(self, name: str, ok: bool, text: str) -> None:
        """What a scenario itself says must hold, and whether it did: an event that the checker judges."""
        self.note("claim", name=name, ok=bool(ok), text=text)

    async def settled(self, guard_s: float | None = None) -> bool:
        """Wait until every accepted message is acknowledged or superseded. False after the guard time: whether
        that is a fault is the checker's to say."""
        with anyio.move_on_after(self.patience_s if guard_s is None else guard_s):
            while self.ledger.open():
                await anyio.sleep(0.05)
            return True
        self.history.note("unsettled", tokens=sorted(self.ledger.open())[:20], count=len(self.ledger.open()))
        return False

    # --- up and down ----------------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        """An event of any party."""
        self._tell(self.history.add(event))

    def note(self, kind: str, **data: Any) -> None:
        """An event of the lab."""
        self._tell(self.history.note(kind, **data))

    def fault(self, kind: str, target: str, *, lasts: bool, **options: Any) -> int:
        """Note that a fault begins; its number. One that does not last is a moment, and has no end."""
        number: int = 1 + sum(e["kind"] == "fault" for e in self.history.events)
        self.note("fault", id=number, fault=kind, target=target, lasts=lasts, **options)
        return number

    def _tell(self, row: Event) -> None:
        self.ledger.take(row)
        for hook in list(self.hooks):
            hook(row)

    async def _node(self, name: str) -> NodeHandle:
        node = await self.backend.start_node(name, lambda event: self.take(_under(name, event)))
        self.nodes.append(node)
        return node

    async def up(self) -> None:
        """Nodes, relays, keys, trust, links, hosts, in this order."""
        other = bool(binaries())
        self.note("topology", **self.topology.describe(), backend=self.backend.name, seed=self.seed, other=other)
        async with anyio.create_task_group() as group:
            for relay in self.topology.relays:
                group.start_soon(self._relay_up, relay)
        nodes: dict[str, NodeHandle] = {}
        for spec in self.topology.hosts:
            if spec.identity is None:
                nodes[spec.name] = await self._node(spec.name)
        for spec in self.topology.hosts:
            self.hosts[spec.name] = HostHandle(self, spec, nodes[spec.identity or spec.name])
        async with anyio.create_task_group() as group:
            for host in self.hosts.values():
                if host.spec.identity is None:
                    group.start_soon(self._prepare, host)
        for host in self.hosts.values():
            if host.spec.identity is not None:
                host.key = self.hosts[host.spec.identity].key
        for host in self.hosts.values():
            if host.spec.identity is None:
                await host.trust(*(self.hosts[name] for name in host.spec.trusts))
        self.note("identities", keys={h.name: h.key for h in self.hosts.values()},
                  trusts={h.name: [self.hosts[n].key for n in h.spec.trusts] for h in self.hosts.values()},
                  sessions={h.name: h.session for h in self.hosts.values()})  # fmt: skip
        async with anyio.create_task_group() as group:
            for host in self.hosts.values():
                group.start_soon(host.start)
        await self._acquainted()
        self.note("up")

    async def _relay_up(self, spec: RelaySpec) -> None:
        node = await self._node(spec.name)
        await node.remote.call("prepare")
        self.relays[spec.name] = RelayHandle(self, spec, node)
        await self.relays[spec.name].start()

    async def _prepare(self, host: HostHandle) -> None:
        urls = []
        for relay in self.topology.relays:
            if host.spec.relays and relay.name not in host.spec.relays:
                continue
            address = self.relays[relay.name].reached_at
            if host.spec.linked:
                port = await host.node.remote.call("link_open", name=host.link(relay.name), target=address)
                address = f"127.0.0.1:{port}"
            urls.append(f"http://{address}")
        host.key = await host.node.remote.call(
            "prepare", url=",".join(urls), name=host.name, env={**self.topology.env, **host.spec.env}
        )

    async def _acquainted(self) -> None:
        """Wait until each host sees the sessions of those whom it trusts."""
        for host in self.hosts.values():
            for name in host.spec.trusts:
                other = self.hosts[name]
                if host.key in [self.hosts[n].key for n in other.spec.trusts]:

                    async def sees(host: HostHandle = host, other: HostHandle = other) -> bool:
                        return other.session in await host.call("tool", tool="discover", arguments={})

                    await self.until(sees, f"{name} on {host.name}'s list", GUARD_S)

    async def down(self) -> None:
        """Look a last time, end everything, look for what is left behind."""
        for host in self.hosts.values():
            try:
                await host.call("fetch_all")
            except RemoteFailed:
                continue  # it is dead, and that is in the history
        for node in self.nodes:
            await node.remote.call("stop_watching")
        self.note("ending")
        await self._drained()
        for host in self.hosts.values():
            await host.node.remote.call("host_end", name=host.name)
        for relay in self.relays.values():
            await relay.node.remote.call("relay_stop")
        await self._leftovers()
        self.note("end")

    async def _drained(self) -> None:
        """Ask the relays whether they keep anything for a session that a server polls, where all is consumed.

        As long as a server may pause after a fault. Not of other binaries: what they promise there is their own.
        """
        if self.ledger.open() or binaries():
            return
        wait_s = DRAIN_S + 2 * float(self.topology.env.get("INTERLINK_BACKOFF_MAX_S", "30"))
        async with anyio.create_task_group() as group:
            for host in self.hosts.values():
                session = self.ledger.served(host.name)
                for name, relay in self.relays.items():
                    polled = not host.spec.relays or name in host.spec.relays
                    if session and polled and name in self.ledger.running:
                        group.start_soon(self._drain, relay, host, session, wait_s)

    async def _drain(self, relay: RelayHandle, host: HostHandle, session: str, wait_s: float) -> None:
        count: int | None = 0
        with anyio.move_on_after(wait_s):
            while count := await relay.node.remote.call("relay_waiting", route=f"{host.key}#{session}"):
                await anyio.sleep(0.1)
        self.note("waiting", relay=relay.name, host=host.name, session=session, count=count)

    async def _leftovers(self) -> None:
        for node in self.nodes:
            left: dict[str, Any] = {}
            with anyio.move_on_after(10):
                while True:
                    left = await node.remote.call("leftovers")
                    if not left["processes"] and not left["locks"]:
                        break
                    await anyio.sleep(0.1)
            self.note("leftovers", node=node.name, **left)


def _under(node: str, event: Event) -> Event:
    """A node's own parties get its name: `r1`, `r1.link`, `bob.files`; a host's have it already."""
    party = event["party"]
    if party == "relay":
        return {**event, "party": node}
    if "." in party:
        return event
    return {**event, "party": f"{node}.{party}"}


@asynccontextmanager
async def open_run(
    topology: Topology,
    folder: Path,
    *,
    backend: str = "process",
    product: Path | None = None,
    long: bool = False,
    seed: int = 0,
    watch: Callable[[Event], None] | None = None,
    patience_s: float | None = None,
) -> AsyncIterator[Run]:
    """Bring a topology up below `folder`; at the end, also after an error, bring everything down.

    `product`: a copied tree that is run in place of this one. The history is in
    `folder/history.jsonl`. `patience_s`: of `Run`.
    """
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    history = History(folder / "history.jsonl")
    async with anyio.create_task_group() as group:
        made = await make_backend(backend, folder, group, product)
        run = Run(topology, made, history, long, seed)
        run.hooks += [watch] if watch else []
        if product is not None:
            run.patience_s = BUG_GUARD_S
        if patience_s is not None:
            run.patience_s = patience_s
        try:
            await run.up()
            try:
                yield run
            except LabFailed:
                await run.down()  # what was recorded can be judged all the same
                raise
            await run.down()
        finally:
            with anyio.CancelScope(shield=True):
                await made.close()
            history.close()
            group.cancel_scope.cancel()


async def make_backend(name: str, folder: Path, group: anyio.abc.TaskGroup, product: Path | None) -> Backend:
    """The backend of this name. ValueError for an unknown one, LabFailed where it cannot be used here."""
    if name == "process":
        path = (
            None
            if product is None
            else os.pathsep.join([str(product.resolve()), os.environ.get("PYTHONPATH", "")])
        )
        return ProcessBackend(folder / "nodes", group, path)
    if name != "docker":
        raise ValueError(f"no backend {name!r}: process or docker")
    from interlink_lab.backends.docker import DockerBackend, NoEngine  # half a second, for those who need it

    made = DockerBackend(folder / "nodes", group, product)
    try:
        await made.open()
    except NoEngine as exc:
        raise LabFailed(str(exc)) from exc
    return made


async def prepare_backend(name: str) -> None:
    """What a backend needs once and keeps, which may take minutes: the image. LabFailed where that fails."""
    if name == "docker":
        from interlink_lab.backends.docker import NoEngine, prepare

        try:
            await prepare()
        except NoEngine as exc:
            raise LabFailed(str(exc)) from exc
