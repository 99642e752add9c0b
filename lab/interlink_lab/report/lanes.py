"""Where things are drawn: a lane a relay, three lanes a host (host, listener, server), one for the lab."""

from dataclasses import dataclass
from typing import NamedTuple

from interlink_lab.checker.model import Facts
from interlink_lab.history import Event

LAB = "lab"
HOST_PARTS = ("host", "listener", "server")
OF_HOST = {"host": "host", "agent": "host", "listener": "listener"}  # any other part: the server's lane
OF_LISTENER = ("armed", "unarmed")


class Lane(NamedTuple):
    """`name` is what faults and parties call it: `r1`, `bob.server`. `group`: host or relay name."""

    name: str
    label: str
    group: str


@dataclass(frozen=True)
class Bar:
    """A span of one lane. `kind`: life, armed, turn. `ends`: how a process ended, as text."""

    kind: str
    lane: int
    begin: float
    end: float
    event: Event
    ends: str = ""
    violent: bool = False


@dataclass(frozen=True)
class Band:
    """A fault over the lanes that it hits."""

    lanes: tuple[int, ...]
    begin: float
    end: float
    event: Event


class Lanes:
    """The lanes of a run: hosts above and below the relays, their servers next to them."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        hosts = list(facts.hosts)
        relays = list(facts.relays)
        for event in facts.events:
            name, _, part = event["party"].partition(".")
            if part in ("server", *OF_HOST) and name not in hosts:
                hosts.append(name)
        above = (len(hosts) + 1) // 2
        self.all: list[Lane] = [Lane(LAB, "lab", LAB)]
        for name in hosts[:above]:
            self.all += [Lane(f"{name}.{part}", part, name) for part in HOST_PARTS]
        self.all += [Lane(name, "relay", name) for name in relays]
        for name in hosts[above:]:
            self.all += [Lane(f"{name}.{part}", part, name) for part in reversed(HOST_PARTS)]
        self.index = {lane.name: number for number, lane in enumerate(self.all)}
        self.hosts, self.relays = hosts, relays
        self._sessions = self._owners()

    def _owners(self) -> dict[str, str]:
        """Session -> the host that it is of: two hosts may share one identity, hence one folder of files."""
        found: dict[str, str] = {}
        for event in self.facts.events:
            name, _, part = event["party"].partition(".")
            session = event.get("session")
            if part in ("host", "agent", "server", "listener") and isinstance(session, str):
                found.setdefault(session, name)
        return found

    def of(self, event: Event) -> int:
        """The lane of an event."""
        name, _, part = event["party"].partition(".")
        if name in self.hosts:
            if part == "files":
                name = self._sessions.get(event.get("session", ""), name)
            lane = "listener" if event["kind"] in OF_LISTENER else OF_HOST.get(part, "server")
            return self.index[f"{name}.{lane}"]
        return self.index.get(name, 0)

    def server(self, host: str) -> int:
        return self.index[f"{host}.server"]

    def agent(self, host: str) -> int:
        return self.index[f"{host}.host"]

    def of_target(self, target: str) -> tuple[int, ...]:
        """The lanes that a fault with this target hits: one of a host's, all of a host's, a relay's, a link's."""
        if target in self.index:
            return (self.index[target],)
        name, _, part = target.partition(".")
        if name in self.hosts:
            if part:
                return (self.index[f"{name}.{OF_HOST.get(part, 'server')}"],)
            return tuple(i for i, lane in enumerate(self.all) if lane.group == name)
        host, _, relay = target.partition("-")  # a link
        if host in self.hosts and (not relay or relay in self.relays):
            return (self.server(host),)
        return (self.index.get(name, 0),)


def bars(facts: Facts, lanes: Lanes) -> list[Bar]:
    """Process lives, armed spans and turns, each cut where the run or its process ends."""
    end = facts.events[-1]["t"] if facts.events else 0.0
    found: list[Bar] = []
    open_: dict[tuple[str, ...], Event] = {}

    def close(key: tuple[str, ...], at: float, ends: str = "", violent: bool = False) -> None:
        begun = open_.pop(key, None)
        if begun is not None:
            found.append(Bar(key[0], lanes.of(begun), begun["t"], max(at, begun["t"]), begun, ends, violent))

    for event in facts.events:
        kind, party = event["kind"], event["party"]
        if kind == "start":
            open_["life", party, str(event.get("pid"))] = event
        elif kind == "exit":
            code = event.get("code")
            killed = isinstance(code, int) and code < 0
            told = (
                "ended, by whom nobody knows" if code is None else f"signal {-code}" if killed else f"exit {code}"
            )
            close(("life", party, str(event.get("pid"))), event["t"], told, code in (-9, -6, -11))
            if party.endswith(".host"):
                close(("turn", party), event["t"])
        elif kind == "turn":
            close(("turn", party), event["t"])
            open_["turn", party] = event
        elif kind == "turn.end":
            close(("turn", party), event["t"])
        elif kind == "armed":
            open_.setdefault(("armed", party, str(event.get("session"))), event)
        elif kind == "unarmed":
            close(("armed", party, str(event.get("session"))), event["t"])
    for key in list(open_):
        close(key, facts.ended if key[0] == "armed" else end)  # nobody watches files after the run proper
    return sorted(found, key=lambda b: (b.begin, b.lane))


def bands(facts: Facts, lanes: Lanes) -> list[Band]:
    """The faults."""
    return [Band(lanes.of_target(event["target"]), a, b, event) for a, b, event in facts.faults]
