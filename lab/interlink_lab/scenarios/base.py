"""Scenarios by name: a topology and what happens in it.

@scenario("my-case", "what it shows", two_hosts())
async def my_case(run: Run) -> None:
    await run.host("alice").send(run.host("bob"))
    await run.settled()
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from interlink_lab.run import Run
from interlink_lab.topology import Topology

Body = Callable[[Run], Awaitable[None]]


@dataclass(frozen=True)
class Scenario:
    """`backends` names where it can run; `span_s` how long a random one was told to go on; `silent`: it sends
    nothing. Any other run in which no message was accepted proves nothing, and is broken. `patience_s`: how long
    it waits for anything, in place of the run's own guard time."""

    name: str
    what: str
    topology: Topology
    body: Body
    backends: tuple[str, ...] = ("process", "docker")
    span_s: float | None = None
    silent: bool = False
    patience_s: float | None = None


KNOWN: dict[str, Scenario] = {}


def scenario(
    name: str,
    what: str,
    topology: Topology,
    backends: tuple[str, ...] = ("process", "docker"),
    silent: bool = False,
) -> Callable[[Body], Body]:
    """Make a function a scenario. ValueError for a name that is taken."""

    def add(body: Body) -> Body:
        if name in KNOWN:
            raise ValueError(f"two scenarios named {name}")
        KNOWN[name] = Scenario(name, what, topology, body, backends, silent=silent)
        return body

    return add
