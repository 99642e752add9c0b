"""HTTP to one relay: every call bounded in time and in bytes as a whole, whatever the relay does (M17).

Ends in an answer or a RelayError. Redirects are not followed, no proxy is used, no cookie is kept,
nothing is decompressed, and one relay's connections are no other's.
"""

import os
import socket
import ssl
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import anyio
import httpcore2

from interlink.errors import RelayError
from interlink.relay.answers import SHOWN_CHARS, Answer, Heavy, Slow, Unreachable
from interlink.relay.urls import tls_context, tls_trouble
from interlink.settings import Settings
from interlink.text import clean_line

OTHER_CALLS = 8  # connections beside those of sends: polls, acks, announcements, rosters


class Transport:
    """A relay's connections; `url` as `parse_urls` gives it."""

    def __init__(self, url: str, settings: Settings, token: str | None) -> None:
        self._closed = False
        self._connect_s = settings.connect_timeout_s
        parts = urlsplit(url)
        self._scheme, self._host = parts.scheme, parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._base = parts.path
        self._headers = [
            ("Host", parts.netloc),
            ("User-Agent", "interlink"),
            ("Accept", "application/json"),
            ("Accept-Encoding", "identity"),
        ]
        if token:
            self._headers.append(("Authorization", f"Bearer {token}"))
        # A bare context for http: the system's certificates cost time and memory and are of no use there.
        tls = tls_context() if parts.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=settings.send_parallel + OTHER_CALLS,
            keepalive_expiry=settings.keep_alive_s,
        )

    async def call(
        self, method: str, target: str, *, timeout_s: float, max_bytes: int, body: bytes | None = None
    ) -> Answer:
        """One request. `target`: path and query below the relay's address; `timeout_s` for all of it.

        RelayError without a whole answer: Unreachable where no connection was made, Heavy or Slow where
        an answer began and did not fit into the bytes or the time.
        """
        if self._closed:
            raise RelayError("is not used any more: its client is closed")
        headers = list(self._headers)
        if body is not None:
            headers.append(("Content-Type", "application/json"))
        url = httpcore2.URL(scheme=self._scheme, host=self._host, port=self._port, target=self._base + target)
        began = False
        start = time.monotonic()
        try:
            with anyio.fail_after(timeout_s):
                async with self._pool.stream(
                    method,
                    url,
                    headers=headers,
                    content=body,
                    extensions={"timeout": {"connect": self._connect_s}},
                ) as response:
                    began = True
                    latency_ms, got_ms = (time.monotonic() - start) * 1000, time.time_ns() // 1_000_000
                    found = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in response.headers}
                    if found.get("content-encoding", "identity").lower() != "identity":
                        raise RelayError("answers in a compressed form that was not asked for")
                    data = bytearray()
                    async for chunk in response.aiter_stream():
                        if len(data) + len(chunk) > max_bytes:
                            raise Heavy(f"answers with more than {max_bytes} bytes")
                        data += chunk
                    return Answer(response.status, found, bytes(data), got_ms, latency_ms)
        except RelayError:
            raise
        except TimeoutError as exc:
            kind = Slow if began else RelayError
            raise kind(f"gave no whole answer within {timeout_s:g} s") from exc
        except (httpcore2.ConnectTimeout, httpcore2.ConnectError) as exc:
            raise Unreachable(self._why_unreachable(exc)) from exc
        except httpcore2.ProtocolError as exc:
            raise RelayError(f"gave no valid HTTP answer: {clean_line(str(exc), SHOWN_CHARS)}") from exc
        except (httpcore2.TimeoutException, httpcore2.NetworkError, OSError) as exc:
            raise RelayError(f"broke the connection ({_system_text(exc)})") from exc
        except Exception as exc:  # whatever an answer does to the library, other relays go on
            raise RelayError(f"answers what the HTTP library cannot take ({type(exc).__name__})") from exc

    def _why_unreachable(self, exc: BaseException) -> str:
        if isinstance(exc, httpcore2.ConnectTimeout):
            return f"cannot be reached: no connection within {self._connect_s:g} s"
        for cause in _causes(exc):
            if isinstance(cause, ssl.SSLError):
                return tls_trouble(cause)
        return f"cannot be reached: {_system_text(exc)}"

    async def aclose(self) -> None:
        """Close every connection; calls under way end with RelayError."""
        self._closed = True
        await self._pool.aclose()


def _causes(exc: BaseException) -> Iterator[BaseException]:
    """An exception and what lies behind it, the first branch where there are several."""
    seen: BaseException | None = exc
    for _ in range(16):
        if seen is None:
            return
        yield seen
        inside = seen.exceptions[0] if isinstance(seen, BaseExceptionGroup) else None
        seen = inside or seen.__cause__ or seen.__context__


def _system_text(exc: BaseException) -> str:
    """What the system said of it: `Connection refused`, not the wrapping library's words."""
    for cause in _causes(exc):
        if isinstance(cause, OSError) and cause.errno:
            # asyncio puts words of its own into strerror; a resolver's numbers are no errno.
            own = isinstance(cause, socket.gaierror | socket.herror)
            return clean_line(str(cause.strerror) if own else os.strerror(cause.errno), SHOWN_CHARS)
    return clean_line(str(exc), SHOWN_CHARS) or type(exc).__name__
