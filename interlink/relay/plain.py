"""JSON that every client of the wire can parse.

The relay hands out what others sent, several senders' things in one answer: a value that one client's
parser refuses would block a queue, or hide the whole roster, for ever. Such a thing never enters.
"""

from typing import Any

import msgspec

from interlink.errors import WireError

MAX_DEPTH = 64  # other parsers stop at 128, our envelope included
INT_LOW, INT_HIGH = -(1 << 63), (1 << 64) - 1

_decoder = msgspec.json.Decoder()


def check_plain(text: bytes) -> None:
    """Raise WireError unless `text` is one JSON value that every client can parse.

    Refused besides bad syntax: bytes that are not UTF-8, lone surrogates, numbers beyond 64 bits or the
    range of a double, nesting deeper than 64.
    """
    try:
        level = [_decoder.decode(text)]
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise WireError(f"not plain JSON: {exc}") from exc
    depth = 0
    while level:
        if depth > MAX_DEPTH:
            raise WireError(f"nested deeper than {MAX_DEPTH}")
        inner: list[Any] = []
        for value in level:
            if type(value) is dict:
                inner.extend(value.values())
            elif type(value) is list:
                inner.extend(value)
            elif type(value) is int and not INT_LOW <= value <= INT_HIGH:
                raise WireError("a number beyond 64 bits")
        level = inner
        depth += 1
