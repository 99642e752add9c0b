"""What every host adapter offers: one call that hands over a notice and says truly what became of it (M2)."""

from dataclasses import dataclass
from typing import Protocol

from interlink.mailbox.states import DELIVERY_FAILED, HOST_QUEUED, INBOX_QUEUED, NOTIFICATION_SENT

__all__ = [
    "DELIVERY_FAILED",
    "HOST_QUEUED",
    "INBOX_QUEUED",
    "NOTIFICATION_SENT",
    "HostAdapter",
    "Notice",
    "Outcome",
]


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice ready to be shown. It never holds a body (M3).

    `through`: the highest admission sequence that it covers (C11); `count`: how many messages; `kind`: "notice",
    or "pairing", whose messages are not in the mailbox.
    """

    id: str
    text: str
    through: int
    count: int
    kind: str = "notice"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`state` is one of the delivery states of S. `reason` says why it failed.

    `uncertain`: it may have arrived (a timeout). `permanent`: trying again cannot help.
    """

    state: str
    ok: bool
    uncertain: bool = False
    reason: str = ""
    permanent: bool = False


class HostAdapter(Protocol):
    """One kind of host. A new host is one file with this interface.

    `uses_inbox`: its notices lie in the session's inbox until the listener takes them, so that the server
    keeps `inbox.set_consumed` true (C11).
    """

    name: str
    uses_inbox: bool

    async def handoff(self, notice: Notice) -> Outcome:
        """Hand the notice over. A failure is an Outcome, not an exception."""
        ...

    async def aclose(self) -> None:
        """Leave nothing running."""
        ...
