"""Claude Code's native channel: a notice is pushed through the MCP connection (N1, N3).

A push that succeeds says only that the bytes are in the pipe: `notification_sent`, and the schedule goes on.
"""

from collections.abc import Awaitable, Callable, Mapping

import anyio

from interlink.errors import InterlinkError
from interlink.hosts.base import DELIVERY_FAILED, NOTIFICATION_SENT, Notice, Outcome

Push = Callable[[str, Mapping[str, str]], Awaitable[None]]


class ClaudeChannel:
    """The adapter of one connection. `push` waits for room in the pipe; here it is bounded to `limit_s`."""

    name = "claude-channel"
    uses_inbox = False

    def __init__(self, push: Push, limit_s: float) -> None:
        self._push = push
        self._limit_s = limit_s

    async def handoff(self, notice: Notice) -> Outcome:
        """`notification_sent` once the system took the bytes; a push that hangs is given up, outcome unknown."""
        try:
            with anyio.fail_after(self._limit_s):
                await self._push(notice.text, meta_of(notice))
        except TimeoutError:
            reason = f"the host did not take the push within {self._limit_s:g} s; whether it is shown is unknown"
            return Outcome(DELIVERY_FAILED, ok=False, uncertain=True, reason=reason)
        except InterlinkError as exc:
            return Outcome(DELIVERY_FAILED, ok=False, reason=str(exc))
        return Outcome(NOTIFICATION_SENT, ok=True)

    async def aclose(self) -> None:
        """Nothing of ours runs."""


def meta_of(notice: Notice) -> dict[str, str]:
    """What goes beside the text; hosts take strings alone (N1)."""
    ordinary = notice.kind == "notice"
    return {
        "sender": "Interlink",
        "msg_id": notice.id,
        "notification_id": notice.id,
        "ack_required": "true" if ordinary else "false",
        "ack_tool": "acknowledge_messages" if ordinary else "",
    }
