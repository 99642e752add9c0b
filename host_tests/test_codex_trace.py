"""The standard trace of the real Codex, version by version: what a fixture of it has to do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from host_tests.codex_trace import Entry, codex_trace
from host_tests.codex_world import VERSIONS

HOOK_META = ["progressToken", "threadId"]
MODEL_META = ["callId", "itemId", *HOOK_META, "sessionId", "windowId", "x-codex-turn-metadata"]


def bind(event: str) -> Entry:
    return {"kind": "bind", "event": event, "arguments": ["thread_id"], "meta": HOOK_META, "own": True}


def call(name: str, *arguments: str) -> list[Entry]:
    tool: dict[str, Any] = {"kind": "tool", "name": name, "arguments": list(arguments), "meta": sorted(MODEL_META)}
    return [bind("PreToolUse"), tool]


def turn(trigger: str, *within: Entry) -> list[Entry]:
    return [bind("UserPromptSubmit"), {"kind": "turn", "trigger": trigger}, *within, bind("Stop")]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.req("X1", "X2", "H13")
def test_the_standard_trace(version: str, host: Callable[[str, str], Path], tmp_path: Path) -> None:
    more = ["--resume"] if version != "0.160.0" else []
    queued: Entry = {"kind": "queued", "argv": ["queue", "--thread", "--message", *more]}
    woken = turn("queue", *call("receive_messages", "notification_id"), *call("acknowledge_messages", "messages"))
    expected = [bind("SessionStart"), *turn(""), queued, *woken, *turn("", queued), *woken]
    assert codex_trace(host("codex", version), tmp_path) == expected
