"""The order of hooks, wakes and tool calls of a real Claude Code, against what that version was seen to do."""

from pathlib import Path

import pytest

from host_tests.trace import claude_trace, expected


@pytest.mark.req("C1", "H4", "H5")
def test_the_host_does_what_this_version_was_seen_to_do(claude: Path, own_home: str) -> None:
    seen = claude_trace(claude, Path(own_home) / "trace")
    assert seen == expected(claude.parts[-4].removeprefix("claude-"))
    hooks = [line for line in seen if line["kind"] == "hook"]
    assert all("session_id" in hook["payload"] and "CLAUDE_PID" in hook["env"] for hook in hooks)
    assert [line["kind"] for line in seen if line["kind"] in ("wake", "tool")] == ["wake", "tool", "tool"] * 2
