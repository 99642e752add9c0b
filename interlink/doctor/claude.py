"""Claude Code's own settings, read only: does anything start the server and the listener (C1, H5)?"""

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from interlink.doctor.finding import OK, WARN, Finding, Scene
from interlink.errors import SetupError
from interlink.state import process
from interlink.state.paths import home

NAME = "claude"
PLUGIN = "interlink"
PROGRAM = "interlink-mcp"
ARMING = ("Stop", "StopFailure", "SessionStart")  # events on which the plugin arms the listener
FILES = ("settings.json", "settings.local.json")


def check_claude(scene: Scene) -> Iterator[Finding]:
    """The plugin, or hooks of the person's own; both in the settings, or on a running host's command line."""
    try:
        folder = scene.environ.get("CLAUDE_CONFIG_DIR", "") or os.path.join(home(scene.environ), ".claude")
    except SetupError:
        return
    if not os.path.isdir(folder):
        yield Finding(OK, NAME, f"no Claude Code configuration ({folder})")
        return
    tables = []
    for name in FILES:
        path = os.path.join(folder, name)
        try:
            with open(path, "rb") as file:
                value = json.load(file)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, RecursionError) as exc:
            yield Finding(WARN, NAME, f"{path} cannot be read: {exc}")
            continue
        tables.append(value if isinstance(value, dict) else {})
    yield _verdict(tables, folder, scene)


def _verdict(tables: list[dict[str, Any]], folder: str, scene: Scene) -> Finding:
    enabled: dict[str, bool] = {}
    events: set[str] = set()
    for table in tables:
        plugins = table.get("enabledPlugins")
        for name, value in (plugins if isinstance(plugins, dict) else {}).items():
            if name.partition("@")[0] == PLUGIN:
                enabled[name] = value is not False
        events |= listening_events(table)
    data = {"plugins": enabled, "hooks": sorted(events), "path": folder}
    on = sorted(name for name, value in enabled.items() if value)
    if on:
        return Finding(OK, NAME, f"plugin {', '.join(on)} is on ({folder})", data=data)
    missing = [event for event in ARMING if event not in events]
    if events and not missing:
        return Finding(OK, NAME, f"hooks start the listener on {', '.join(ARMING)} ({folder})", data=data)
    if events:
        text = f"hooks start the listener, but not on {', '.join(missing)}: an idle session may have none"
        return Finding(WARN, NAME, text, "add them, or use the plugin", data)
    loaded = _loaded(scene)
    if loaded:
        return Finding(OK, NAME, f"host {loaded[0]} was started with a plugin folder (--plugin-dir)", data=data)
    off = f"the plugin {', '.join(sorted(enabled))} is off" if enabled else "the plugin is not installed"
    return Finding(
        WARN,
        NAME,
        f"{off} in {folder}, and no hook starts `{PROGRAM} wait`: an idle session is not woken",
        "install or enable the interlink plugin; if a project's own settings do it, all is well",
        data,
    )


def listening_events(table: Mapping[str, Any]) -> set[str]:
    """Events whose hooks run the listener."""
    found = set()
    hooks = table.get("hooks")
    for event, groups in (hooks if isinstance(hooks, dict) else {}).items():
        for group in groups if isinstance(groups, list) else []:
            handlers = group.get("hooks") if isinstance(group, dict) else None
            for handler in handlers if isinstance(handlers, list) else []:
                command = handler.get("command", "") if isinstance(handler, dict) else ""
                words = str(command).replace('"', " ").replace("'", " ").split()
                if "wait" in words and any(os.path.basename(word) == PROGRAM for word in words):
                    found.add(str(event))
    return found


def _loaded(scene: Scene) -> list[int]:
    """Hosts of running servers that were given a plugin folder on their command line."""
    hosts = {host.pid for one in scene.running for host in one.hosts}
    return sorted(pid for pid in hosts if "--plugin-dir" in " ".join(process.command_line(pid) or []))
