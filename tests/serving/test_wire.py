"""What goes over the pipes, byte by byte, of a running server."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.mcp_client import RawClient

# As hosts write a call: the id comes last.
ECHO = b'{"method":"tools/call","params":{"name":"echo","arguments":{"text":"@"}},"jsonrpc":"2.0","id":7}\n'
SERVER = [sys.executable, str(Path(__file__).with_name("sample_server.py"))]


@pytest.fixture(scope="module")
def host() -> Iterator[RawClient]:
    """One server for all tests of this file that leave it as it was."""
    with RawClient(SERVER, {"SAMPLE_CHANNEL": "1"}) as client:
        tools: dict[str, object] = {"listChanged": False}
        expected = {"tools": tools, "experimental": {"claude/channel": {}}}
        assert client.handshake()["result"]["capabilities"] == expected
        yield client
        client.request("alive", "ping")
        assert client.answer("alive")["result"] == {}


def text_of(answer: dict[str, dict[str, object]], *, is_error: bool = False) -> str:
    result = answer["result"]
    assert result["isError"] is is_error, answer
    content = result["content"]
    assert isinstance(content, list) and len(content) == 1 and content[0]["type"] == "text"
    return str(content[0]["text"])


def test_ping_and_unknown_methods_are_answered(host: RawClient) -> None:
    host.request(1, "ping")
    assert host.line() == b'{"jsonrpc":"2.0","id":1,"result":{}}\n'
    for ident, method in enumerate(("resources/list", "prompts/get", "logging/setLevel", "no/such", ""), 2):
        host.request(ident, method, {})
        assert host.answer(ident)["error"]["code"] in (-32601, -32602), method


def test_tools_are_listed_with_their_flags(host: RawClient) -> None:
    host.request("list", "tools/list")
    tools = {tool["name"]: tool for tool in host.answer("list")["result"]["tools"]}
    assert tools["echo"] == {
        "name": "echo",
        "title": "Echo",
        "description": "Does echo",
        "inputSchema": {"type": "object"},
        "annotations": {
            "title": "Echo",
            "readOnlyHint": True,
            "destructiveHint": False,
            "idempotentHint": True,
            "openWorldHint": False,
        },
    }
    flags = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}
    assert tools["send"]["annotations"] == {"title": "Send", **flags}
    assert tools["send"]["outputSchema"] == {"type": "object", "required": ["a"]}
    assert tools["bind_codex_session"]["_meta"] == {"ui": {"visibility": ["app"]}}
    assert "_meta" not in tools["echo"]


def test_an_answer_byte_by_byte(host: RawClient) -> None:
    host.call("a-1", "echo", {"text": "hällo\u2028\r\n", "structured": {"n": None, "x": [1, {"y": "é"}]}})
    assert host.line().decode() == (
        '{"jsonrpc":"2.0","id":"a-1","result":{"content":[{"text":"hällo\u2028\\r\\n","type":"text"}],'
        '"isError":false,"structuredContent":{"n":null,"x":[1,{"y":"é"}]}}}\n'
    )
    host.call(2, "echo", {"text": None})
    assert host.line() == b'{"jsonrpc":"2.0","id":2,"result":{"content":[],"isError":false}}\n'
    host.call(3, "echo", {"text": "no", "is_error": True})
    assert text_of(host.answer(3), is_error=True) == "no"


def test_arguments_and_meta_arrive_as_they_were_sent(host: RawClient) -> None:
    meta = {"claudecode/toolUseId": "toolu_1", "progressToken": 2, "callId": "c", "x": {"y": [None]}}
    arguments = {"a": [1, 2.5, None, True], "b": {"c": "d"}, "big": 10**30}
    host.call(1, "seen", arguments, meta)
    assert host.answer(1)["result"]["structuredContent"] == {"arguments": arguments, "meta": meta}
    host.request(2, "tools/call", {"name": "seen"})
    assert host.answer(2)["result"]["structuredContent"] == {"arguments": {}, "meta": {}}


@pytest.mark.req("H17")
@pytest.mark.parametrize("where", ['"text":"a\\ud800b"', '"k\\udfff":1', '"x":[{"y":"\\uDABC"}]'])
def test_a_surrogate_in_a_call_is_one_refused_call(host: RawClient, where: str) -> None:
    line = '{"jsonrpc":"2.0","id":41,"method":"tools/call","params":{"name":"echo","arguments":{@}}}\n'
    host.send_bytes(line.replace("@", where).encode())
    assert "not valid Unicode" in text_of(host.answer(41), is_error=True)


@pytest.mark.req("H17")
def test_bytes_that_are_not_utf8_are_one_refused_call(host: RawClient) -> None:
    line = (
        b'{"jsonrpc":"2.0","id":42,"method":"tools/call","params":{"name":"echo","arguments":{"text":"\xff"}}}\n'
    )
    host.send_bytes(line)
    assert "not valid Unicode" in text_of(host.answer(42), is_error=True)


@pytest.mark.req("H17")
def test_a_surrogate_in_an_answer_is_replaced(host: RawClient) -> None:
    host.call(1, "surrogate")
    result = host.answer(1)["result"]
    assert result["content"][0]["text"] == "a?b"
    assert result["structuredContent"] == {"k?": ["?", {"x": "?"}], "n": None}
    host.call(2, "refuse")
    assert text_of(host.answer(2), is_error=True) == "no peer ?: see list_peers"
    host.send_bytes(b'{"jsonrpc":"2.0","id":"i\\ud800","method":"ping"}\n')
    assert host.line() == b'{"jsonrpc":"2.0","id":"i?","result":{}}\n'
    host.send_bytes(b'{"jsonrpc":"2.0","id":3,"method":"no/\\ud800"}\n')
    assert host.answer(3)["error"]["code"] == -32601


@pytest.mark.req("H17")
@pytest.mark.parametrize(
    ("line", "ident", "code"),
    [
        (b"\xff\xfe", None, -32700),
        (b"junk", None, -32700),
        (b'[{"jsonrpc":"2.0","id":8,"method":"ping"}]', 8, -32600),
        (
            b'{"method":"ping","params":' + b"[" * 99_999 + b"]" * 99_999 + b',"jsonrpc":"2.0","id":8}',
            8,
            -32700,
        ),
        (b'{"jsonrpc":"2.0","id":8,"method":"ping","params":{"a":NaN}}', 8, -32700),
        (b'{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"echo","arguments":[]}}', 8, -32602),
    ],
)
def test_a_line_that_cannot_be_served_is_answered(host: RawClient, line: bytes, ident: object, code: int) -> None:
    host.send_bytes(line + b"\n")
    found = host.message()
    assert (found["id"], found["error"]["code"]) == (ident, code)
    assert found["error"]["message"]


@pytest.mark.req("H17")
def test_a_carriage_return_splits_no_line(host: RawClient) -> None:
    call = (
        b'{"jsonrpc":"2.0",\r"id":1,"method":"tools/call",\r"params":{"name":"echo","arguments":{"text":"a\rb"}}}'
    )
    host.send_bytes(call + b"\r\n")
    assert text_of(host.answer(1)) == "a\rb"


@pytest.mark.req("H17")
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_line_over_the_cap_is_refused_and_not_kept(host: RawClient) -> None:
    host.request(0, "ping")
    host.answer(0)
    before = host.peak_bytes()
    size = 48 << 20
    host.send_bytes(b"j" * size + b"\n")
    found = host.message()
    assert found["id"] is None and str(size) in found["error"]["message"]
    host.send_bytes(ECHO.replace(b"@", b"t" * size))
    assert host.answer(7)["error"]["code"] == -32600
    assert host.peak_bytes() - before < 20 << 20  # a line of 4 MiB may be held, not one of 48


def test_a_long_line_under_the_cap_is_served(host: RawClient) -> None:
    text = "t" * 3_000_000
    host.call(1, "echo", {"text": text})
    assert text_of(host.answer(1)) == text


def test_an_unknown_tool_names_its_neighbours(host: RawClient) -> None:
    host.call(1, "ecko")
    assert text_of(host.answer(1), is_error=True) == 'There is no tool "ecko". Did you mean echo?'
    host.call(2, "zzzzzz\x1b[2J" * 100_000)
    text = text_of(host.answer(2), is_error=True)
    assert "There are: echo, repeat," in text and "bind_codex_session" not in text and "\x1b" not in text
    assert len(text) < 1000


@pytest.mark.parametrize("how", ["value", "exit"])
def test_an_exception_tells_the_host_nothing(host: RawClient, how: str) -> None:
    host.call(1, "crash", {"how": how})
    text = text_of(host.answer(1), is_error=True)
    assert text.startswith("crash failed by a fault in interlink (") and "4711" not in text


def test_an_exception_is_logged_in_one_line(host: RawClient) -> None:
    host.call(1, "crash")
    host.answer(1)
    host.call(2, "unwritable")
    assert text_of(host.answer(2), is_error=True).startswith("unwritable failed by a fault")
    lines = [line for line in host.log().splitlines() if "event=tool_failed" in line]
    assert 'tool=crash error=ValueError text="secret 4711" at=sample_server.py:' in "\n".join(lines)
    assert "Traceback" not in host.log()


def test_prints_and_children_do_not_reach_the_wire(host: RawClient) -> None:
    host.call(1, "noise")
    assert json.loads(host.line())["id"] == 1
    for word in ("print\n", "os.write\n", "child\n"):
        assert word in host.log()


@pytest.mark.req("H20", "N1")
def test_a_push_byte_by_byte(host: RawClient) -> None:
    meta = {"sender": "Interlink", "msg_id": "n\ud800", "notification_id": "n1", "ack_required": "true"}
    host.call(1, "push", {"content": '1 message é\u2028\nfrom "bob"', "meta": {**meta, "msg_id": "n1"}})
    assert host.line().decode() == (
        '{"jsonrpc":"2.0","method":"notifications/claude/channel","params":{"content":'
        '"1 message é\u2028\\nfrom \\"bob\\"","meta":{"sender":"Interlink","msg_id":"n1",'
        '"notification_id":"n1","ack_required":"true"}}}\n'
    )
    assert text_of(host.answer(1)) == "pushed"


def test_the_host_is_known_by_name(host: RawClient) -> None:
    host.call(1, "host")
    assert text_of(host.answer(1)) == "claude-code 2.1.278 False"
    assert "event=host_connected client=claude-code version=2.1.278" in host.log()
    host.call(2, "elicit")
    assert text_of(host.message()) == "None"  # no form before it
