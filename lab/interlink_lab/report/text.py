"""Events and runs as lines of text."""

from typing import Any

from interlink_lab.history import Event

SKIPPED = ("t", "party", "n", "kind")
VALUE_CHARS = 60


def line(event: Event) -> str:
    """One event: time, party, kind, and its values, cut."""
    values = " ".join(f"{k}={_short(v)}" for k, v in event.items() if k not in SKIPPED and v not in ("", None))
    return f"{event['t']:9.3f}  {event['party']:<16} {event['kind']:<12} {values}"


def _short(value: Any) -> str:
    if isinstance(value, list):
        return f"[{len(value)}]"
    text = str(value).replace("\n", " ")
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= VALUE_CHARS else text[: VALUE_CHARS - 1] + "…"
