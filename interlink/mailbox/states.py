"""The delivery states and the edges between them: the one table (S1 to S3)."""

from typing import Final

PENDING: Final = "pending"
BUS_ACCEPTED: Final = "bus_accepted"
EXPIRED: Final = "expired"
RECEIVER_STORED: Final = "receiver_stored"
INBOX_QUEUED: Final = "inbox_queued"
NOTIFICATION_SENT: Final = "notification_sent"
HOST_QUEUED: Final = "host_queued"
DELIVERY_FAILED: Final = "delivery_failed"
RECEIVER_ACKNOWLEDGED: Final = "receiver_acknowledged"
UNDELIVERABLE: Final = "undeliverable"

ARRIVAL: Final = "arrival"  # not a state: where an inbound message comes from
HANDOFFS: Final = (INBOX_QUEUED, NOTIFICATION_SENT, HOST_QUEUED, DELIVERY_FAILED)
INBOUND: Final = frozenset({RECEIVER_STORED, *HANDOFFS, RECEIVER_ACKNOWLEDGED, UNDELIVERABLE})

EDGES: Final[dict[str, tuple[str, ...]]] = {
    # outbound
    PENDING: (BUS_ACCEPTED, EXPIRED),
    BUS_ACCEPTED: (),
    EXPIRED: (),
    # inbound
    ARRIVAL: (RECEIVER_STORED, UNDELIVERABLE),
    RECEIVER_STORED: (*HANDOFFS, RECEIVER_ACKNOWLEDGED),
    **dict.fromkeys(HANDOFFS, (*HANDOFFS, RECEIVER_ACKNOWLEDGED)),
    RECEIVER_ACKNOWLEDGED: (),
    UNDELIVERABLE: (),
}

# What each state proves and what it does not (S1, S2).
MEANING: Final[dict[str, str]] = {
    PENDING: "in this session's outbox; no relay has it yet",
    BUS_ACCEPTED: "at least one relay has it; this does not prove that the receiver has it",
    EXPIRED: "no relay took it within its lifetime; it will not be sent",
    RECEIVER_STORED: "verified and on disk here; no host was told yet",
    INBOX_QUEUED: "a notice is in the listener's inbox; this does not prove that the host woke",
    NOTIFICATION_SENT: "a notice was written to the host's channel; this does not prove that the host took it",
    HOST_QUEUED: "the host queued a notice; this does not prove that a turn will run",
    DELIVERY_FAILED: "the last notice failed; the message is safe here and notices go on",
    RECEIVER_ACKNOWLEDGED: "acknowledged here; this does not prove that the work was done",
    UNDELIVERABLE: "over the receiver's size limit: set aside, not fetched",
}


def allowed(old: str, new: str) -> bool:
    """True when the table has the edge. Staying in a state is no edge."""
    return new in EDGES.get(old, ())


def advance(old: str, new: str) -> str:
    """The state after a wish to move: `new` along an edge, else `old` (a late handoff after an
    acknowledgement changes nothing, S3)."""
    return new if allowed(old, new) else old
