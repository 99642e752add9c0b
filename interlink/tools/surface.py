"""The words that tools and the serving room share: what a tool is, a call, an answer, the host's connection.

No SDK in here, so that a program which only reads tool definitions stays light. `serving` gives them again.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from interlink.errors import InterlinkError


class ToolDef(NamedTuple):
    """One tool as hosts see it. The four flags must be true to what it does: hosts ask a person by them (H15).

    `input_schema`, `output_schema`: JSON Schema objects. `hidden`: for hooks, kept from the model (H13).
    """

    name: str
    title: str
    description: str
    input_schema: dict[str, Any]
    read_only: bool
    destructive: bool
    idempotent: bool
    open_world: bool
    output_schema: dict[str, Any] | None = None
    hidden: bool = False


class Answer(NamedTuple):
    """What a tool answers. `text` None: no content at all (H12). `structured`: JSON values, keys are strings."""

    text: str | None
    structured: dict[str, Any] | None = None
    is_error: bool = False


class Closed(InterlinkError):
    """The connection to the host is over, or the host stopped reading: nothing can be sent any more."""


class Connection(Protocol):
    """The one host that this server talks to."""

    @property
    def client_name(self) -> str:
        """The host's name for itself, "" before its handshake."""
        ...

    @property
    def client_version(self) -> str:
        """The host's version, "" before its handshake."""
        ...

    @property
    def can_elicit(self) -> bool:
        """True where the host can show its person a form (G8)."""
        ...

    async def initialized(self) -> None:
        """Returns once the host has finished its handshake. Waits for ever: the caller bounds it."""
        ...

    async def push_channel(self, content: str, meta: Mapping[str, str]) -> None:
        """Push one `notifications/claude/channel`; returns once the system took all its bytes (N1, H20).

        Waits for the handshake and for room in the pipe: the caller bounds it. Cancelled before its first
        byte was written, it is never sent. Raises Closed.
        """
        ...

    async def elicit(self, message: str, schema: dict[str, Any], timeout_s: float) -> dict[str, Any] | None:
        """Show a form to the host's person; what they filled in, None for every other outcome (G8).

        `schema`: a JSON Schema object with flat properties. None: declined, cancelled, not supported, no
        answer in `timeout_s`, or an answer that is none.
        """
        ...


class Call(NamedTuple):
    """One call of a tool. `meta` is the request's `_meta` as it came, {} where there is none (H13)."""

    name: str
    arguments: dict[str, Any]
    meta: dict[str, Any]
    connection: Connection
