"""`interlink-mcp nudge`, a PostToolUse hook: reminds an executor that went quiet to report (T4).

Prints the host's JSON with `additionalContext`, or nothing; always exits 0, since a reminder is worth no
failure of the tool call that it follows. Light: it runs after every tool call.
"""

import os
import time
from collections.abc import Sequence

from interlink.errors import EXIT_OK, InterlinkError
from interlink.hosts import registry
from interlink.listener import payload
from interlink.listener.host import Host
from interlink.settings import load
from interlink.state.paths import Layout, state_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

TEXT = (
    "interlink: you work on task {task} for {peer} and have not reported for a while. If there is progress to "
    'tell, send_message(to={peer}, task_id={task}, status="update", text=...); it wakes nobody. Use '
    "status=needs_input when you are blocked, and end with result, failed or canceled."
)


def run(_argv: Sequence[str]) -> "NoReturn":
    """Look, perhaps print, exit 0."""
    try:
        out = remind()
        if out:
            os.write(1, out)
    except (InterlinkError, OSError) as exc:
        from interlink import log

        log.event("nudge_failed", error=exc)
    finally:
        os._exit(EXIT_OK)


def remind() -> bytes:
    """The hook's answer, empty when no reminder is due. Raises InterlinkError or OSError."""
    from interlink import tasks

    settings = load(os.environ)
    layout = Layout(state_root(os.environ))
    if settings.progress_interval_s <= 0 or not os.path.isdir(os.path.join(layout.root, "task")):
        return b""
    found = registry.resolve(
        layout,
        os.environ,
        Host(os.environ).process,
        payload=lambda: payload.read_session_id(0, settings.payload_wait_s, settings.payload_total_s),
    )
    task = tasks.nudge_due(layout, found.session, settings.progress_interval_s, time.time_ns() // 1_000_000)
    if task is None:
        return b""
    import json

    from interlink.text import attribute, clean_line

    peer, task_id = (
        json.dumps(clean_line(attribute(v), 64), ensure_ascii=False) for v in (task.peer, task.task_id)
    )
    text = TEXT.format(task=task_id, peer=peer)
    answer = {"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": text}}
    return json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
