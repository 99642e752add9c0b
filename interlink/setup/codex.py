"""Codex: a marked block at the end of config.toml with the server and the four hooks (X1, H14, H15).

Codex writes into the same file, and what it adds at the end comes to stand inside our block: the trust that a
person gave to the hooks, approvals of single tools. So a renewed block keeps the approvals that are there, and
every table in it that is not ours moves behind it, byte for byte. Trust is never written here.
"""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any, NamedTuple

from interlink.errors import SetupError
from interlink.setup.launch import PROGRAM, Launch, make_launch, unseen
from interlink.setup.plan import Change, Plan, change
from interlink.state import files
from interlink.state.paths import home

BEGIN = "# >>> interlink >>>"
END = "# <<< interlink <<<"
SERVER = "interlink"
BIND = "bind_codex_session"
_BLOCK = re.compile(f"^{BEGIN}$\n(.*?)^{END}$\n?", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)
_WRITTEN = frozenset({"command", "args", "env", "env_vars"})  # keys of the server that are ours to set
_UNDONE = "nothing was changed"


class _Ours(NamedTuple):
    """What of a configuration is ours: the server without approvals, our hooks, the approvals."""

    server: dict[str, Any] | None
    hooks: dict[str, list[Any]]
    tools: dict[str, Any] | None


def packaged() -> str:
    """The configuration as it is shipped."""
    return resources.files("interlink.hosts").joinpath("codex_config", "config.toml").read_text("utf-8")


def render(launch: Launch) -> str:
    """The shipped configuration that starts this program, by its absolute path."""
    text = packaged()
    env = f"\nenv = {{ {', '.join(f'{k} = {_quoted(v)}' for k, v in launch.env.items())} }}" if launch.env else ""
    for old, new in (
        (f'command = "{PROGRAM}"', f"command = {_quoted(launch.program)}"),
        ('args = ["--host", "codex"]', f"args = [{', '.join(map(_quoted, launch.args))}]{env}"),
    ):
        if text.count(old) != 1:
            raise SetupError(f"the shipped Codex configuration is damaged ({old}): install interlink again")
        text = text.replace(old, new)
    return text


def plan(options: Mapping[str, str | None], codex_home: str, environ: Mapping[str, str]) -> Plan:
    """What `interlink setup codex` would change.

    Raises UsageError, SetupError (broken TOML, or interlink outside of our block), StateError.
    """
    folder = codex_home or environ.get("CODEX_HOME", "") or os.path.join(home(environ), ".codex")
    path = os.path.join(os.path.abspath(os.path.expanduser(folder)), "config.toml")
    text, newline = _read(path)
    table = _parse(text, path)
    block = _find(text, path)
    _nothing_outside(text if block is None else text[: block.start()] + text[block.end() :], table, path)
    server = _ours(table).server or {}
    launch = make_launch(options, _list(server.get("args")), _dict(server.get("env")), ("--host", "codex"))
    wanted = render(launch)
    return Plan(
        _changes(path, text, table, block, wanted, newline),
        unseen(environ, launch),
        [
            "Codex skips hooks until you trust them: start `codex` in a terminal, choose 'Review hooks' where it",
            "says 'Hooks need review', and trust the four of interlink. New threads then use them.",
        ],
    )


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _read(path: str) -> tuple[str, str]:
    """The text with plain newlines, and the newline that the file uses."""
    try:
        text = (files.read_bytes(os.path.realpath(path)) or b"").decode("utf-8")
    except UnicodeDecodeError as exc:
        raise SetupError(f"{path} is not UTF-8: mend it first; {_UNDONE}") from exc
    newline = "\r\n" if "\r\n" in text else "\n"
    return text.replace("\r\n", "\n"), newline


def _parse(text: str, path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as exc:
        raise SetupError(f"{path} is not valid TOML ({exc}): mend it first; {_UNDONE}") from exc


def _find(text: str, path: str) -> "re.Match[str] | None":
    lines = text.split("\n")
    marks = (lines.count(BEGIN), lines.count(END))
    found = _BLOCK.search(text)
    if marks == (0, 0):
        return None
    if marks != (1, 1) or found is None:
        raise SetupError(f"{path}: the lines {BEGIN!r} and {END!r} must be there once each, in order; {_UNDONE}")
    return found


def _nothing_outside(text: str, table: Mapping[str, Any], path: str) -> None:
    try:
        rest = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        rest = dict(table)  # what is outside needs what is inside: it is not a block of ours
    found = _ours(rest)
    if found.server is not None or found.tools:
        what = f"[mcp_servers.{SERVER}]"
    elif found.hooks:
        what = f"hooks that call {BIND} ({', '.join(found.hooks)})"
    else:
        return
    raise SetupError(
        f"{path} has {what} outside of the part that setup keeps: take it out, then run this again; {_UNDONE}"
    )


def _ours(table: Mapping[str, Any]) -> _Ours:
    server = _dict(table.get("mcp_servers")).get(SERVER)
    tools = None
    if isinstance(server, dict):
        tools = server.get("tools")
        server = {key: value for key, value in server.items() if key != "tools"}
        server = server or None
    hooks = {}
    for event, groups in _dict(table.get("hooks")).items():
        if mine := [group for group in _list(groups) if _is_ours(group)]:
            hooks[event] = mine
    return _Ours(server, hooks, tools)


def _is_ours(group: object) -> bool:
    handlers = _list(_dict(group).get("hooks"))
    return any(_dict(handler).get("tool") == BIND for handler in handlers)


def _others(table: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration without what is ours, and without tables that are empty then."""
    rest = dict(table)
    rest["mcp_servers"] = {k: v for k, v in _dict(table.get("mcp_servers")).items() if k != SERVER}
    hooks = {}
    for event, groups in _dict(table.get("hooks")).items():
        kept = [g for g in groups if not _is_ours(g)] if isinstance(groups, list) else groups
        if kept:
            hooks[event] = kept
    rest["hooks"] = hooks
    return {key: value for key, value in rest.items() if value or key not in ("mcp_servers", "hooks")}


def _changes(
    path: str, text: str, table: Mapping[str, Any], block: "re.Match[str] | None", wanted: str, newline: str
) -> list[Change]:
    now, then = _ours(table), _ours(tomllib.loads(wanted))
    assert then.server is not None
    if block is None:
        gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
        new = f"{text}{gap}{BEGIN}\n{wanted}{END}\n"
    else:
        added = {key: value for key, value in (now.server or {}).items() if key not in _WRITTEN}
        then = then._replace(server={**then.server, **added}, tools=now.tools)
        if now == then:
            return []
        inner, moved = _renew(block[1], wanted, set(added))
        new = f"{text[: block.start()]}{BEGIN}\n{inner}{END}\n{moved}{text[block.end() :]}"
    try:
        after = tomllib.loads(new)
    except tomllib.TOMLDecodeError as exc:
        raise _by_hand(path, str(exc)) from exc
    if _ours(after) != then or _others(after) != _others(table):
        raise _by_hand(path, "other settings would change")
    return change(path, new.replace("\n", newline).encode("utf-8"))


def _by_hand(path: str, why: str) -> SetupError:
    shipped = resources.files("interlink.hosts").joinpath("codex_config", "config.toml")
    return SetupError(f"{path} cannot be changed safely ({why}): add {shipped} by hand; {_UNDONE}")


def _renew(inner: str, wanted: str, added: set[str]) -> tuple[str, str]:
    """(the block's new content, the tables of the old one that are not ours).

    The old approvals stay in place of the new ones, and so do the keys `added` that a person gave to the server.
    """
    old, (lead, *new) = _tables(inner)[1:], _tables(wanted)
    head = ("mcp_servers", SERVER)
    lines = [line for one in old if _head(one) == head for line in one.splitlines(keepends=True)]
    lines = [line for line in lines if line.partition("=")[0].strip() in added]
    parts = [lead]
    for one in new:
        if _head(one) == head:
            own, gap = one.rstrip("\n"), one[len(one.rstrip("\n")) + 1 :]
            parts += [own, "\n", *lines, gap, *(kept for kept in old if _is_approval(kept))]
        elif not _is_approval(one):
            parts.append(one)
    moved = _strange(old)
    return "".join(parts), "".join(("\n", *moved)) if moved else ""


def _tables(text: str) -> list[str]:
    """What stands before the first table, then each table from its header to the next one."""
    starts = [found.start() for found in _TABLE.finditer(text)]
    ends = [*starts, len(text)]
    return [text[: ends[0]], *(text[a:b] for a, b in zip(starts, ends[1:], strict=True))]


def _head(table: str) -> tuple[str, ...]:
    """The dotted name in a table's header; () where it is none (a line of a longer value)."""
    try:
        value: object = tomllib.loads(table.split("\n", 1)[0].strip() + "\n")
    except tomllib.TOMLDecodeError:
        return ()
    names: list[str] = []
    while value:
        if isinstance(value, list):
            value = value[0]
        elif isinstance(value, dict):
            ((name, value),) = value.items()
            names.append(name)
    return tuple(names)


def _is_approval(table: str) -> bool:
    return _head(table)[:3] == ("mcp_servers", SERVER, "tools")


def _strange(tables: list[str]) -> list[str]:
    """The tables of a block that setup did not write."""
    found = []
    for one, after in zip(tables, [*tables[1:], ""], strict=True):
        head = _head(one)
        group = head[:1] == ("hooks",) and head[1:2] != ("state",)
        bound = group and BIND in (after if len(head) == 2 else one)
        if head[:2] != ("mcp_servers", SERVER) and not bound:
            found.append(one)
    return found


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
