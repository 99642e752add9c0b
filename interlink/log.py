"""One line an event, `key=value`, to stderr. Bodies and keys never go in (fingerprints may).

    log.event("relay_down", url=url, error=exc)
    -> ts=1764528000123 event=relay_down url=http://127.0.0.1:9440 error="connection refused"

Light on purpose (no `logging`): server, relay and commands share it.
"""

import select
import sys
import time
from threading import Lock

_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/@+#*,()[]~%")
_lock = Lock()
MAX_VALUE_CHARS = 400
MAX_LINE_CHARS = 1000  # at most 4,000 bytes: less than PIPE_BUF
_dropped = 0


def _value(value: object) -> str:
    text = str(value)[:MAX_VALUE_CHARS]
    if text and all(c in _SAFE for c in text):
        return text
    out = []
    for c in text:
        if c in '"\\':
            out.append("\\" + c)
        elif c.isprintable():
            out.append(c)
        else:
            out.append(f"\\u{ord(c):04x}")
    return '"' + "".join(out) + '"'


def format_event(name: str, ts_ms: int, fields: dict[str, object]) -> str:
    """The line for one event, without its newline; values are quoted where they need it."""
    parts = [f"ts={ts_ms}", f"event={name}"]
    parts += [f"{k}={_value(v)}" for k, v in fields.items() if v is not None]
    return " ".join(parts)


def event(name: str, **fields: object) -> None:
    """Write one event line to stderr. A closed or broken stderr is no reason to fail, a full one none to wait:
    what a host does not read is dropped, and counted in the next line that it reads."""
    global _dropped
    with _lock:
        if _dropped:
            fields["dropped"] = _dropped
        line = format_event(name, time.time_ns() // 1_000_000, fields)[:MAX_LINE_CHARS]
        try:
            if _would_block():
                _dropped += 1
                return
            sys.stderr.write(line.encode("utf-8", "replace").decode("utf-8") + "\n")
            sys.stderr.flush()
        except (OSError, ValueError, AttributeError):
            return  # nobody reads our stderr any more: there is no other place to say so
        _dropped = 0


def _would_block() -> bool:
    """True when stderr is a pipe without room for a line (select promises PIPE_BUF bytes of room)."""
    try:
        return not select.select([], [sys.stderr.fileno()], [], 0)[1]
    except (OSError, ValueError):
        return False  # no descriptor that select knows: a file object of a test, or of Windows
