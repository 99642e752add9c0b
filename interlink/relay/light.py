"""A small synchronous relay client for commands that make one call and end (`send`, `status`, `doctor`).

Plain `http.client`: no event loop, no proxies, no redirects. The same bounds and words as the client.
"""

import contextlib
import http.client
import socket
import ssl
import threading
import time
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from interlink.errors import RelayError
from interlink.relay import answers
from interlink.relay.answers import Answer
from interlink.relay.urls import tls_context, tls_trouble
from interlink.settings import KIB, Settings
from interlink.text import clean_line

SMALL_BYTES = 64 * KIB


class Healthz(NamedTuple):
    """What a relay says of itself: `ok`, else `detail` says why not; its clock ahead of ours in ms."""

    ok: bool
    detail: str
    latency_ms: float | None
    skew_ms: int | None


def healthz(url: str, timeout_s: float) -> Healthz:
    """Ask a relay whether it works. Never raises for the relay's sake.

    A relay without `/healthz` (404) that answers all the same is an older one: `ok`, and `detail` says so.
    """
    try:
        answer = _call(url, "GET", "/healthz", timeout_s, SMALL_BYTES)
    except RelayError as exc:
        return Healthz(False, str(exc), None, None)
    skew = answers.skew_ms(answer)
    if answer.status == 404:
        try:
            roster(url, None, timeout_s)
        except RelayError as exc:
            if exc.status != 401:
                return Healthz(False, str(exc), answer.latency_ms, skew)
        return Healthz(True, "an older relay, without /healthz", answer.latency_ms, skew)
    if answer.status != 200:
        return Healthz(False, str(answers.refusal(answer, 0)), answer.latency_ms, skew)
    return Healthz(True, "", answer.latency_ms, skew)


def roster(url: str, token: str | None, timeout_s: float) -> list[dict[str, Any]]:
    """A relay's roster, its entries unjudged. RelayError."""
    answer = _call(url, "GET", "/roster", timeout_s, Settings.roster_max_bytes, token=token)
    answers.check_json(answer, Settings.retry_after_max_s)
    return answers.read_roster(answer.body, Settings.roster_max)


def send(url: str, to: str, payload: str, token: str | None, timeout_s: float) -> None:
    """Hand one message (JSON text) to a relay; returns once the relay took it (202). RelayError, WireError."""
    body = answers.encode_send(to, payload)
    answer = _call(url, "POST", "/send", timeout_s, SMALL_BYTES, body=body, token=token)
    if answer.status != 202:
        raise answers.refusal(answer, Settings.retry_after_max_s)


def _call(
    url: str,
    method: str,
    target: str,
    timeout_s: float,
    max_bytes: int,
    *,
    body: bytes | None = None,
    token: str | None = None,
) -> Answer:
    """One request, `timeout_s` for all of it. RelayError without a whole answer."""
    parts = urlsplit(url)
    headers = {"Accept": "application/json", "User-Agent": "interlink", "Connection": "close"}
    if body is not None:
        headers["Content-Type"] = "application/json"
    if token:
        headers["Authorization"] = f"Bearer {token}"
    host = parts.hostname or ""
    link: http.client.HTTPConnection
    if parts.scheme == "https":
        link = http.client.HTTPSConnection(host, parts.port, timeout=timeout_s, context=tls_context())
    else:
        link = http.client.HTTPConnection(host, parts.port, timeout=timeout_s)
    expired = threading.Event()
    socks: list[socket.socket] = []

    def expire() -> None:
        # The timeout of a socket is of one read: a relay that drips would never meet it.
        expired.set()
        for sock in socks:
            with contextlib.suppress(OSError):  # it has ended by itself
                sock.shutdown(socket.SHUT_RDWR)

    watchdog = threading.Timer(timeout_s, expire)
    watchdog.daemon = True
    watchdog.start()
    start = time.monotonic()
    try:
        link.connect()
        socks.append(link.sock)  # the library forgets it before the body is read
        if expired.is_set():
            raise TimeoutError
        link.request(method, parts.path + target, body, headers)
        response = link.getresponse()
        latency_ms, got_ms = (time.monotonic() - start) * 1000, time.time_ns() // 1_000_000
        data = response.read(max_bytes + 1)
        if expired.is_set():
            raise RelayError(f"gave no whole answer within {timeout_s:g} s")
        if len(data) > max_bytes:
            raise RelayError(f"answers with more than {max_bytes} bytes")
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, found, data, got_ms, latency_ms)
    except (OSError, http.client.HTTPException, UnicodeError) as exc:
        if expired.is_set() or isinstance(exc, TimeoutError):
            raise RelayError(f"gave no whole answer within {timeout_s:g} s") from exc
        raise RelayError(_why(exc)) from exc
    finally:
        watchdog.cancel()
        link.close()


def _why(exc: Exception) -> str:
    if isinstance(exc, ssl.SSLError):
        return tls_trouble(exc)
    if isinstance(exc, ConnectionResetError | BrokenPipeError | http.client.RemoteDisconnected):
        return f"broke the connection ({clean_line(str(exc.strerror or exc), answers.SHOWN_CHARS)})"
    if isinstance(exc, OSError):
        return f"cannot be reached: {clean_line(exc.strerror or str(exc), answers.SHOWN_CHARS)}"
    return f"gave no valid HTTP answer: {clean_line(str(exc) or type(exc).__name__, answers.SHOWN_CHARS)}"
