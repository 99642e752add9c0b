"""Text across a boundary: names cleaned for display, bodies that cannot forge our markup (F2, F11, H8, H17)."""

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from interlink import text

ANY = st.text(st.characters(exclude_categories=()), max_size=200)  # lone surrogates included
KEY = "O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik"
HOSTILE = "Bob\n# Heading\x1b[31m\u202egnol\x00\u2028next\x85line\ttab" + "x" * 4000


def test_a_hostile_name_becomes_one_quoted_cut_line() -> None:
    shown = text.shown_name(HOSTILE)
    assert shown == '"Bob # Heading[31mgnol next line…"'
    assert len(shown) == 34


def test_a_quote_cannot_end_the_quotes() -> None:
    assert text.shown_name('a" run "rm') == "\"a' run 'rm\""


@given(ANY, st.integers(1, 80))
@example("\u200b\u200e \ud800", 5)
def test_a_clean_line_is_clean(raw: str, width: int) -> None:
    line = text.clean_line(raw, width)
    assert len(line) <= width
    assert line == line.strip() and "  " not in line
    assert all(unicodedata.category(c)[0] != "C" and c not in "\u2028\u2029\r\n" for c in line)
    line.encode("utf-8")


@given(st.text(st.sampled_from("abcé漢😀 "), max_size=32))
def test_harmless_text_is_kept(raw: str) -> None:
    assert text.clean_line(raw, 32) == " ".join(raw.split())


@pytest.mark.req("H8")
@pytest.mark.parametrize(
    "petname",
    ["No such file or directory", "x can't open y", "COMMAND NOT FOUND", "no\u200b such\tfile", "cannot open"],
)
def test_a_petname_that_a_host_trips_over_gives_way_to_the_fingerprint(petname: str) -> None:
    assert text.notice_name(petname, KEY) == KEY[:8]


@pytest.mark.req("H8")
def test_a_phrase_beyond_the_cut_is_not_shown_at_all() -> None:
    shown = text.notice_name("a" * 31 + " no such file", KEY)
    assert "no such file" not in shown.lower()


@pytest.mark.req("H8")
def test_other_petnames_stay() -> None:
    assert text.notice_name("alice", KEY) == '"alice"'


@pytest.mark.req("H17")
@given(ANY)
@example("a\ud800b")
def test_utf8_always_encodes_and_keeps_good_text(raw: str) -> None:
    out = text.utf8(raw)
    out.encode("utf-8")
    assert text.has_surrogate(raw) == (out != raw)


@given(ANY)
@example('a"b<c>d\r\n')
def test_an_attribute_cannot_leave_its_quotes(raw: str) -> None:
    value = text.attribute(raw)
    assert not re.search('["<>\r\n]', value)
    assert value == re.sub('["<>\r\n]', "", raw)


MARKUP = re.compile(r"</?interlink", re.IGNORECASE)
PIECES = st.lists(
    st.sampled_from(
        [
            "<",
            "</",
            "interlink",
            "INTERLINK",
            "interlin\u212a",
            "\u0130",
            "ı",
            "inter",
            "link",
            " ",
            "<<",
            "x",
            "\u200b",
        ]
    ),
    max_size=12,
).map("".join)


@given(st.one_of(PIECES, ANY))
@example("<interlink sender='x'></interlink>")
@example("<\u0130<interlink")
@example("<interlin\u212a>")
def test_a_defanged_body_holds_no_markup_of_ours(body: str) -> None:
    safe = text.defang(body)
    assert not MARKUP.search(safe)
    assert not MARKUP.search(safe.lower()) and not MARKUP.search(safe.casefold())
    assert safe.replace(text.ZERO_WIDTH, "") == body.replace(text.ZERO_WIDTH, "")
    assert text.defang(safe) == safe or "\u0130" in body


def test_defanging_marks_only_our_tags() -> None:
    assert text.defang("a < b, <i>interlink</i>, </p>") == "a < b, <i>interlink</i>, </p>"
    assert text.defang("x</Interlink>y") == "x<\u200b/Interlink>y"
    assert text.defang("<interlink-note>") == "<\u200binterlink-note>"


def test_a_large_body_is_quick_to_defang() -> None:
    body = "<interlink" * 100_000
    assert text.defang(body) == ("<\u200binterlink") * 100_000
