"""What a relay may answer, read without trust: shapes, bounds, reasons. Pure, and light (B2, M17).

Bodies are parsed by `json`, not a stricter parser: one message that holds a lone surrogate or bytes
that are no UTF-8 must not hide the others of the same answer.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from interlink.errors import RelayError, WireError
from interlink.text import clean_line, has_surrogate, utf8

ACK_MAX_CHARS = 1024
SHOWN_CHARS = 120
INT_MAX_DIGITS = 20
SURROGATE = "a text with a lone surrogate cannot be sent: remove it"


class Answer(NamedTuple):
    """An HTTP answer: header names in lower case; when its head came (ms since 1970), how many ms that took."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    got_ms: int
    latency_ms: float


class Arrival(NamedTuple):
    """One message as a relay hands it out: JSON text of its payload, unjudged; relay time in ms; ack token.

    A payload that cannot be read is "": undecodable, and so to be acknowledged (G6).
    """

    payload: str
    ts: int
    ack: str


Handler = Callable[[list[Arrival]], Awaitable[list[str]]]


class Batch(NamedTuple):
    """One answer to a poll. `many`: in the list form; `skipped`: entries without a usable ack token."""

    arrivals: list[Arrival]
    many: bool
    skipped: int


class Unreachable(RelayError):
    """No connection: refused, unknown host, TLS refused, nothing within the connect timeout."""


class Heavy(RelayError):
    """An answer of more bytes than are read: asking for fewer messages may help."""


class Slow(RelayError):
    """An answer that began and did not end in time: asking for fewer messages may help."""


def encode(obj: dict[str, object]) -> bytes:
    """A request body. WireError where a text in it cannot be UTF-8."""
    try:
        return json.dumps(obj, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    except UnicodeEncodeError as exc:
        raise WireError(SURROGATE) from exc


def encode_send(to: str, payload: str) -> bytes:
    """The body of a send: `payload` is JSON text and stands in it as it is. WireError as in `encode`."""
    head = encode({"to": to})
    try:
        return head[:-1] + b',"payload":' + payload.encode("utf-8") + b"}"
    except UnicodeEncodeError as exc:
        raise WireError(SURROGATE) from exc


def decode(body: bytes) -> dict[str, Any]:
    """The JSON object of an answer. RelayError for anything else."""
    try:
        found = json.loads(body.decode("utf-8", "replace"), parse_int=_int)
    except (ValueError, RecursionError) as exc:
        raise RelayError("answers with broken JSON: is this address a relay?") from exc
    if not isinstance(found, dict):
        raise RelayError("answers with JSON that is no object: is this address a relay?")
    return found


def _int(digits: str) -> int | float:
    # int() refuses thousands of digits, and with them the whole answer; nothing of ours is that long.
    return int(digits) if len(digits) <= INT_MAX_DIGITS else float("inf")


def read_batch(body: bytes, most: int) -> Batch:
    """The messages of an answer to `GET /recv`, at most `most` of them (the others come again).

    Either form is understood, whatever was asked for. RelayError where the answer is neither.
    """
    found = decode(body)
    status = found.get("status")
    if status == "timeout":
        return Batch([], False, 0)
    if status == "message":
        entries: list[Any] = [found]
    elif status == "messages" and isinstance(found.get("messages"), list):
        entries = found["messages"]
    else:
        raise RelayError("answers a poll in a shape that is not known: is it another version?")
    arrivals: list[Arrival] = []
    seen: set[str] = set()
    skipped = 0
    for entry in entries[:most]:
        arrival = _arrival(entry)
        if arrival is None or arrival.ack in seen:
            skipped += 1
        else:
            seen.add(arrival.ack)
            arrivals.append(arrival)
    return Batch(arrivals, status == "messages", skipped)


def _arrival(entry: Any) -> Arrival | None:
    if not isinstance(entry, dict):
        return None
    ack = entry.get("ack")
    if not isinstance(ack, str) or not 0 < len(ack) <= ACK_MAX_CHARS or has_surrogate(ack):
        return None
    envelope = entry.get("envelope")
    if not isinstance(envelope, dict):
        return Arrival("", 0, ack)
    ts = envelope.get("ts")
    return Arrival(
        _text(envelope.get("payload")), ts if isinstance(ts, int) and not isinstance(ts, bool) else 0, ack
    )


def _text(payload: Any) -> str:
    try:
        return utf8(json.dumps(payload, ensure_ascii=False, separators=(",", ":")))
    except RecursionError:
        return ""


def read_roster(body: bytes, most: int) -> list[dict[str, Any]]:
    """The first `most` entries of a roster that are objects; what they hold is for the caller to judge."""
    entries = decode(body).get("roster")
    if not isinstance(entries, list):
        raise RelayError("gives a roster of a shape that is not known: is it another version?")
    return [entry for entry in entries[:most] if isinstance(entry, dict)]


def check_json(answer: Answer, most_wait_s: float) -> None:
    """RelayError unless an answer is a 200 that says it is JSON."""
    if answer.status != 200:
        raise refusal(answer, most_wait_s)
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        shown = clean_line(kind, 40) or "of no type"
        raise RelayError(f"answers {shown} instead of JSON: is this address a relay?", status=answer.status)


def refusal(answer: Answer, most_wait_s: float) -> RelayError:
    """The error for a status that was not hoped for, in words that say what to do."""
    status = answer.status
    if 300 <= status < 400:
        where = clean_line(answer.headers.get("location", ""), SHOWN_CHARS) or "nowhere"
        text = f"redirects ({status}) to {where}: redirects are not followed, give the relay's own address"
    elif status == 401:
        text = "needs a token, or another one (401): give the relay's token"
    elif status == 403:
        text = "refuses this (403)"
    elif status in (404, 405):
        text = f"is no relay, or another version ({status}): check the address"
    elif status == 413:
        text = "takes no message of this size (413): send less"
    elif status == 429:
        text = "is full (429): try again later"
    elif status == 503:
        text = "cannot serve this now (503): try again later"
    elif status >= 500:
        text = f"has a fault of its own ({status}): see its log"
    else:
        text = f"answers {status}, which no relay does here: is it another version?"
    return RelayError(text, status=status, retry_after_s=retry_after_s(answer, most_wait_s))


def retry_after_s(answer: Answer, most_s: float) -> float | None:
    """Seconds of a Retry-After header (a number or an HTTP date), 0 to `most_s`; None without one."""
    text = answer.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:12]), most_s)
    until = http_date_ms(text)
    if until is None:
        return None
    # The date is of the relay's clock, so it is measured from the relay's own time where that is known.
    since = http_date_ms(answer.headers.get("date", ""))
    return max(0.0, min((until - (answer.got_ms if since is None else since)) / 1000, most_s))


def http_date_ms(text: str) -> int | None:
    """An HTTP date in ms, None where the text is none."""
    from email.utils import parsedate_to_datetime  # 20 ms: only where a header is there

    try:
        return int(parsedate_to_datetime(text).timestamp() * 1000) if text else None
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def skew_ms(answer: Answer) -> int | None:
    """How far the relay's clock is ahead of ours, in ms, good to about a second; None without a Date."""
    date = http_date_ms(answer.headers.get("date", ""))
    # The header is cut to the second: half of one is the best guess of what was cut off.
    return None if date is None else date + 500 - answer.got_ms + int(answer.latency_ms / 2)
