"""One line an event, `key=value`, to stderr. Bodies and keys never go in (fingerprints may).

    log.event("relay_down", url=url, error=exc)
    -> ts=1764528000123 event=relay_down url=http://127.0.0.1:9440 error="connection refused"

Light on purpose (no `logging`): server, relay and commands share it.
"""

import sys
import time
from threading import Lock

_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/@+#*,()[]~%")
_lock = Lock()
MAX_VALUE_CHARS = 400


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
    """Write one event line to stderr. A closed or broken stderr is no reason to fail."""
    line = format_event(name, time.time_ns() // 1_000_000, fields) + "\n"
    data = line.encode("utf-8", "replace").decode("utf-8")
    with _lock:
        try:
            sys.stderr.write(data)
            sys.stderr.flush()
        except (OSError, ValueError, AttributeError):
            return  # nobody reads our stderr any more: there is no other place to say so
