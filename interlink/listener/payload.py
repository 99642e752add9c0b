"""The hook's payload on standard input: one JSON object, of which we need `session_id` (F3).

The host may leave the pipe open, send in drips or send nothing: the object's last brace ends the reading, a
pause of `wait_s` or `total_s` in all end it without a result. Nothing here waits for the end of input.
"""

import os
import time

MAX_BYTES = 1 << 20
_CHUNK = 1 << 16


def read_session_id(fd: int, wait_s: float, total_s: float) -> str:
    """The payload's session id; "" where there is no usable payload."""
    if os.isatty(fd):
        return ""
    found = b""
    end = time.monotonic() + total_s
    while len(found) <= MAX_BYTES:
        chunk = _read(fd, min(wait_s, end - time.monotonic()))
        if not chunk:
            return ""
        found += chunk
        start = found.removeprefix(b"\xef\xbb\xbf").lstrip()
        if not start:
            continue
        if not start.startswith(b"{"):
            if not b"\xef\xbb\xbf".startswith(found):
                return ""
        elif b"}" in chunk:
            value = _object(start)
            if value is not None:
                session = value.get("session_id")
                return session if isinstance(session, str) else ""
    return ""


def _object(data: bytes) -> dict[str, object] | None:
    """The first whole object of `data`, None while there is none."""
    import json

    try:
        value, _end = json.JSONDecoder(strict=False).raw_decode(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _read(fd: int, wait_s: float) -> bytes:
    """The next bytes; b"" for the end of input, and after `wait_s` seconds without any."""
    if os.name == "nt":
        return _read_by_thread(fd, wait_s)
    import select

    end = time.monotonic() + wait_s
    while True:
        try:
            ready, _, _ = select.select([fd], [], [], max(0.0, end - time.monotonic()))
            return os.read(fd, _CHUNK) if ready else b""
        except BlockingIOError:
            continue  # somebody else took the bytes; select waits on
        except OSError:
            return b""  # closed, or a directory: no payload


def _read_by_thread(fd: int, wait_s: float) -> bytes:
    # select takes sockets only on Windows. The thread that still waits ends with the process.
    import threading

    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(os.read(fd, _CHUNK)), daemon=True)
    reader.start()
    reader.join(max(0.0, wait_s))
    return got[0] if got else b""
