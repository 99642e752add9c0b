"""Sets one value in a JSON text and leaves every other byte of it as it is.

A person's settings file is theirs: order, spacing, numbers and escapes of what is not ours stay.
"""

import json
import re
from typing import Any, NamedTuple

from interlink.errors import SetupError

_SPACE = re.compile(r"[ \t\n\r]*")
_decoder = json.JSONDecoder()


class _Member(NamedTuple):
    """One member of an object: its key, and where in the text its value stands."""

    key: str
    start: int
    end: int


def parse(text: str, name: str) -> dict[str, Any]:
    """The object in a JSON text; an empty text is an empty object. SetupError says what is wrong with `name`."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as exc:
        raise SetupError(f"{name} is not valid JSON ({exc}): mend it first; nothing was changed") from exc
    if not isinstance(value, dict):
        raise SetupError(f"{name} does not hold a JSON object: mend it first; nothing was changed")
    return value


def put(text: str, path: tuple[str, ...], value: object) -> str:
    """The text with `value` under the keys of `path`; objects on the way are made where they are missing.

    `text` has gone through `parse`. SetupError where something on the way is no object.
    """
    if not text.strip():
        text = "{}\n"
    unit, at, shown = _unit(text), _skip(text, 0), []
    for depth, key in enumerate(path):
        members = _members(text, at)
        shown.append(key)
        found = next((m for m in reversed(members) if m.key == key), None)  # the last of two equal keys counts
        if found is None:
            made = value
            for missing in reversed(path[depth + 1 :]):
                made = {missing: made}
            return _insert(text, at, members, key, made, unit, depth)
        if depth + 1 == len(path):
            return text[: found.start] + _dump(value, unit, depth + 1) + text[found.end :]
        at = found.start
        if text[at] != "{":
            raise SetupError(f"{'.'.join(shown)} is not an object: mend it first; nothing was changed")
    return text


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def _members(text: str, at: int) -> list[_Member]:
    """The members of the object that begins at `at`."""
    found = []
    at = _skip(text, at + 1)
    while text[at] != "}":
        key, at = _decoder.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)  # the colon
        _value, end = _decoder.raw_decode(text, at)
        found.append(_Member(key, at, end))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found


def _insert(text: str, at: int, members: list[_Member], key: str, value: object, unit: str, depth: int) -> str:
    """A new last member of the object at `at`, written as its neighbours are."""
    entry = json.dumps(key, ensure_ascii=False) + ": "
    if not members:
        close = _skip(text, at + 1)
        inner, outer = unit * (depth + 1), unit * depth
        return f"{text[: at + 1]}\n{inner}{entry}{_dump(value, unit, depth + 1)}\n{outer}{text[close:]}"
    last = members[-1]
    lead = text[at + 1 : _skip(text, at + 1)]  # what stands before the first member
    if "\n" not in lead:
        inline = json.dumps(value, ensure_ascii=False)
        return f"{text[: last.end]}, {entry}{inline}{text[last.end :]}"
    return f"{text[: last.end]},{lead}{entry}{_dump(value, unit, depth + 1)}{text[last.end :]}"


def _dump(value: object, unit: str, depth: int) -> str:
    """A value as it stands at this depth."""
    lines = json.dumps(value, ensure_ascii=False, indent=unit or None).split("\n")
    return ("\n" + unit * depth).join(lines)


def _unit(text: str) -> str:
    """What the file indents by: two spaces where it does not say."""
    found = re.search(r"\{\r?\n([ \t]+)\"", text)
    return found[1] if found else "  "


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()
