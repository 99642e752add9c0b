"""Claude Code: the packaged plugin with absolute paths, and the settings that switch it on (C1, H1, H5).

    package: interlink/hosts/claude  --render-->  $XDG_DATA_HOME/interlink/claude  (a marketplace with one plugin)
    settings.json: extraKnownMarketplaces.interlink -> that folder, enabledPlugins."interlink@interlink" = true

Claude Code reads such a plugin in place, from its first session on, without a network.
"""

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from interlink.doctor.claude import listening_events
from interlink.errors import SetupError
from interlink.setup import jsonedit
from interlink.setup.launch import PROGRAM, Launch, make_launch, unseen
from interlink.setup.plan import Change, Plan, change
from interlink.state import files
from interlink.state.paths import data_dir, home

MARKETPLACE = "interlink"
PLUGIN = "interlink@interlink"
MCP = "plugin/.mcp.json"
HOOKS = "plugin/hooks/hooks.json"
_BOM = "\ufeff"


def packaged() -> dict[str, bytes]:
    """The plugin as it is shipped: relative path -> content."""
    return dict(_walk(resources.files("interlink.hosts").joinpath("claude"), ""))


def render(launch: Launch) -> dict[str, bytes]:
    """The plugin as it is installed: the packaged one that starts this program, by its absolute path."""
    found = packaged()
    servers = json.loads(found[MCP])
    for server in servers["mcpServers"].values():
        server.update(command=launch.program, args=launch.args, **({"env": launch.env} if launch.env else {}))
    hooks = json.loads(found[HOOKS])
    for groups in hooks["hooks"].values():
        for handler in (handler for group in groups for handler in group["hooks"]):
            handler["command"] = _hook(launch, handler["command"])
    return {**found, MCP: _dump(servers), HOOKS: _dump(hooks)}


def plan(options: Mapping[str, str | None], config_dir: str, environ: Mapping[str, str]) -> Plan:
    """What `interlink setup claude` would change.

    Raises UsageError, SetupError (broken settings, or a marketplace of that name from elsewhere), StateError.
    """
    folder = os.path.join(data_dir(environ), "claude")
    given = config_dir or environ.get("CLAUDE_CONFIG_DIR", "") or os.path.join(home(environ), ".claude")
    settings = os.path.join(os.path.abspath(os.path.expanduser(given)), "settings.json")
    launch = make_launch(options, *_earlier(folder))
    switched, table = _switch_on(settings, folder)
    return Plan(
        [*_folder_changes(folder, render(launch)), *switched],
        [*unseen(environ, launch), *_remarks(table)],
        ["New sessions of Claude Code have the plugin. `interlink doctor` says whether all is in order."],
    )


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        name = prefix + entry.name
        if entry.is_dir():
            yield from _walk(entry, name + "/")
        else:
            yield name, entry.read_bytes()


def _hook(launch: Launch, command: str) -> str:
    """`interlink-mcp wait` as one absolute executable, quoted for a shell: it ends with 127 where it is gone."""
    first, _, rest = command.partition(" ")
    if first != PROGRAM:
        return command
    env = "".join(f"{name}={shlex.quote(value)} " for name, value in launch.shared.items())
    return f"{env}{shlex.quote(launch.program)} {rest}".rstrip()


def _dump(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8")


def _earlier(folder: str) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment that the last setup gave the server. What is no file of ours gives nothing."""
    try:
        server = json.loads(files.read_bytes(os.path.join(folder, *MCP.split("/"))) or b"")
        server = server["mcpServers"]["interlink"]
        args, env = server.get("args", []), server.get("env", {})
        return [str(word) for word in args], {str(name): str(value) for name, value in env.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return [], {}


def _folder_changes(folder: str, wanted: Mapping[str, bytes]) -> list[Change]:
    """The folder is ours: what an earlier version had in it and this one has not goes."""
    found = []
    for name, data in sorted(wanted.items()):
        found += change(os.path.join(folder, *name.split("/")), data, brief=name not in (MCP, HOOKS))
    for place, _folders, names in os.walk(folder):
        for name in sorted(names):
            path = os.path.join(place, name)
            relative = os.path.relpath(path, folder).replace(os.sep, "/")
            if relative not in wanted and not name.endswith((".bak", ".tmp")):
                found += change(path, None)
    return found


def _switch_on(path: str, folder: str) -> tuple[list[Change], dict[str, Any]]:
    """The change of settings.json, and what is in it now."""
    data = files.read_bytes(os.path.realpath(path)) or b""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise SetupError(f"{path} is not UTF-8: mend it first; nothing was changed") from exc
    mark = _BOM if text.startswith(_BOM) else ""
    text = text.removeprefix(_BOM)
    table = jsonedit.parse(text, path)
    source = {"source": "directory", "path": folder}
    known = _dict(table.get("extraKnownMarketplaces")).get(MARKETPLACE)
    there = _dict(_dict(known).get("source"))
    if known is not None and there.get("source") != "directory":
        raise SetupError(
            f"{path} has a marketplace {MARKETPLACE!r} from elsewhere: take it out first "
            f"(claude plugin marketplace remove {MARKETPLACE}); nothing was changed"
        )
    if there != source:
        text = jsonedit.put(text, ("extraKnownMarketplaces", MARKETPLACE, "source"), source)
    if _dict(table.get("enabledPlugins")).get(PLUGIN) is not True:
        text = jsonedit.put(text, ("enabledPlugins", PLUGIN), True)
    _check(path, table, jsonedit.parse(text, path))
    return change(path, (mark + text).encode("utf-8")), table


def _check(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Nothing but our two entries may differ."""

    def others(table: Mapping[str, Any]) -> dict[str, Any]:
        rest = dict(table)
        for name, ours in (("extraKnownMarketplaces", MARKETPLACE), ("enabledPlugins", PLUGIN)):
            rest[name] = {k: v for k, v in _dict(rest.get(name)).items() if k != ours}
        return rest

    if others(before) != others(after):
        raise SetupError(f"{path} cannot be changed safely: add the two entries by hand; nothing was changed")


def _remarks(table: Mapping[str, Any]) -> list[str]:
    found = []
    if table.get("disableAllHooks") is True:
        found.append("these settings have disableAllHooks: no listener starts, an idle session is not woken")
    if events := listening_events(table):
        found.append(f"these settings start the listener too, on {', '.join(sorted(events))}: the plugin does it")
    return found


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
