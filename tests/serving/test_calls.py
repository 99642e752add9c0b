"""Calls side by side, cancellation, forms for the person, pushes: with the SDK's own client where it can."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.mcp_client import INITIALIZE, RawClient
from support.steps import Steps

from interlink_lab.mcp_client import ToolFailed, open_client

SERVER = [sys.executable, str(Path(__file__).with_name("sample_server.py"))]


@pytest.fixture
def steps(tmp_path: Path) -> Steps:
    return Steps(tmp_path)


def test_calls_run_side_by_side_and_end_when_cancelled(steps: Steps) -> None:
    with RawClient(SERVER, {"SAMPLE_TRACE": str(steps.path)}) as host:
        host.handshake()
        for ident, tag in ((1, "a"), ("two", "b")):
            host.call(ident, "wait", {"tag": tag})
            steps.wait_for(f"waiting {tag}")
        host.call(3, "echo", {"text": "meanwhile"})
        assert host.message()["id"] == 3
        for ident in (1, "two", "no such request"):
            params = {"requestId": ident, "reason": "changed my mind"}
            host.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        for tag in "ab":
            steps.wait_for(f"cancelled {tag}")
        host.request(4, "ping")
        assert host.message() == {"jsonrpc": "2.0", "id": 4, "result": {}}  # a cancelled call gets no answer


def test_a_form_goes_to_the_person_and_back() -> None:
    asked: list[tuple[str, dict[str, Any]]] = []
    replies: list[dict[str, Any] | None] = [{"confirm": True}, None]

    async def person(message: str, schema: dict[str, Any]) -> dict[str, Any] | None:
        asked.append((message, schema))
        return replies.pop(0)

    async def main() -> None:
        async with open_client(SERVER, person=person, name="codex", version="0.171") as session:
            assert await session.text("host") == "codex 0.171 True"
            assert await session.text("elicit") == "{'confirm': True}"
            assert await session.text("elicit") == "None"
        assert session.exit_code == 0

    anyio.run(main)
    assert [message for message, _ in asked] == ["Trust ?bob?"] * 2
    assert asked[0][1]["properties"] == {"confirm": {"type": "boolean"}}


def test_a_host_without_forms_is_shown_none() -> None:
    with RawClient(SERVER) as host:
        host.handshake({"elicitation": {"url": {}}})
        host.call(1, "host")
        assert host.answer(1)["result"]["content"][0]["text"].endswith("False")
        host.call(2, "elicit")
        answer = host.message()
        assert (answer["id"], answer["result"]["content"][0]["text"]) == (2, "None")


@pytest.fixture(scope="module")
def forms() -> Iterator[RawClient]:
    """A server whose host has forms, in the older way of saying so."""
    with RawClient(SERVER) as host:
        host.handshake({"elicitation": {}})
        yield host


@pytest.mark.parametrize(
    "reply",
    [
        {"error": {"code": -32601, "message": "Method not found"}},
        {"result": {"action": "cancel"}},
        {"result": {"action": "accept", "content": "yes"}},
        {"result": {"no": "action"}},
        {"result": []},
        None,
    ],
)
def test_a_form_without_a_good_answer_is_a_no(reply: dict[str, object] | None, forms: RawClient) -> None:
    """None: the person never answers."""
    forms.call("c", "elicit", {"timeout": 0.2} if reply is None else {})
    form = forms.message()
    assert form["method"] == "elicitation/create"
    if reply is not None:
        forms.send({"jsonrpc": "2.0", "id": form["id"], **reply})
    assert forms.answer("c")["result"]["content"][0]["text"] == "None"
    forms.call("d", "elicit")
    form = forms.message()
    forms.send({"jsonrpc": "2.0", "id": form["id"], "result": {"action": "accept", "content": {"confirm": True}}})
    assert forms.answer("d")["result"]["content"][0]["text"] == "{'confirm': True}"


@pytest.mark.req("N1", "H20")
def test_pushes_reach_the_sdk_client(steps: Steps, tmp_path: Path) -> None:
    async def main() -> None:
        env = {"SAMPLE_CHANNEL": "1", "SAMPLE_PUSH": "early", "SAMPLE_TRACE": str(steps.path)}
        async with open_client(SERVER, {**os.environ, **env}, stderr=tmp_path / "log") as session:
            first = await session.push()
            assert (first.content, first.meta) == ("early", {"sender": "Interlink", "msg_id": "n1"})
            for number in range(20):
                await session.text("push", content=str(number), meta={"msg_id": f"n{number}"})
            got = {(await session.push()).content for _ in range(20)}
            assert got == {str(number) for number in range(20)}
        assert session.exit_code == 0

    anyio.run(main)
    assert "pushed" in steps.all()


@pytest.mark.req("N3")
def test_a_push_that_found_no_room_in_time_is_never_sent(steps: Steps) -> None:
    env = {"SAMPLE_CHANNEL": "1", "SAMPLE_TRACE": str(steps.path)}
    with RawClient(SERVER, env, read_stdout=False) as host:
        host.request(0, "initialize", INITIALIZE)
        host.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        host.call("fill", "repeat", {"text": "x", "times": 1 << 20})
        steps.wait_for("repeating")
        host.call(1, "push", {"content": "stale", "meta": {}, "timeout": 0.2})
        steps.wait_for("push timed out")
        host.call(2, "push", {"content": "later", "meta": {}, "timeout": 60})
        host.read_stdout()
        seen = [host.message() for _ in range(5)]
        pushed = [found["params"]["content"] for found in seen if "method" in found]
        assert pushed == ["later"]
        assert {found["id"] for found in seen if "id" in found} == {0, "fill", 1, 2}


def test_an_error_answer_is_an_exception_of_the_helper() -> None:
    async def main() -> None:
        async with open_client(SERVER) as session:
            with pytest.raises(ToolFailed, match="see list_peers"):
                await session.text("refuse")
            result = await session.call_tool("seen", {"a": 1}, meta={"callId": "c"})  # type: ignore[typeddict-unknown-key]
            assert result.structured_content == {"arguments": {"a": 1}, "meta": {"callId": "c"}}

    anyio.run(main)
