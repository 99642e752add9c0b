"""The progress marker of an executor (T4): which task it works on, when it last reported.

`task/<session>/current-task.json` `{task_id, peer, since}`, `last-update`, `last-nudge` (ms as text). Best effort:
a marker that cannot be written costs a reminder, never a message. One marker a session; a later task takes its
place.

Light on purpose: a hook imports this file after every tool call of the host.
"""

import os

from interlink.errors import StateError
from interlink.state import files
from interlink.state.paths import Layout

MARKER = "current-task.json"
LAST_UPDATE = "last-update"
LAST_NUDGE = "last-nudge"
ENDS = ("result", "failed", "canceled")


class Task:
    """The marked task."""

    __slots__ = ("peer", "since_ms", "task_id")

    def __init__(self, task_id: str, peer: str, since_ms: int) -> None:
        self.task_id = task_id
        self.peer = peer
        self.since_ms = since_ms


def received(
    layout: Layout, session: str, task_id: str | None, status: str | None, peer: str, now_ms: int
) -> None:
    """A message came in: work without a status marks its task, a cancellation clears it. Raises StateError."""
    if task_id is None:
        return
    if status is None:
        import json

        folder = files.ensure_dir(layout.task_dir(session), layout.root)
        marker = {"task_id": task_id, "peer": peer, "since": now_ms}
        files.atomic_write(os.path.join(folder, MARKER), json.dumps(marker).encode("utf-8"), durable=False)
        _stamp(folder, LAST_UPDATE, now_ms)
    elif status == "canceled":
        _clear(layout, session, task_id)


def sent(layout: Layout, session: str, task_id: str | None, status: str | None, now_ms: int) -> None:
    """A message went out: any status counts as a report, a terminal one ends its task. Raises StateError."""
    if task_id is None or status is None:
        return
    if status in ENDS:
        _clear(layout, session, task_id)
    folder = layout.task_dir(session)
    if os.path.isdir(folder):
        _stamp(folder, LAST_UPDATE, now_ms)


def current(layout: Layout, session: str) -> Task | None:
    """The marked task; None for none, or for a marker that does not parse."""
    data = files.read_bytes(os.path.join(layout.task_dir(session), MARKER), limit=1 << 16)
    if data is None:
        return None
    import json

    try:
        found = json.loads(data)
        return Task(str(found["task_id"]), str(found.get("peer", "")), int(found.get("since", 0)))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def nudge_due(layout: Layout, session: str, interval_s: float, now_ms: int) -> Task | None:
    """The task that wants a report, stamped as nudged; None while none is due or `interval_s` is 0 (T4)."""
    if interval_s <= 0:
        return None
    task = current(layout, session)
    if task is None:
        return None
    folder = layout.task_dir(session)
    for name in (LAST_UPDATE, LAST_NUDGE):
        quiet_ms = now_ms - _stamped(folder, name)
        if 0 <= quiet_ms < interval_s * 1000:
            return None
    _stamp(folder, LAST_NUDGE, now_ms)
    return task


def _clear(layout: Layout, session: str, task_id: str) -> None:
    task = current(layout, session)
    if task is not None and task.task_id == task_id:
        try:
            os.unlink(os.path.join(layout.task_dir(session), MARKER))
        except FileNotFoundError:
            return  # another process of this session cleared it
        except OSError as exc:
            raise files.explain(exc, "clear the task marker") from exc


def _stamp(folder: str, name: str, now_ms: int) -> None:
    files.atomic_write(os.path.join(folder, name), str(now_ms).encode("ascii"), durable=False)


def _stamped(folder: str, name: str) -> int:
    try:
        data = files.read_bytes(os.path.join(folder, name), limit=64) or b""
    except StateError:
        return 0
    text = data.decode("ascii", "replace").strip()
    return int(text) if text.isdigit() else 0
