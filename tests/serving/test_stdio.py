"""Lines of bytes: where they are split, and what of an overlong one is kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlink.tools.frames import HEAD_BYTES, TAIL_BYTES
from interlink.tools.stdio import Line, Splitter


def split(data: bytes, chunk: int, limit: int) -> list[Line]:
    splitter = Splitter(limit)
    lines = []
    for at in range(0, len(data), chunk):
        lines += splitter.feed(data[at : at + chunk])
    return lines + splitter.last()


@given(st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"\r"))), st.integers(1, 40))
def test_lines_are_split_at_byte_0x0a_alone(parts: list[bytes], chunk: int) -> None:
    found = split(b"\n".join([*parts, b""]), chunk, 100)
    assert found == [Line(part, len(part)) for part in parts]


def test_the_last_line_may_lack_its_newline() -> None:
    assert split(b"a\nb", 1, 10) == [Line(b"a", 1), Line(b"b", 1)]


@pytest.mark.req("H17")
@pytest.mark.parametrize("chunk", [1000, 65536, 10**9])
def test_of_an_overlong_line_only_its_ends_are_kept(chunk: int) -> None:
    limit = 100_000
    body = b"h" * HEAD_BYTES + b"x" * 300_000 + b"t" * TAIL_BYTES
    at_limit, over = b"y" * limit, b"z" * (limit + 1)
    found = split(b"\n".join([b"a", body, at_limit, over, b"b", b""]), chunk, limit)
    assert found == [
        Line(b"a", 1),
        Line(b"h" * HEAD_BYTES, len(body), b"t" * TAIL_BYTES),
        Line(at_limit, limit),
        Line(b"z" * HEAD_BYTES, limit + 1, b"z" * TAIL_BYTES),
        Line(b"b", 1),
    ]
