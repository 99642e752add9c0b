"""A host fixture and a server that says what no host can take: it is told and killed, and nothing hangs."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from interlink_lab.fixtures.child import ServerChild
from interlink_lab.fixtures.claude import ClaudeFixture
from interlink_lab.fixtures.mcp import McpClient
from interlink_lab.node.hostproc import plugin_hooks

SERVER = """
import json, sys, time
for line in sys.stdin:
    call = json.loads(line)
    if call["method"] == "tools/call":
        print(sys.argv[1], flush=True)
        time.sleep(60)
    if "id" in call:
        result = {"capabilities": {"experimental": {"claude/channel": {}}}}
        print(json.dumps({"id": call["id"], "result": result}), flush=True)
"""
PUSH = {"jsonrpc": "2.0", "method": "notifications/claude/channel", "params": {}}


@pytest.mark.parametrize("said", ["Traceback (most recent call last):", "[1]", json.dumps(PUSH)])
def test_a_server_that_says_what_cannot_be_taken_is_told_and_killed(tmp_path: Path, said: str) -> None:
    told: list[tuple[str, dict[str, Any]]] = []

    def take(method: str, params: dict[str, Any], client: McpClient) -> None:
        assert client.initialized and client.declares
        raise KeyError(method)

    async def run() -> None:
        argv = [sys.executable, "-c", SERVER, said]
        child = ServerChild(
            argv, {}, str(tmp_path / "log"), "x", lambda kind, **data: told.append((kind, data)), take
        )
        async with anyio.create_task_group() as group:
            assert await child.start(group)
            with anyio.fail_after(20):
                with pytest.raises(ConnectionError):
                    await child.call_raw("send", {}, None)
                await child.stop()

    anyio.run(run)
    assert [kind for kind, _data in told] == ["start", "garbled", "exit"]
    assert told[0][1]["declares"] == ["claude/channel"]


def test_a_push_without_its_fields_is_told_with_those_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {
        "session": "s", "server": ["x"], "env": {}, "log": "", "cwd": str(tmp_path), "hooks": plugin_hooks(),
        "policy": {}, "channel": "on",
    }  # fmt: skip
    fixture = ClaudeFixture(config)
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(fixture, "emit", lambda party, kind, **data: told.append({"kind": kind, **data}))

    client = SimpleNamespace(declares=["claude/channel"], initialized=False)
    params = {"content": "x", "meta": {"msg_id": "n1", "ack_required": True}}
    fixture.told("notifications/claude/channel", params, client)  # type: ignore[arg-type]
    (push,) = told
    assert (push["keys"], push["wrong"], push["notice"]) == (["ack_required", "msg_id"], "ack_required", "")
    assert push["declared"] and push["early"]
