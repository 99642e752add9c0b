"""Events and runs as lines of text."""

from typing import Any

from interlink_lab.history import Event

SKIPPED = ("t", "party", "n", "kind")
VALUE_CHARS = 60


def line(event: Event) -> str:
    """One event: time, party, kind, and its values, cut."""
    values = " ".join(
        f"{clean(k)}={_short(v)}" for k, v in event.items() if k not in SKIPPED and v not in ("", None)
    )
    return f"{event['t']:9.3f}  {clean(event['party']):<16} {clean(event['kind']):<12} {values}"


def clean(text: str) -> str:
    """The text without what a terminal would act on."""
    return "".join(c if c.isprintable() else "?" for c in text.replace("\n", " "))


def _short(value: Any) -> str:
    if isinstance(value, list):
        return f"[{len(value)}]"
    text = clean(str(value))
    return text if len(text) <= VALUE_CHARS else text[: VALUE_CHARS - 1] + "…"
