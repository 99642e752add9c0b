"""Where a run's nodes live. A backend starts nodes and says how they reach each other; all else is the same."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from interlink_lab.history import Event
from interlink_lab.remote import Remote

OnEvent = Callable[[Event], None]


class NodeHandle(Protocol):
    """A node that runs. `remote`: its operations (`node.Node.do_*`)."""

    name: str
    remote: Remote

    async def kill(self) -> None:
        """The whole machine at once: everything on it gets SIGKILL."""

    async def close(self) -> None:
        """End it and what runs on it."""

    async def collect(self, into: Path) -> None:
        """Copy its files to a folder."""


class Backend(Protocol):
    """`process` or `docker`."""

    name: str
    relay_bind: str
    """Address that a relay binds (host:port)."""

    async def start_node(self, name: str, on_event: OnEvent) -> NodeHandle:
        """A new node of this name."""

    def relay_address(self, node: str, addr: str) -> str:
        """The host:port by which other nodes reach the relay of a node that listens on `addr`."""

    async def close(self) -> None:
        """Everything that is left of the run's machines."""
