"""Reads a recorded run: its history, its verdict, what is wrong with it."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interlink_lab.checker import check
from interlink_lab.history import Event, History
from interlink_lab.verdict import Verdict, row


@dataclass
class Recorded:
    """One run. `violations` as in verdict.json: invariant, text, events."""

    folder: Path
    history: History
    verdict: Verdict | None = None
    violations: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What the reader has to know about the recording itself."""


def load(run: Path, recheck: bool = False) -> Recorded:
    """The run of a folder, or of a history file.

    The violations are those of verdict.json; without one, or with `recheck`, the checker looks again.
    OSError, ValueError for what is no run.
    """
    path = run / "history.jsonl" if run.is_dir() else run
    history, torn = _history(path)
    found = Recorded(path.parent, history)
    if torn:
        found.notes.append("the last line of the history is torn: the lab itself was ended while it wrote")
    if (path.parent / "verdict.json").is_file():
        found.verdict = Verdict.load(path.parent)
    if found.verdict is None or recheck:
        try:
            found.violations = [row(v) for v in check(history)]
        except (KeyError, TypeError) as exc:
            raise ValueError(f"{path.name} cannot be checked: an event lacks {exc}") from exc
        found.notes.append("checked again for this report")
    else:
        found.violations = found.verdict.violations
        if found.verdict.events != len(history.events):
            found.notes.append(
                f"the verdict tells of {found.verdict.events} events, here are {len(history.events)}"
            )
    return found


def _history(path: Path) -> tuple[History, bool]:
    """The history, and whether its last line is torn. ValueError for any other line that is no event."""
    history, lines = History(), path.read_text("utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            event = json.loads(line, parse_constant=_no_number)
        except ValueError as exc:
            if number == len(lines):
                return history, True
            raise ValueError(f"{path.name}:{number}: {exc}") from exc
        if not _is_event(event):
            raise ValueError(f"{path.name}:{number}: no event")
        history.events.append(event)
    return history, False


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number of a history")


def _is_event(event: object) -> bool:
    return (
        isinstance(event, dict)
        and isinstance(event.get("t"), (int, float))
        and all(isinstance(event.get(key), str) for key in ("party", "kind"))
        and isinstance(event.get("n"), int)
    )


def identity(event: Event) -> tuple[float, str, int, str]:
    """What tells an event from all others of its history.

    The checker moves the first sight of a record to the time of the server's log line; `seen_at` is its own time.
    """
    at = event["seen_at"] if "seen_at" in event else event["t"]
    return at, event["party"], event["n"], event["kind"]
