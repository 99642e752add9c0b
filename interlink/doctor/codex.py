"""Codex's own configuration, read only: is interlink set up there, are the hooks that bind it trusted (X1, H14)?

Codex keeps the trust of a hook in the same file: `hooks.state."<file>:<event>:<group>:<hook>".trusted_hash`, a
hash of the hook's own text. A hook that is not trusted, or was changed since, is skipped without a word.
"""

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from interlink.doctor.finding import OK, WARN, Finding, Scene, first_lines
from interlink.errors import SetupError
from interlink.state.paths import home
from interlink.text import count

NAME = "codex"
BIND = "bind_codex_session"
PROGRAM = "interlink-mcp"
NEEDED = ("SessionStart", "UserPromptSubmit")  # either binds; the second on every turn
TIMEOUT_S = 600  # what Codex takes where a hook names none
_WITHOUT_MATCHER = frozenset({"user_prompt_submit", "stop"})


def check_codex(scene: Scene) -> Iterator[Finding]:
    """The server's entry, and the hooks that bind the session."""
    try:
        folder = scene.environ.get("CODEX_HOME", "") or os.path.join(home(scene.environ), ".codex")
    except SetupError:
        return
    path = os.path.join(folder, "config.toml")
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except FileNotFoundError:
        yield Finding(OK, NAME, f"no Codex configuration ({path})")
        return
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        yield Finding(WARN, NAME, f"{path} cannot be read: {exc}")
        return
    servers = _dict(table.get("mcp_servers"))
    names = [name for name, entry in servers.items() if _is_ours(name, _dict(entry))]
    if not names:
        yield Finding(OK, NAME, f"interlink is not set up in {path}")
        return
    for name in names:
        yield from _entry(name, _dict(servers[name]), scene, path)
        yield from _hooks(name, table, path)


def _is_ours(name: str, entry: Mapping[str, Any]) -> bool:
    return name == "interlink" or os.path.basename(str(entry.get("command", ""))) == PROGRAM


def _entry(name: str, entry: Mapping[str, Any], scene: Scene, path: str) -> Iterator[Finding]:
    passes = "CODEX_HOME" in _list(entry.get("env_vars")) or "CODEX_HOME" in _dict(entry.get("env"))
    if scene.environ.get("CODEX_HOME") and not passes:
        yield Finding(
            WARN,
            NAME,
            f"{path}: mcp_servers.{name} does not get CODEX_HOME: notices would go to another Codex",
            f'add env_vars = ["CODEX_HOME"] to [mcp_servers.{name}]',
        )


def _hooks(name: str, table: Mapping[str, Any], path: str) -> Iterator[Finding]:
    trust = dict(_states(name, table, path))
    bad = {event: state for event, state in trust.items() if state != "trusted"}
    data = {"path": path, "hooks": trust}
    if not any(event in trust for event in NEEDED):
        yield Finding(
            WARN,
            NAME,
            f"{path} has no hook that calls {BIND}: the session is never bound, and nothing is polled or sent",
            "add the hooks of the shipped configuration",
            data,
        )
    elif bad:
        shown = first_lines(f"{event} {state}" for event, state in bad.items())
        advice = "start Codex in a terminal and review its hooks (Hooks need review); new threads then use them"
        yield Finding(WARN, NAME, f"hooks that Codex skips: {shown}", advice, data)
    else:
        yield Finding(OK, NAME, f"set up, {count(len(trust), 'hook')} trusted ({path})", data=data)


def _states(name: str, table: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """(event, trusted | untrusted | modified | disabled) of the hooks that call our bind tool."""
    hooks = _dict(table.get("hooks"))
    states = _dict(hooks.get("state"))
    for event, groups in hooks.items():
        if event == "state":
            continue
        for g, group in enumerate(_list(groups)):
            for h, hook in enumerate(_list(_dict(group).get("hooks"))):
                found = _dict(hook)
                if found.get("tool") == BIND and found.get("server") == name:
                    state = _dict(states.get(f"{path}:{_snake(event)}:{g}:{h}"))
                    yield event, _trust(state, hook_hash(event, _dict(group), found))


def _trust(state: Mapping[str, Any], expected: str) -> str:
    if state.get("enabled") is False:
        return "disabled"
    if "trusted_hash" not in state:
        return "untrusted"
    return "trusted" if state["trusted_hash"] == expected else "modified"


def hook_hash(event: str, group: Mapping[str, Any], hook: Mapping[str, Any]) -> str:
    """What Codex stores once a person trusted this hook."""
    timeout = hook.get("timeout", TIMEOUT_S)
    handler = {**hook, "timeout": max(1, timeout) if isinstance(timeout, int) else timeout}
    if handler.get("type") == "command":
        handler.setdefault("async", False)
    value: dict[str, Any] = {"event_name": _snake(event), "hooks": [handler]}
    if group.get("matcher") is not None and _snake(event) not in _WITHOUT_MATCHER:
        value["matcher"] = group["matcher"]
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return "sha256:" + hashlib.sha256(text.encode("utf-8")).hexdigest()


def _snake(event: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", event).lower()


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
