"""What a scenario holds of a relay or a host: start, kill, send, and the fixture's operations."""

import uuid
from typing import TYPE_CHECKING, Any

from interlink_lab.backends.base import NodeHandle
from interlink_lab.fixtures.policy import Policy
from interlink_lab.remote import ENDED, RemoteFailed
from interlink_lab.topology import HostSpec, RelaySpec

if TYPE_CHECKING:
    from interlink_lab.run import Run


def _noted(run: "Run", number: int, hit: bool) -> bool:
    """`hit`; where nothing was hit, the history says so."""
    if not hit:
        run.note("fault.missed", id=number, why="there was nothing to kill")
    return hit


class RelayHandle:
    """One relay, on a node of its own."""

    def __init__(self, run: "Run", spec: RelaySpec, node: NodeHandle) -> None:
        self.run = run
        self.spec = spec
        self.name = spec.name
        self.node = node
        self.addr = run.backend.relay_bind
        self.reached_at = ""
        self._front = ""  # the rogue proxy's address

    async def start(self) -> None:
        """Start it, or start it again with the same files on the same address."""
        env = {**self.run.topology.env, **self.spec.env}
        self.addr = await self.node.remote.call("relay_start", addr=self.addr, args=list(self.spec.args), env=env)
        if self.spec.rogue and not self.reached_at:
            self._front = await self.node.remote.call("rogue_open", bind=self.addr, target=self.addr)
        self.reached_at = self.run.backend.relay_address(self.name, self._front or self.addr)

    async def kill(self) -> bool:
        """SIGKILL, and a fault in the history; whether there was something to kill."""
        number = self.run.fault("kill-relay", self.name, lasts=False)
        return _noted(self.run, number, await self.signal("KILL"))

    async def signal(self, sig: str) -> bool:
        return bool(await self.node.remote.call("signal", role="relay", sig=sig))


class HostHandle:
    """One host of the topology."""

    def __init__(self, run: "Run", spec: HostSpec, node: NodeHandle) -> None:
        self.run = run
        self.spec = spec
        self.name = spec.name
        self.node = node
        self.key = ""
        self.session = spec.session or str(uuid.uuid4())
        self.policy = spec.policy
        self._numbers = 0

    @property
    def env(self) -> dict[str, str]:
        """The settings of its server and hooks."""
        channel = {"INTERLINK_CHANNELS": "1"} if self.spec.channel else {}
        return {**self.run.topology.env, **channel, **self.spec.env}

    async def start(self, source: str = "startup", **config: Any) -> None:
        """Start the host process, which starts its server and arms. `source`: startup, resume or continue.

        A Codex thread has a first turn besides, which binds its server.
        """
        spec = self.spec
        config = {
            "kind": spec.kind,
            "session": self.session,
            "source": source,
            "policy": self.policy.data(),
            "server": ["interlink-mcp"],
            "env": self.env,
            "channel": spec.channel,
            **spec.options,
            **config,
        }
        await self.node.remote.call("host_start", name=self.name, config=config)
        await self.call("idle")  # answered once the server is up
        if spec.kind == "codex":
            await self.whole_turn()

    async def call(self, op: str, **args: Any) -> Any:
        """An operation of the fixture. RemoteFailed where it is dead."""
        return await self.node.remote.call("host", name=self.name, op=op, args=args)

    async def whole_turn(self, **options: Any) -> None:
        """A turn of the user, to its end. RemoteFailed."""
        await self.turn(**options)
        await self.idle()

    async def send(self, to: "HostHandle | str", text: str = "", **arguments: Any) -> str | None:
        """Send a message with a token of its own; its msg_id, None where the product refused or died."""
        self._numbers += 1
        token = f"m:{self.name}-{self._numbers}"
        name = to if isinstance(to, str) else self._route(to, arguments)
        try:
            sent: str | None = await self.call("send", to=name, text=f"[[{token}]] {text}", **arguments)
        except RemoteFailed as exc:
            if ENDED not in str(exc):
                raise
            self.run.note("send.lost", token=token, error=str(exc))  # the host died with it
            return None
        return sent

    async def raw_send(
        self, to: "HostHandle", text: str = "", session: str | None = None, **options: Any
    ) -> dict[str, Any]:
        """A message that the lab signs and gives to the relays (`Node.do_raw_send`), past this host's server."""
        self._numbers += 1
        token = f"m:{self.name}-raw{self._numbers}"
        sent: dict[str, Any] = await self.node.remote.call(
            "raw_send",
            to=to.key,
            session=session or to.session,
            text=f"[[{token}]] {text}",
            token=token,
            **options,
        )
        return sent

    async def raw_again(self, to: "HostHandle", message: dict[str, Any], sessions: list[str]) -> None:
        """The same bytes once more, for each of these sessions."""
        token = message["text"].partition("]]")[0].removeprefix("[[")
        await self.node.remote.call("raw_again", to=to.key, sessions=sessions, message=message, token=token)

    def _route(self, to: "HostHandle", arguments: dict[str, Any]) -> str:
        """The petname of a host; where its identity has several sessions, its session goes into the arguments."""
        if sum(other.key == to.key for other in self.run.hosts.values()) > 1:
            arguments.setdefault("session", to.session)
        return "self" if to.key == self.key else to.spec.identity or to.name

    async def kill(self, role: str = "host") -> bool:
        """SIGKILL for `host`, `server` or `listener`, and a fault in the history; whether there was something to
        kill."""
        number = self.run.fault(f"kill-{role}", f"{self.name}.{role}", lasts=False)
        return _noted(self.run, number, await self.signal("KILL", role))

    async def signal(self, sig: str, role: str = "host") -> bool:
        """The signal alone; whether there was something that got it."""
        return bool(await self.node.remote.call("signal", role=role, name=self.name, sig=sig))

    async def connect(self) -> bool:
        """Start the server (again), as a person's reconnect in the host does."""
        return bool(await self.call("connect"))

    async def disconnect(self) -> None:
        """End the server in good order; the host stays."""
        await self.call("disconnect")

    async def turn(self, **options: Any) -> None:
        """A turn of the user (`HostFixture.do_turn`): queued, not waited for."""
        await self.call("turn", **options)

    async def idle(self) -> None:
        """Wait until no turn runs or waits."""
        await self.run.until(lambda: self.call("idle"), f"{self.name} to be idle")

    async def set_policy(self, policy: Policy) -> None:
        """From now on the agent behaves so."""
        self.policy = policy
        await self.call("policy", policy=policy.data())

    async def trust(self, *others: "HostHandle") -> None:
        """Exactly these are peers now."""
        await self.node.remote.call("trust", peers={o.name: o.key for o in others})

    async def command(self, *argv: str, stdin: str = "") -> dict[str, Any]:
        """Run a program of the product on this host: code, out, err."""
        found: dict[str, Any] = await self.node.remote.call(
            "command", argv=list(argv), stdin=stdin, env=self.spec.env
        )
        return found

    async def armed(self, session: str | None = None) -> None:
        """Wait until a listener holds the lock of the inbox: of the hooks' session, or of this one."""
        ledger = self.run.ledger
        await self.run.until(lambda: ledger.is_armed(self.name, session), f"a listener of {self.name}")

    async def unarmed(self) -> None:
        """Wait until no listener holds the lock of the hooks' session."""
        ledger = self.run.ledger
        await self.run.until(lambda: not ledger.is_armed(self.name), f"the listener of {self.name} to be gone")

    def link(self, relay: str) -> str:
        return f"{self.spec.identity or self.name}-{relay}"

    async def set_link(self, mode: str, relay: str | None = None, **options: Any) -> None:
        """How the way to a relay (None: to each) behaves from now on."""
        for name in self.run.relays:
            if relay in (None, name):
                await self.node.remote.call("link_set", name=self.link(name), mode=mode, **options)
