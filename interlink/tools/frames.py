"""One line of a host, read: a message, an answer that refuses it, or nothing. Pure; no SDK in here (H17).

Every request with an id gets an answer, however odd its line is: one that cannot be read, is too long, too
deep, a batch, or no request at all. The id of such a line is looked for at its start and at its end, where
hosts put it. Text that is not valid Unicode is passed on cleaned and marked, so that one call is refused and
nothing more.
"""

import json
import math
import re
from typing import Any, NamedTuple

from interlink.text import has_surrogate, utf8

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INVALID_PARAMS = -32602

HEAD_BYTES = 1 << 16  # of an overlong line, kept to look for its id
TAIL_BYTES = 1 << 10
MAX_DEPTH = 64  # the SDK fails from about 200 on
MAX_BATCH = 256

Id = str | int | float | None

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_SPACE = re.compile(r"[ \t\r\n]*")
_ID_AT_END = re.compile(
    r'[{,]\s*"id"\s*:\s*(-?[0-9]{1,19}|"(?:[^"\\]|\\.){0,256}")\s*'
    r'(?:,\s*"(?:jsonrpc|method)"\s*:\s*"[^"\\]{0,256}"\s*){0,2}\}\s*$'
)


class Message(NamedTuple):
    """A well-formed JSON-RPC message. `valid_text` False: its text was not Unicode and is cleaned."""

    body: dict[str, Any]
    valid_text: bool = True


class Refusal(NamedTuple):
    """An error answer in place of a message."""

    id: Id
    code: int
    text: str

    def line(self) -> bytes:
        """The answer as it goes on the wire, with its newline."""
        error = {"code": self.code, "message": self.text}
        return json.dumps({"jsonrpc": "2.0", "id": self.id, "error": error}).encode("ascii") + b"\n"


def read(line: bytes) -> list[Message | Refusal]:
    """What one line (without its newline) asks for; several for a batch, none for a blank line."""
    if not line.strip():
        return []
    try:
        text = line.decode("utf-8")
        doubtful = _SURROGATE.search(line) is not None
    except UnicodeDecodeError:
        text = line.decode("utf-8", "surrogateescape")
        doubtful = True
    odd: list[str] = []

    def constant(name: str) -> None:
        odd.append(name)

    def number(digits: str) -> float:
        value = float(digits)
        if not math.isfinite(value):
            odd.append(digits[:32])
        return value

    try:
        # strict=False: a raw CR inside a string is taken as it is.
        value = json.loads(text, strict=False, parse_constant=constant, parse_float=number)
    except (ValueError, RecursionError):
        return _unread(line, line[-TAIL_BYTES:], PARSE_ERROR, "not valid JSON, or nested too deeply")
    if _too_deep(value):
        return _each(value, INVALID_REQUEST, f"nested deeper than {MAX_DEPTH} levels")
    valid = not (doubtful and _has_surrogates(value))
    if not valid:
        value = clean(value)
    if odd:
        return _each(value, PARSE_ERROR, f"{odd[0]} is not a JSON number")
    if isinstance(value, list):
        return _each(value, INVALID_REQUEST, "batches are not supported: send one request a line")
    found = _check(value, valid)
    return [] if found is None else [found]


def too_long(head: bytes, tail: bytes, size: int, limit: int) -> list[Refusal]:
    """The answer to a line of `size` bytes that was not kept; `head` and `tail` are its ends."""
    text = (
        f"a request line of {size} bytes is over the limit of {limit}: nothing of it was read. "
        "Send less in one call, or raise INTERLINK_REQUEST_LINE_MAX_BYTES"
    )
    return _unread(head, tail, INVALID_REQUEST, text)


def clean(value: Any, depth: int = MAX_DEPTH) -> Any:
    """The same JSON value that can always be written: lone surrogates become `?`, numbers JSON has not null.

    ValueError: nested deeper than `depth` levels. TypeError: a value or a key that JSON has not.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return utf8(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth <= 0:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, list | tuple):
        return [clean(v, depth - 1) for v in value]
    if isinstance(value, dict) and all(isinstance(k, str) for k in value):
        return {utf8(k): clean(v, depth - 1) for k, v in value.items()}
    raise TypeError(f"{type(value).__name__} is not JSON, or has keys that are no strings")


def _check(value: Any, valid: bool) -> Message | Refusal | None:
    """One message, an answer that refuses it, or None for a broken answer of the host's, which nobody awaits."""
    if not isinstance(value, dict):
        return Refusal(None, INVALID_REQUEST, "a message must be a JSON object")
    ident = value.get("id")
    good_id = isinstance(ident, str) or (isinstance(ident, int) and not isinstance(ident, bool))
    shown = _shown(ident)
    if "method" not in value and ("result" in value or "error" in value):
        return Message(value, valid) if good_id and value.get("jsonrpc") == "2.0" else None
    if value.get("jsonrpc") != "2.0":
        return Refusal(shown, INVALID_REQUEST, '"jsonrpc" must be "2.0"')
    method, params = value.get("method"), value.get("params")
    if not isinstance(method, str):
        return Refusal(shown, INVALID_REQUEST, '"method" must be a string')
    if "id" in value and not good_id:
        return Refusal(shown, INVALID_REQUEST, '"id" must be a string or an integer')
    if params is not None and not isinstance(params, dict):
        return _unless_told(value, f'"params" must be an object, not {_kind(params)}')
    if method == "tools/call" and "id" in value:
        wrong = _wrong_call(params or {})
        if wrong is not None:
            return Refusal(shown, INVALID_PARAMS, wrong)
    return Message(value, valid)


def _unless_told(value: dict[str, Any], text: str) -> Refusal | None:
    # A notification is never answered, not even a wrong one.
    return Refusal(_shown(value["id"]), INVALID_PARAMS, text) if "id" in value else None


def _wrong_call(params: dict[str, Any]) -> str | None:
    name, arguments = params.get("name"), params.get("arguments")
    if not isinstance(name, str):
        return f'tools/call: "name" must be a string, not {_kind(name)}'
    if arguments is not None and not isinstance(arguments, dict):
        return f'tools/call: "arguments" must be an object with the arguments by name, not {_kind(arguments)}'
    return None


def _kind(value: object) -> str:
    if value is None:
        return "missing or null"
    if isinstance(value, bool):
        return "a boolean"
    names: list[tuple[type | tuple[type, ...], str]] = [
        (str, "a string"),
        ((int, float), "a number"),
        (list, "an array"),
    ]
    return next((name for kind, name in names if isinstance(value, kind)), "an object")


def _shown(ident: object) -> Id:
    """The id to answer with: what came where it is a string or a number, else None."""
    if isinstance(ident, bool) or not isinstance(ident, str | int | float):
        return None
    if isinstance(ident, float) and not math.isfinite(ident):
        return None
    return utf8(ident) if isinstance(ident, str) else ident


def _each(value: Any, code: int, text: str) -> list[Message | Refusal]:
    """Refuse a message, or every request of a batch (the first MAX_BATCH); one answer at least."""
    if not isinstance(value, list):
        if isinstance(value, dict) and "id" not in value and isinstance(value.get("method"), str):
            return []  # a notification
        return [Refusal(_shown(value.get("id")) if isinstance(value, dict) else None, code, text)]
    requests = [v for v in value if isinstance(v, dict) and "id" in v and "method" in v][:MAX_BATCH]
    return [Refusal(_shown(v["id"]), code, text) for v in requests] or [Refusal(None, code, text)]


def _unread(head: bytes, tail: bytes, code: int, text: str) -> list[Any]:
    ident, answer = _find_id(head, tail)
    # An answer of the host's carries an id of ours: an error with that id would hit a request of its own.
    return [] if answer else [Refusal(ident, code, text)]


def _find_id(head: bytes, tail: bytes) -> tuple[Id, bool]:
    """The id of an unreadable line as far as its ends show it, and whether the line is an answer."""
    text = head.decode("utf-8", "replace")
    decoder = json.JSONDecoder(strict=False)
    at = _skip(text, 0)
    ident: Id = None
    if not text.startswith("{", at):
        return None, False
    try:
        while text.startswith(("{", ","), at):
            key, at = decoder.raw_decode(text, _skip(text, at + 1))
            at = _skip(text, at)
            if not isinstance(key, str) or not text.startswith(":", at):
                break
            if key in ("result", "error"):
                return None, True
            value, at = decoder.raw_decode(text, _skip(text, at + 1))
            at = _skip(text, at)
            if key == "id" and text.startswith((",", "}"), at):
                ident = _shown(value)
    except (ValueError, RecursionError):
        pass  # read as far as it can be: now its end
    if ident is not None:
        return ident, False
    found = _ID_AT_END.search(tail.decode("utf-8", "replace"))
    if found is None:
        return None, False
    try:
        return _shown(json.loads(found[1])), False
    except ValueError:
        return None, False


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _too_deep(value: Any) -> bool:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        if not level:
            return False
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
    return bool(level)


def _has_surrogates(value: Any) -> bool:
    if isinstance(value, str):
        return has_surrogate(value)
    if isinstance(value, dict):
        return any(has_surrogate(k) or _has_surrogates(v) for k, v in value.items())
    return isinstance(value, list) and any(map(_has_surrogates, value))
