"""Messages made by the lab itself with a host's key, or with none: copies, collisions, forgeries, strangers."""

import http.client
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from interlink_lab.wire import Signer, send_body

TIMEOUT_S = 10.0


def sign(key_file: Path | None, to: str, text: str, fields: dict[str, Any], tamper: bool) -> dict[str, object]:
    """A message of the key in the file (none: of a new key); `tamper`: its text is changed after the signing."""
    signer = Signer.fresh() if key_file is None else Signer.load(key_file)
    message = signer.message(to, text, **fields)
    if tamper:
        message["text"] = f"{message['text']} "
    return message


def post(url: str, route: str, message: dict[str, object]) -> int:
    """Give it to a relay; the HTTP status. OSError."""
    return _ask(url, "POST", "/send", send_body(route, message))[0]


def waiting(url: str, route: str) -> int | None:
    """How many messages wait in a relay for a route (100 and more: 100), None where it does not say. Takes none.
    OSError, ValueError."""
    status, answer = _ask(url, "GET", f"/recv?me={quote(route, safe='')}&timeout_ms=0&max=100")
    return len(json.loads(answer).get("messages", ())) if status == 200 else None


def _ask(url: str, method: str, target: str, body: bytes | None = None) -> tuple[int, bytes]:
    """(status, body) of one request to a relay. OSError."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=TIMEOUT_S)
    try:
        connection.request(method, target, body, {"Content-Type": "application/json"} if body else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
