"""How commands print: UTF-8, nothing that a terminal would act on, times and sizes for people (F11, F15)."""

import json
import sys
import time
import unicodedata

import click

from interlink.errors import UsageError
from interlink.settings import Settings
from interlink.text import count as count  # beside the other forms

_LINE_ENDS = dict.fromkeys(map(ord, "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), "\n")


class _Printable(dict[int, str]):
    """A table for `str.translate`: control, format, surrogate and unassigned characters vanish."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        keep = char == "\n" or unicodedata.category(char)[0] != "C"
        self[code] = char if keep else ""
        return self[code]


_printable = _Printable(_LINE_ENDS)
_printable[0x09] = "    "


def clean_block(text: str) -> str:
    """Several lines without any character that a terminal acts on; every kind of line end becomes a newline."""
    return text.replace("\r\n", "\n").translate(_printable)


def body_lines(text: str, *, max_chars: int | None, mark: str = "  | ") -> str:
    """A body as lines, each behind `mark`, so that it cannot pass for our own output; cut to `max_chars`."""
    cut = text if max_chars is None else text[:max_chars]
    lines = [mark + line for line in clean_block(cut).rstrip("\n").split("\n")]
    left = len(text.encode("utf-8")) - len(cut.encode("utf-8"))
    if left:
        lines.append(f"{mark}[{left} more bytes: --full shows them]")
    return "\n".join(lines)


def say(text: str = "") -> None:
    """One line, or several, to standard output."""
    click.echo(text)


def note(text: str) -> None:
    """What does not belong to the result: to standard error."""
    click.echo(f"interlink: {text}", err=True)


def print_json(value: object) -> None:
    """A value as JSON in ASCII, one line."""
    click.echo(json.dumps(value, separators=(",", ":")))


def stamp(ms: int) -> str:
    """A time, ms since 1970, as `2026-01-31T12:00:00Z`."""
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms / 1000))
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"


def span(ms: float) -> str:
    """A length of time in its two largest units at most: `45 s`, `3 min`, `2 h 5 min`, `4 d`."""
    seconds = int(abs(ms) // 1000)
    if seconds < 60:
        return f"{seconds} s"
    minutes = seconds // 60
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} d"


def size(count: int) -> str:
    """A number of bytes: `812 B`, `14 KiB`, `3.2 MiB`."""
    if count < 1024:
        return f"{count} B"
    if count < 1024 * 1024:
        return f"{count / 1024:.0f} KiB"
    return f"{count / 1024 / 1024:.1f} MiB"


def read_text(settings: Settings, undone: str) -> str:
    """Standard input as UTF-8. UsageError: empty, too long (names size and limit), not UTF-8."""
    limit = settings.text_max_bytes
    parts: list[bytes] = []
    total = 0
    stream = getattr(sys.stdin, "buffer", None)
    while stream is not None and (chunk := stream.read(1 << 16)):
        total += len(chunk)
        if total <= limit:
            parts.append(chunk)
        elif total > 16 * limit:
            break  # no end in sight: how long it is altogether is of no use to anybody
    if total > limit:
        more = "more than " if total > 16 * limit else ""
        raise UsageError(
            f"the text has {more}{total} bytes, more than the {limit} that one message may have: split it. "
            f"{undone}"
        )
    if not total:
        raise UsageError(f"there is no text on standard input. {undone}")
    try:
        return b"".join(parts).decode("utf-8")
    except UnicodeDecodeError as exc:
        raise UsageError(f"the text on standard input is not UTF-8 (byte {exc.start}). {undone}") from exc
