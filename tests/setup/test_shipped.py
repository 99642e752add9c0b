"""What is shipped for the hosts: the plugin's hooks, Codex's configuration, and what they may not do."""

import json
import os
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.setup import install

from interlink import __version__
from interlink.doctor.codex import hook_hash
from interlink.setup import claude, codex
from interlink.setup.launch import make_launch
from interlink.tools.app import BIND, TOOLS
from interlink_lab.tools import hosts

LISTEN = {
    "type": "command",
    "command": "interlink-mcp wait",
    "async": True,
    "asyncRewake": True,
    "timeout": 3600,
}
# What Codex 0.160.0 and 0.171.0 call the hash of these hooks; it depends on the hook's text alone.
HASHES = {
    "SessionStart": "2965325372acaeb83bfdc72723ea7a39f1ae17949c4fc0eadf05e0381eed4f8e",
    "UserPromptSubmit": "76f117fbb73b0797549501ccc07d4618a41cdb8133c0b168f3642c13183b6abb",
    "PreToolUse": "be9fe83711a0198e2e8dee706f62f30264446ed82e15ffd54b26b4fd7b6ddd81",
    "Stop": "c07d437320c60ab80cef656b27c0610c053223b041fd48be771fff0da9b66d1f",
}
OF_PERSONS = {"add_peer", "remove_peer", "accept_pair", "reject_pair", "request_pair", BIND}


def plugin(name: str) -> Any:
    return json.loads(claude.packaged()[name])


def server() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(codex.packaged())["mcp_servers"]["interlink"]
    return found


@pytest.mark.req("C1", "H5")
def test_the_listener_is_armed_at_start_stop_and_failed_stop() -> None:
    hooks = plugin(claude.HOOKS)["hooks"]
    for event in ("SessionStart", "Stop", "StopFailure"):
        assert hooks[event] == [{"hooks": [LISTEN]}], event
    assert set(hooks) == {"SessionStart", "Stop", "StopFailure", "PostToolUse"}
    text = b"".join(claude.packaged().values()).decode()
    assert "channel" not in text and "dangerous" not in text


@pytest.mark.req("T4")
def test_a_reminder_follows_tool_calls() -> None:
    (group,) = plugin(claude.HOOKS)["hooks"]["PostToolUse"]
    assert set(group["matcher"].split("|")) == {"Bash", "Edit", "Write"}
    assert group["hooks"] == [{"type": "command", "command": "interlink-mcp nudge", "timeout": 10}]


def test_the_plugin_is_what_marketplace_and_server_say() -> None:
    market, manifest = plugin(".claude-plugin/marketplace.json"), plugin("plugin/.claude-plugin/plugin.json")
    assert manifest["version"] == __version__
    (entry,) = market["plugins"]
    assert (market["name"], entry["name"], manifest["name"]) == ("interlink", "interlink", "interlink")
    assert plugin(claude.MCP) == {"mcpServers": {"interlink": {"command": "interlink-mcp", "args": []}}}


@pytest.mark.req("H1")
def test_rendering_changes_programs_alone(tmp_path: Path) -> None:
    program = install(tmp_path)
    done = claude.render(make_launch({"program": str(program)}, [], {}))
    for name, data in claude.packaged().items():
        if name in (claude.MCP, claude.HOOKS):
            after = json.loads(done[name].replace(str(program).encode(), b"interlink-mcp"))
            assert after == json.loads(data)
            assert done[name].count(str(program).encode()) == (1 if name == claude.MCP else 4)
        else:
            assert done[name] == data


@pytest.mark.req("X1")
def test_the_four_hooks_have_the_hashes_that_codex_knows() -> None:
    hooks = tomllib.loads(codex.packaged())["hooks"]
    found = {event: hook_hash(event, group, group["hooks"][0]) for event, (group,) in hooks.items()}
    assert found == {event: f"sha256:{value}" for event, value in HASHES.items()}


@pytest.mark.req("H14")
def test_codexs_server_gets_what_it_does_not_inherit() -> None:
    names = "URL KEY PEERS NAME TOKEN_FILE CODEX_BIN".split()
    wanted = {"CODEX_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", *(f"INTERLINK_{name}" for name in names)}
    assert set(server()["env_vars"]) == wanted
    assert server()["args"] == ["--host", "codex"]


@pytest.mark.req("H15", "G8")
def test_single_tools_are_approved_and_none_that_a_person_decides() -> None:
    approved = {name for name, value in server()["tools"].items() if value == {"approval_mode": "approve"}}
    assert approved == set(server()["tools"]) == {"acknowledge_messages", "conversation_history", "send_message"}
    assert not approved & OF_PERSONS
    for name in approved:
        assert not TOOLS[name].destructive and not TOOLS[name].read_only and not TOOLS[name].hidden, name
    assert set(server()) == {"command", "args", "env_vars", "tools"}  # no word about the whole server
    text = codex.packaged()
    assert "trusted_hash" not in text and "state" not in tomllib.loads(text)["hooks"]
    for name in approved:  # each with its reason beside it
        assert f"[mcp_servers.interlink.tools.{name}] # " in text


@pytest.mark.req("H15")
def test_annotations_say_what_a_tool_does() -> None:
    changing = {"send_message", "acknowledge_messages", "conversation_history", "set_summary", "cancel_task"}
    changing |= {"failed_deliveries"} | OF_PERSONS
    assert {name for name, tool in TOOLS.items() if not tool.read_only} == changing
    for name, tool in TOOLS.items():
        assert not (tool.read_only and (tool.destructive or tool.open_world)), name
    assert {name for name, tool in TOOLS.items() if tool.hidden} == {BIND}
    assert all(TOOLS[name].asking is not None for name in ("add_peer", "remove_peer", "accept_pair"))


def _claude() -> str:
    places = [str(hosts.program("claude", version)) for version in hosts.known()["claude"][1]]
    return next((path for path in [*places, shutil.which("claude") or ""] if path and os.path.exists(path)), "")


@pytest.mark.skipif(not _claude(), reason="no claude program here: ./dev hosts-install claude")
def test_claude_itself_finds_nothing_wrong(tmp_path: Path) -> None:
    launch = make_launch({"program": str(install(tmp_path / "a b"))}, [], {})
    for name, data in claude.render(launch).items():
        path = tmp_path / "claude" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    env = {"CLAUDE_CONFIG_DIR": str(tmp_path / "config"), "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1"}
    env |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    for folder in ("claude", "claude/plugin"):
        done = subprocess.run(
            [_claude(), "plugin", "validate", "--strict", str(tmp_path / folder)],
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0 and "Validation passed" in done.stdout, done
