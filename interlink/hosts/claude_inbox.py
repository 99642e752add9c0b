"""Claude Code by its Stop hook: a notice becomes a line of the session's inbox, which the listener hands over."""

from anyio import to_thread

from interlink import inbox
from interlink.errors import StateError
from interlink.hosts.base import DELIVERY_FAILED, INBOX_QUEUED, Notice, Outcome
from interlink.state.paths import Layout


class ClaudeInbox:
    """The adapter of one session (C2, C6). Claim the inbox first: `inbox.claim`."""

    name = "claude"
    uses_inbox = True

    def __init__(self, layout: Layout, session: str) -> None:
        self._layout = layout
        self._session = session

    async def handoff(self, notice: Notice) -> Outcome:
        """`inbox_queued` once the line is on disk, `delivery_failed` with the reason where it could not be.

        Cancelled, it still ends what it began: the line is then whole or absent.
        """
        try:
            await to_thread.run_sync(inbox.append, self._layout, self._session, record_of(notice))
        except StateError as exc:
            return Outcome(DELIVERY_FAILED, ok=False, reason=str(exc))
        return Outcome(INBOX_QUEUED, ok=True)

    async def aclose(self) -> None:
        """Nothing runs between two handoffs."""


def record_of(notice: Notice) -> dict[str, object]:
    """The inbox record of a notice. Only one about the mailbox says `through`: a pairing notice always wakes."""
    record: dict[str, object] = {
        "sender": inbox.NOTICE_SENDER,
        "msg_id": notice.id,
        "content": notice.text,
        "notification_id": notice.id,
        "kind": notice.kind,
    }
    if notice.kind == "notice":
        record["through"] = notice.through
    return record
