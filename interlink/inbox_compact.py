"""Drops what the listener has consumed from a session's inbox file (T6). Beside `inbox.py`, which stays light."""

from interlink import inbox
from interlink.state import files
from interlink.state.flock import Flock
from interlink.state.paths import Layout


def consumed_bytes(layout: Layout, session: str) -> tuple[int, int]:
    """(bytes before the cursor, bytes in all) of an inbox; (0, 0) without one. Takes no lock, changes nothing."""
    found = files.signature(layout.inbox(session))
    if found is None:
        return 0, 0
    cursor = inbox.read_cursor(layout, session)
    return (cursor if cursor <= found[1] else 0), found[1]


def compact(layout: Layout, session: str) -> int:
    """Keep only what lies behind the cursor; returns the bytes that went.

    The cursor goes to 0 before the shorter file takes the place of the longer one: a crash in between repeats
    notices, and never skips one. Raises StateError; the inbox is then what it was, or to be read from the start.
    """
    path = layout.inbox(session)
    with Flock(layout.inbox(session, "io-lock")):
        done, _ = consumed_bytes(layout, session)
        if done == 0:
            return 0
        data = files.read_bytes(path) or b""
        start = data.rfind(b"\n", 0, done) + 1  # a cursor inside a line (not one of ours) keeps that line
        if start == 0:
            return 0
        files.atomic_write(layout.inbox(session, "cursor"), b"0")
        files.atomic_write(path, data[start:])
    return start


def unconsumed(layout: Layout, session: str) -> int:
    """Whole lines behind the cursor that are not blank. Takes no lock; one being written does not count."""
    data = files.read_bytes(layout.inbox(session)) or b""
    done, _ = consumed_bytes(layout, session)
    start = data.rfind(b"\n", 0, done) + 1
    return sum(1 for line in data[start:].split(b"\n")[:-1] if line.strip())
