"""`interlink setup` in tests: a program to set up at any path, and runs of the command and of its plans."""

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.cli import Done, interlink
from support.programs import pythonpath

from interlink.setup import claude, codex
from interlink.setup.launch import make_launch
from interlink.setup.plan import Plan

NOTHING = "nothing to change"


def install(folder: Path) -> Path:
    """An `interlink-mcp` in this folder that runs the tree under test, as an installed one would."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "interlink-mcp"
    found = f"PYTHONPATH={shlex.quote(pythonpath({}))}"  # a host may start it with an environment of its own
    path.write_text(f'#!/bin/sh\n{found} exec {shlex.quote(sys.executable)} -m interlink.cli.mcp "$@"\n')
    path.chmod(0o755)
    return path


def plan_claude(**options: str | None) -> Plan:
    """What `interlink setup claude` would do here."""
    return claude.plan(options, "", os.environ)


def plan_codex(**options: str | None) -> Plan:
    """What `interlink setup codex` would do here."""
    return codex.plan(options, "", os.environ)


def hook_commands(program: Path, **options: str) -> dict[str, str]:
    """Event -> the command that the plugin starts then."""
    import json

    launch = make_launch({"program": str(program), **options}, [], {})
    table: Mapping[str, Any] = json.loads(claude.render(launch)[claude.HOOKS])["hooks"]
    return {event: groups[0]["hooks"][0]["command"] for event, groups in table.items()}


def setup(host: str, *args: str, stdin: str = "", env: Mapping[str, str] | None = None) -> Done:
    """Run `interlink setup HOST`."""
    return interlink("setup", host, *args, stdin=stdin, env=env)


def home(*parts: str) -> Path:
    """A path below this test's own home."""
    return Path(os.environ["HOME"], *parts)
