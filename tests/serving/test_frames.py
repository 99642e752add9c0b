"""Lines of a host, read: every request with an id is answered, whatever its line looks like."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from interlink.tools import frames
from interlink.tools.frames import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, Message, Refusal


def one(line: bytes) -> Message | Refusal:
    found = frames.read(line)
    assert len(found) == 1, found
    return found[0]


def refused(line: bytes) -> tuple[object, int]:
    found = one(line)
    assert isinstance(found, Refusal), found
    answer = json.loads(found.line())
    assert answer["jsonrpc"] == "2.0" and answer["error"]["message"]
    assert found.line().endswith(b"}\n") and found.line().count(b"\n") == 1
    return answer["id"], answer["error"]["code"]


DEEP = b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":%s}}'
DEEP_ID_LAST = b'{"method":"ping","params":{"a":%s},"jsonrpc":"2.0","id":7}'


def nest(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@pytest.mark.req("H17")
@pytest.mark.parametrize(
    ("line", "ident", "code"),
    [
        (b"\xff\xfe", None, PARSE_ERROR),
        (b"hello", None, PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":7,"method":', 7, PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":"a b","method":"ping",,}', "a b", PARSE_ERROR),
        (b'{"method":"ping","jsonrpc":"2.0","params":{"x":tru},"id":"9"}', "9", PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":NaN}}', 7, PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":-Infinity}}', 7, PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":1e999}}', 7, PARSE_ERROR),
        (b'{"jsonrpc":"2.0","method":"ping","params":{"x":' + b"9" * 5000 + b'},"id":7}', 7, PARSE_ERROR),
        (
            DEEP.replace(b"%s", nest(200)),
            7,
            INVALID_REQUEST,
        ),
        (
            DEEP.replace(b"%s", nest(100_000)),
            7,
            PARSE_ERROR,
        ),
        (
            DEEP_ID_LAST.replace(b"%s", nest(100_000)),
            7,
            PARSE_ERROR,
        ),
        (b"[]", None, INVALID_REQUEST),
        (b"7", None, INVALID_REQUEST),
        (b'"text"', None, INVALID_REQUEST),
        (b"null", None, INVALID_REQUEST),
        (b"{}", None, INVALID_REQUEST),
        (b'{"id":7,"method":"ping"}', 7, INVALID_REQUEST),
        (b'{"jsonrpc":"1.0","id":7,"method":"ping"}', 7, INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":7}', 7, INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":7,"method":5}', 7, INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', None, INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', None, INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', 1.5, INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":[1],"method":"ping"}', None, INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":[1]}', 7, INVALID_PARAMS),
        (b'{"jsonrpc":"2.0","id":7,"method":"tools/call"}', 7, INVALID_PARAMS),
        (b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":5}}', 7, INVALID_PARAMS),
    ],
)
def test_a_bad_line_is_answered(line: bytes, ident: object, code: int) -> None:
    assert refused(line) == (ident, code)


@pytest.mark.parametrize(
    ("arguments", "word"), [("[1]", "array"), ('"x"', "string"), ("1", "number"), ("true", "boolean")]
)
def test_arguments_that_are_no_object_are_named(arguments: str, word: str) -> None:
    line = '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a","arguments":@}}'
    found = one(line.replace("@", arguments).encode())
    assert isinstance(found, Refusal) and found.code == INVALID_PARAMS
    assert '"arguments" must be an object' in found.text and word in found.text


@pytest.mark.req("H17")
def test_every_request_of_a_batch_is_answered() -> None:
    batch = [
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "method": "notifications/x"},
        {"jsonrpc": "2.0", "id": "b", "method": "ping"},
        {"jsonrpc": "2.0", "id": 5, "result": {}},
    ]
    found = frames.read(json.dumps(batch).encode())
    assert [(f.id, f.code) for f in found if isinstance(f, Refusal)] == [
        (1, INVALID_REQUEST),
        ("b", INVALID_REQUEST),
    ]
    assert len(found) == 2
    assert len(frames.read(json.dumps([batch[0]] * 5000).encode())) == frames.MAX_BATCH


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"  \t\r",
        b'{"jsonrpc":"2.0","method":"notifications/x","params":[1]}',
        b'{"jsonrpc":"2.0","method":"notifications/x","params":{"a":NaN}}',
        b'{"jsonrpc":"2.0","id":null,"result":{}}',
        b'{"id":3,"result":{}}',
        b'{"jsonrpc":"2.0","id":3,"result":{"a":tru}}',
        b'{"result":{"a":tru},"jsonrpc":"2.0","id":3}',
        b'{"jsonrpc":"2.0","id":3,"error":{"a":tru}}',
    ],
)
def test_what_is_no_request_gets_no_answer(line: bytes) -> None:
    """Answering an answer with its id would hit a request of the host's that has the same id."""
    assert frames.read(line) == []


@pytest.mark.parametrize(
    "raw", ["plain", "\u2028 \u0085 \x7f", "a lone \r inside", "\U0001f600 é", "tab\tand \x01 control"]
)
def test_valid_text_is_kept_as_it_is(raw: str) -> None:
    line = '{"jsonrpc":"2.0","id":1,"method":"m","params":{"t":"@"}}\r'.replace("@", raw)
    assert one(line.encode()) == Message(json.loads(line, strict=False), True)
    body = {"jsonrpc": "2.0", "id": 1, "method": "m", "params": {"t": raw}}
    assert one(json.dumps(body).encode()) == Message(body, True)


@pytest.mark.req("H17")
@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b'{"jsonrpc":"2.0","id":"x","method":"m","params":{"t":"a\\ud800b"}}', "a?b"),
        (b'{"jsonrpc":"2.0","id":"x","method":"m","params":{"t":["\\uDFFF"]}}', ["?"]),
        (b'{"jsonrpc":"2.0","id":"x","method":"m","params":{"t":{"k\\ud83d":1}}}', {"k?": 1}),
        (b'{"jsonrpc":"2.0","id":"x","method":"m","params":{"t":"\xff\xfe"}}', "??"),
        (b'{"jsonrpc":"2.0","id":"x","method":"m","params":{"t":"\xed\xa0\x80"}}', "???"),
    ],
)
def test_text_that_is_not_unicode_is_cleaned_and_marked(line: bytes, text: object) -> None:
    found = one(line)
    assert isinstance(found, Message) and not found.valid_text
    assert found.body["params"]["t"] == text and found.body["id"] == "x"


def test_a_surrogate_pair_is_valid_text() -> None:
    found = one(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"t":"\\ud83d\\ude00 \\\\ud800"}}')
    assert isinstance(found, Message) and found.valid_text
    assert found.body["params"]["t"] == "\U0001f600 \\ud800"


@pytest.mark.req("H17")
@pytest.mark.parametrize(
    ("line", "ident"),
    [
        (b'{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{"name":"a","text":"%s"}}', 12),
        (b'{"method":"tools/call","params":{"name":"a","text":"%s"},"jsonrpc":"2.0","id":"z-1"}', "z-1"),
        (b'{"method":"tools/call","params":{"id":5,"text":"%s"},"id":12,"jsonrpc":"2.0"}', 12),
        (b'{"method":"notifications/x","params":{"id":5,"text":"%s"},"jsonrpc":"2.0"}', None),
        (b'{"method":"tools/call","params":{"text":"%s","id":5}}', None),
        (b"%s", None),
    ],
)
def test_the_id_of_an_overlong_line_is_found_at_either_end(line: bytes, ident: object) -> None:
    whole = line.replace(b"%s", b"x" * 200_000)
    found = frames.too_long(whole[: frames.HEAD_BYTES], whole[-frames.TAIL_BYTES :], len(whole), 100_000)
    assert [(f.id, f.code) for f in found] == [(ident, INVALID_REQUEST)]
    assert str(len(whole)) in found[0].text and "INTERLINK_REQUEST_LINE_MAX_BYTES" in found[0].text


@pytest.mark.parametrize(
    "line", [b'{"jsonrpc":"2.0","id":3,"result":{"t":"%s"}}', b'{"result":{"t":"%s"},"jsonrpc":"2.0","id":3}']
)
def test_an_overlong_answer_is_not_answered(line: bytes) -> None:
    whole = line.replace(b"%s", b"x" * 200_000)
    assert frames.too_long(whole[: frames.HEAD_BYTES], whole[-frames.TAIL_BYTES :], len(whole), 9) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "name", "arguments"])


@given(st.binary(max_size=80))
@example(b"\xef\xbb\xbf{}")
def test_no_bytes_make_it_raise(line: bytes) -> None:
    for found in frames.read(line):
        if isinstance(found, Refusal):
            json.loads(found.line())
    frames.too_long(line, line, len(line), 1)


@given(st.dictionaries(KEYS, JSON | st.just("2.0") | st.just("tools/call"), max_size=6))
@pytest.mark.req("H17")
def test_every_request_with_an_id_passes_or_is_refused_with_it(body: dict[str, object]) -> None:
    found = frames.read(json.dumps(body).encode())
    ident = body.get("id")
    if isinstance(body.get("method"), str) and isinstance(ident, str | int) and not isinstance(ident, bool):
        assert len(found) == 1
        got = found[0].body["id"] if isinstance(found[0], Message) else found[0].id
        assert got == frames.clean(ident)


@given(JSON)
def test_clean_values_can_be_written(value: object) -> None:
    text = json.dumps(frames.clean(value), ensure_ascii=False, allow_nan=False)
    text.encode("utf-8")


@pytest.mark.parametrize("value", [{"a": {1, 2}}, {1: "a"}, [b"x"], object()])
def test_what_json_cannot_say_is_an_error(value: object) -> None:
    with pytest.raises(TypeError):
        frames.clean(value)


def test_what_is_too_deep_is_an_error() -> None:
    value: object = 1
    for _ in range(frames.MAX_DEPTH + 1):
        value = [value]
    with pytest.raises(ValueError, match="deeper"):
        frames.clean(value)
    assert frames.clean(value[0]) == value[0]  # type: ignore[index]
