"""What hosts are told of the tools; wrong arguments are one clear error, nothing is sent or stored (H9, F15)."""

import json
import re
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.mcp_client import RawClient
from support.programs import program
from support.world import World, until

from interlink.errors import UsageError
from interlink.tools import app
from interlink.tools import arguments as args
from interlink.tools.surface import ToolDef

TOOLS = {tool.name: tool for tool in app.definitions()}
SAME_EVERY_TIME = settings(suppress_health_check=[HealthCheck.too_slow])


# -- what the host is told ------------------------------------------------------------------------------


@pytest.mark.req("H15", "M4", "G8")
def test_annotations_are_true() -> None:
    def those(flag: str) -> set[str]:
        return {name for name, tool in TOOLS.items() if getattr(tool, flag)}

    assert those("read_only") == {
        "receive_messages",
        "read_message",
        "message_status",
        "list_pending",
        "list_peers",
        "discover",
        "list_pair_requests",
        "get_my_session_id",
    }
    # what changes trust, or forgets something for good, is never called harmless
    assert those("destructive") == {"add_peer", "remove_peer", "accept_pair", "reject_pair"}
    assert not those("read_only") & (those("destructive") | those("open_world"))
    # what reaches other hosts
    assert those("open_world") == {
        "send_message",
        "cancel_task",
        "set_summary",
        "request_pair",
        "accept_pair",
        "failed_deliveries",
    }
    assert those("read_only") <= those("idempotent") and "acknowledge_messages" in those("idempotent")
    assert not {"send_message", "cancel_task"} & those("idempotent")
    assert those("hidden") == {"bind_codex_session"}


@pytest.mark.req("H9")
@pytest.mark.parametrize(
    ("words", "tool"),
    [
        ("send message agent", "send_message"),
        ("read inbox", "receive_messages"),
        ("unread", "receive_messages"),
        ("acknowledge receipts", "acknowledge_messages"),
        ("conversation history", "conversation_history"),
        ("delivery state", "message_status"),
        ("pending relay", "list_pending"),
        ("peers trust", "list_peers"),
        ("discover agents", "discover"),
        ("pair", "request_pair"),
        ("pairing requests", "list_pair_requests"),
        ("cancel task", "cancel_task"),
        ("failed delivered notices", "failed_deliveries"),
        ("session id", "get_my_session_id"),
        ("long message parts", "read_message"),
    ],
)
def test_an_agent_that_searches_finds_the_tool(words: str, tool: str) -> None:
    def text(found: ToolDef) -> str:
        return f"{found.name.replace('_', ' ')} {found.title} {found.description}".lower()

    assert all(re.search(rf"\b{word}", text(TOOLS[tool])) for word in words.split()), text(TOOLS[tool])


@pytest.mark.req("H9")
def test_every_tool_and_argument_is_explained_by_a_schema_without_references() -> None:
    for name, tool in TOOLS.items():
        assert tool.title and len(tool.description) > 40, name
        schema = tool.input_schema
        assert schema["type"] == "object" and schema["additionalProperties"] is False, name
        assert "$ref" not in json.dumps(schema) and "anyOf" not in json.dumps(schema), name
        for argument, told in schema["properties"].items():
            assert told.get("description") and told.get("type"), f"{name}.{argument}"
    assert TOOLS["send_message"].input_schema["required"] == ["to", "text"]
    assert set(TOOLS["send_message"].input_schema["properties"]["status"]["enum"]) == {
        "update",
        "needs_input",
        "result",
        "failed",
        "canceled",
    }


# -- arguments ------------------------------------------------------------------------------------------

VALID: dict[str, dict[str, Any]] = {
    "send_message": {"to": "alice", "text": "x", "task_id": "t", "status": "update", "session": "s"},
    "receive_messages": {"limit": 5, "after": {"sender": "k", "msg_id": "m"}},
    "read_message": {"sender": "k", "msg_id": "m", "offset": 1, "length": 2},
    "acknowledge_messages": {"messages": [{"sender": "k", "msg_id": "m"}], "fetch_next": True},
    "conversation_history": {"peer": "alice", "limit": 3, "consume": True},
    "message_status": {"msg_id": "m"},
    "add_peer": {"petname": "a", "key": "k"},
    "remove_peer": {"petname": "a"},
    "discover": {"peer": "a"},
    "set_summary": {"summary": "s"},
    "request_pair": {"target": "a"},
    "accept_pair": {"fingerprint": "f", "petname": "a"},
    "reject_pair": {"fingerprint": "f"},
    "cancel_task": {"to": "alice", "task_id": "t", "reason": "r", "session": "s"},
    "failed_deliveries": {"action": "read", "id": "i"},
    "bind_codex_session": {"thread_id": "t"},
}
WRONG: list[Any] = [
    7,
    -1,
    1.5,
    True,
    "",
    "x" * 5000,
    "\ud800",
    "a\0b",
    [],
    [1],
    {},
    {"a": "\udfff"},
    {"x": 1},
    2**70,
]

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(), max_size=20)
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)


def parse(tool: str, arguments: dict[str, Any]) -> Any:
    return args.parse(app.TOOLS[tool].kind, arguments, tool)


def holds_surrogate(value: object) -> bool:
    """By another way than the product's: what JSON cannot carry as UTF-8."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


@pytest.mark.req("H17")
@SAME_EVERY_TIME
@given(st.sampled_from(sorted(TOOLS)), st.dictionaries(st.text(max_size=12), values, max_size=4), st.data())
def test_anything_is_parsed_or_refused_in_one_clear_line(
    tool: str, extra: dict[str, Any], data: st.DataObject
) -> None:
    names = sorted(TOOLS[tool].input_schema["properties"])
    arguments = dict(extra)
    if names:
        for name in data.draw(st.sets(st.sampled_from(names))):
            arguments[name] = data.draw(values)
    try:
        parsed = parse(tool, arguments)
    except UsageError as exc:
        text = str(exc)
        assert text.startswith(f"{tool}: ") and text.endswith("Nothing was changed.") and "\n" not in text[:200]
    else:
        assert not holds_surrogate(arguments)
        assert {k for k, v in arguments.items() if v is not None} <= set(names)
        assert isinstance(parsed, app.TOOLS[tool].kind)


@pytest.mark.req("H17")
@pytest.mark.parametrize("tool", sorted(VALID))
def test_each_argument_is_checked(tool: str) -> None:
    good = VALID[tool]
    parse(tool, good)
    required = TOOLS[tool].input_schema.get("required", [])
    for name in good:
        # an explicit null is the same as leaving it out
        for without in ({k: v for k, v in good.items() if k != name}, {**good, name: None}):
            if name in required:
                with pytest.raises(UsageError, match=name):
                    parse(tool, without)
            else:
                parse(tool, without)
        told = TOOLS[tool].input_schema["properties"][name]
        for wrong in WRONG:
            kind = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
            if (
                kind[type(wrong)] == told["type"]
                and not holds_surrogate(wrong)
                and wrong not in ("", [1], {}, {"x": 1})
            ):
                continue  # of the right kind: what it means is for the tool to say
            if (told["type"], wrong) in (("array", []), ("object", {})) or (wrong == "" and "enum" not in told):
                continue
            with pytest.raises(UsageError, match="Nothing was changed"):
                parse(tool, {**good, name: wrong})
    with pytest.raises(UsageError, match="unknown field"):
        parse(tool, {**good, "no_such_argument": 1})


@pytest.mark.req("H17")
def test_words_are_exact_and_ids_are_not_empty() -> None:
    for status in ("update\n", "Update", "updates", "", " update"):
        with pytest.raises(UsageError, match="use one of canceled, failed, needs_input, result, update"):
            parse("send_message", {**VALID["send_message"], "status": status})
    for action in ("list\n", "retry ", "LIST", ""):
        with pytest.raises(UsageError, match="use one of discard, list, read, retry"):
            parse("failed_deliveries", {"action": action})
    for name in ("task_id", "in_reply_to"):
        with pytest.raises(UsageError, match="length >= 1"):
            parse("send_message", {**VALID["send_message"], name: ""})
    deep: Any = "x"
    for _ in range(500):
        deep = [deep]
    with pytest.raises(UsageError, match="nested too deeply"):
        parse("acknowledge_messages", {"messages": deep})


@pytest.mark.req("H17", "M4", "B4")
def test_a_live_server_answers_every_bad_call_and_neither_sends_nor_stores(world: World) -> None:
    alice, bob = world.pair()
    calls: list[tuple[str, Any]] = []
    for tool, good in VALID.items():
        for name in good:
            number = "7" if TOOLS[tool].input_schema["properties"][name]["type"] == "integer" else 7
            bad = (
                "\ud800",
                number,
                [] if name != "messages" else {},
                "a\0b" if name not in ("text", "reason") else {},
            )
            calls += [(tool, {**good, name: wrong}) for wrong in bad]
        calls.append((tool, {**good, "more": 1}))
        if "required" in TOOLS[tool].input_schema:
            calls += [(tool, {}), (tool, dict.fromkeys(good))]
    calls += [
        ("no_such_tool", {}),
        ("send_message\0", {}),
        ("", {}),
        ("send_message", {"to": "self", "text": "x"}),
    ]
    calls += [("receive_messages", {"limit": n}) for n in (0, 101, -1, 2**70)]
    calls += [("receive_messages", {"after": {"sender": "k"}}), ("list_peers", {"x": "\ud800"})]
    calls += [("acknowledge_messages", {"messages": [{"sender": "k", "msg_id": "m"}] * 4097})]
    calls += [("send_message", {"to": "alice", "text": "x" * (1 << 20) + "x", "session": "s-alice"})]
    quiet = {"discover", "set_summary"}  # any text is a right one for these

    async def main() -> None:
        argv = [*program("interlink-mcp"), "--session", "s-bob"]
        with RawClient(argv, bob.env()) as client:
            await anyio.to_thread.run_sync(client.handshake)
            await until(lambda: world.announced("s-bob"), "bob to be announced")
            for number, (tool, arguments) in enumerate(calls):
                client.call(number, tool, arguments)
                answer = await anyio.to_thread.run_sync(client.answer, number)
                shown = f"{tool} {str(arguments)[:200]}: {json.dumps(answer)[:300]}"
                result = answer.get("result")
                if result is None:
                    assert answer["error"]["message"], shown
                    continue
                text = result["content"][0]["text"]
                assert text and "Traceback" not in text and "fault in interlink" not in text, shown
                if tool not in quiet and not holds_surrogate(arguments):
                    asked = tool in ("acknowledge_messages", "conversation_history") and not result.get("isError")
                    assert result.get("isError") or asked, shown
                if holds_surrogate(arguments):
                    assert result["isError"] and "not valid Unicode" in text, shown
            client.call("last", "get_my_session_id")
            answer = await anyio.to_thread.run_sync(client.answer, "last")
            assert "s-bob" in answer["result"]["content"][0]["text"]
            client.close_stdin()
            assert await anyio.to_thread.run_sync(client.wait) == 0
        assert world.queued() == 0 and bob.records() == [] and bob.trusted() == {"alice": alice.key}
        assert not list((bob.root / "outbox").rglob("*.jsonl")) if (bob.root / "outbox").exists() else True
        assert not (bob.root / "pairing").exists() and not (bob.root / "task").exists()

    anyio.run(main)
