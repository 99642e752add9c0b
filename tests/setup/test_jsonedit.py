"""One value is set in a JSON text, every other byte stays."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlink.errors import SetupError
from interlink.setup.jsonedit import parse, put

SHOWN = [
    ("", '{\n  "a": {\n    "b": true\n  }\n}\n'),
    ("{}", '{\n  "a": {\n    "b": true\n  }\n}'),
    ('{"x":1}', '{"x":1, "a": {"b": true}}'),
    ('{\n\t"x": 1e5,\n\t"a": {}\n}\n', '{\n\t"x": 1e5,\n\t"a": {\n\t\t"b": true\n\t}\n}\n'),
    (
        '{ "a" : {"b" : false , "c":[1,{}]} , "\\u00e9":"\\ud800" }',
        '{ "a" : {"b" : true , "c":[1,{}]} , "\\u00e9":"\\ud800" }',
    ),
    ('{"a":{"b":0,"b":1}}', '{"a":{"b":0,"b":true}}'),  # the last of two equal keys is the one that counts
    ('{\r\n    "x": [ ]\r\n}\r\n', '{\r\n    "x": [ ],\r\n    "a": {\n        "b": true\n    }\r\n}\r\n'),
]


@pytest.mark.parametrize(("before", "after"), SHOWN)
def test_a_value_is_set_as_its_neighbours_are_written(before: str, after: str) -> None:
    assert put(before, ("a", "b"), True) == after


def common(a: str, b: str) -> int:
    """The length of the beginning that both have."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["a", "b", "x", ""]) | st.text(max_size=3), json_values, max_size=4),
    st.sampled_from([None, 0, 1, 2, 4, "\t"]),
    st.booleans(),
    json_values,
)
def test_whatever_the_file_only_that_value_changes(
    table: dict[str, Any], indent: int | str | None, ascii_only: bool, value: object
) -> None:
    if not isinstance(table.get("a", {}), dict):
        table["a"] = {"b": table["a"]}
    text = json.dumps(table, indent=indent, ensure_ascii=ascii_only)
    done = put(text, ("a", "b"), value)
    if table and "a" not in table:  # an insertion: the old text stands around it
        assert common(text, done) + common(text[::-1], done[::-1]) >= len(text)
    table.setdefault("a", {})["b"] = value
    assert json.loads(done) == table
    assert list(json.loads(done)) == list(table)


@pytest.mark.parametrize(
    "text", ["{", "[]", "1", '{"a":1,}', '{"a":NaN}', "// no\n{}", '{"a":"\t"}', "[" * 100_000, "\ufeff{}"]
)
def test_what_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(SetupError, match=r"settings.json .*mend it first; nothing was changed"):
        parse(text, "settings.json")


def test_what_is_in_the_way_is_named() -> None:
    with pytest.raises(SetupError, match=r"^a\.b is not an object"):
        put('{"a":{"b":[]}}', ("a", "b", "c"), 1)
