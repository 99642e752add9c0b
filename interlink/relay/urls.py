"""Relay addresses: `INTERLINK_URL` read and checked, and how the server of an https one is verified.

Light on purpose: commands use it without the client.
"""

from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from interlink.errors import UsageError
from interlink.text import clean_line

if TYPE_CHECKING:
    import ssl


def parse_urls(text: str) -> list[str]:
    """Relay addresses of a comma-separated list, in order, each once, without a trailing slash (B2).

    An empty text is an empty list. UsageError names the address that is wrong, and why.
    """
    found: list[str] = []
    for part in text.split(","):
        part = part.strip()
        if part:
            url = _checked(part)
            if url not in found:
                found.append(url)
    return found


def _checked(part: str) -> str:
    """One address in its canonical form: scheme and host in lower case."""
    if not part.isascii() or not part.isprintable() or " " in part:
        raise _wrong(part, "it has a space, a control or a non-ASCII character")
    try:
        url = urlsplit(part)
        host, port = url.hostname, url.port
        (host or "x").encode("idna")
    except ValueError as exc:  # UnicodeError of a label that is empty or too long is one of these
        raise _wrong(part, str(exc)) from exc
    if url.scheme not in ("http", "https"):
        raise _wrong(part, "it does not start with http:// or https://")
    if not host:
        raise _wrong(part, "it names no host")
    if port == 0:
        raise _wrong(part, "port 0 cannot be connected to")
    if url.username is not None or url.password is not None:
        raise _wrong(_without_user(url), "it holds a user name or password; a relay knows a token only")
    if url.query or url.fragment or part.endswith(("?", "#")):
        raise _wrong(part, "it has a query or a fragment")
    netloc = f"[{host}]" if ":" in host else host
    if port is not None:
        netloc += f":{port}"
    return f"{url.scheme}://{netloc}{url.path.rstrip('/')}"


def _wrong(part: str, why: str) -> UsageError:
    return UsageError(
        f"relay address {part[:100]!r} is not valid: {why}. Write it like http://127.0.0.1:9440, "
        "several with commas between them"
    )


def _without_user(url: SplitResult) -> str:
    return url._replace(netloc=url.netloc.rpartition("@")[2]).geturl()


def tls_context() -> "ssl.SSLContext":
    """What verifies an https relay: the system's certificates, or those of SSL_CERT_FILE or SSL_CERT_DIR."""
    from httpcore2 import default_ssl_context  # heavy, and rarely needed by a command

    return default_ssl_context()


def tls_trouble(exc: "ssl.SSLError") -> str:
    """A failed TLS handshake in words."""
    why = clean_line(str(getattr(exc, "verify_message", "") or exc.reason or exc), 120)
    return f"cannot be reached: TLS failed ({why}): is it an https relay with a certificate that is trusted here?"
