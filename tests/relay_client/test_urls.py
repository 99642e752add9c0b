"""Relay addresses as a person writes them."""

import pytest

from interlink.errors import EXIT_USAGE, UsageError
from interlink.relay.client import parse_urls


@pytest.mark.req("B2")
@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("", []),
        (" , ,", []),
        ("http://127.0.0.1:9440", ["http://127.0.0.1:9440"]),
        (" http://a:1/ , https://b/ ,", ["http://a:1", "https://b"]),
        ("HTTP://Host.Example:80/Bus//", ["http://host.example:80/Bus"]),
        ("http://a:1,http://a:1/,http://A:1,http://b:1", ["http://a:1", "http://b:1"]),
        ("http://[::1]:9440/", ["http://[::1]:9440"]),
        ("https://relay.example/a/b", ["https://relay.example/a/b"]),
    ],
)
def test_addresses_are_split_cleaned_and_kept_once_in_their_order(text: str, urls: list[str]) -> None:
    assert parse_urls(text) == urls


@pytest.mark.req("B2")
@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("127.0.0.1:9440", "does not start with http"),
        ("localhost:9440", "does not start with http"),
        ("ftp://host", "does not start with http"),
        ("http://", "names no host"),
        ("http://:9440", "names no host"),
        ("http://a:99999", "ort"),
        ("http://a:0", "port 0"),
        ("http://a:x", "ort"),
        ("http://a?x=1", "query"),
        ("http://a/#f", "fragment"),
        ("http://a/?", "query"),
        ("http://a b", "space"),
        ("http://a\x00", "control"),
        ("http://bücher.example", "non-ASCII"),
        ("http://a..b", "label"),
        ("http://" + "a" * 64 + ".example", "label"),
        ("http://[::1", "IPv6"),
    ],
)
def test_a_wrong_address_is_named_with_what_is_wrong(bad: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_urls(f"http://good:1,{bad}")
    text = str(caught.value)
    assert why in text
    assert repr(bad[:100]) in text
    assert "http://127.0.0.1:9440" in text, "it shows how to write one"
    assert caught.value.exit_code == EXIT_USAGE


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError, match="password") as caught:
        parse_urls("http://me:hunter2@host:1/x")
    assert "hunter2" not in str(caught.value)
    assert "http://host:1/x" in str(caught.value)
