"""`interlink setup`: connects a host program, shown first and with a backup (C1, H5, H14, H15)."""

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from interlink.cli import options, shown
from interlink.errors import EXIT_FAULT, EXIT_OK
from interlink.setup import claude, codex, plan

_EXITS = "Exit codes: 0 done, or nothing to change; 1 not done; 64 a wrong command line."

_OPTIONS = (
    click.option("--dry-run", is_flag=True, help="Only show what would change."),
    click.option("--yes", "-y", is_flag=True, help="Do not ask."),
    options.url_option,
    options.key_option,
    options.peers_option,
    options.token_option,
    click.option("--name", help="The name that its sessions announce."),
    click.option("--state-home", help="XDG_STATE_HOME of server and hooks."),
    click.option("--program", help="The interlink-mcp to start; default: this installation's."),
)


def _shared(function: Callable[..., Any]) -> Callable[..., Any]:
    return functools.reduce(lambda done, option: option(done), reversed(_OPTIONS), function)


@click.group(name="setup", context_settings=options.HELP, epilog=_EXITS, invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Connect a host program: Claude Code or Codex CLI.

    Shows the change, asks, keeps a copy of every file that it changes. What is not interlink's stays as it is.
    --url, --key, --peers, --token-file, --name and --state-home are written down for the server (--state-home for
    the hooks too); without them it takes the variables of the shell that starts the host. Given once they stay; an
    empty value takes one away.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@command.command(name="claude", context_settings=options.HELP, epilog=_EXITS)
@click.option("--config-dir", default="", help="Default: CLAUDE_CONFIG_DIR, else ~/.claude.")
@_shared
def for_claude(config_dir: str, dry_run: bool, yes: bool, **given: str | None) -> int:
    """Install the plugin for Claude Code: MCP server, listener, skill.

    The plugin goes to $XDG_DATA_HOME/interlink/claude (~/.local/share), with the absolute path of this
    installation's interlink-mcp; settings.json switches it on. Run it again after an upgrade.
    """
    return _carry_out(claude.plan(given, config_dir, os.environ), dry_run, yes)


@command.command(name="codex", context_settings=options.HELP, epilog=_EXITS)
@click.option("--codex-home", default="", help="Default: CODEX_HOME, else ~/.codex.")
@click.option("--codex-bin", help="The codex program that takes notices; default: the one on PATH.")
@_shared
def for_codex(codex_home: str, dry_run: bool, yes: bool, **given: str | None) -> int:
    """Add MCP server and hooks to Codex's configuration.

    They go into a marked part of config.toml. The hooks have to be reviewed and trusted in Codex: that is yours,
    nothing here does it.
    """
    return _carry_out(codex.plan(given, codex_home, os.environ), dry_run, yes)


def _carry_out(what: plan.Plan, dry_run: bool, yes: bool) -> int:
    for remark in what.notes:
        shown.note(remark)
    if not what.changes:
        shown.say("nothing to change")
        return EXIT_OK
    shown.say(shown.clean_block(plan.diff(what.changes)))
    if dry_run:
        shown.say("dry run: nothing was changed")
        return EXIT_OK
    if not yes and not _agreed():
        shown.say("nothing was changed")
        return EXIT_FAULT
    for copy in plan.apply(what.changes):
        shown.say(f"backup: {copy}")
    shown.say(f"{shown.count(len(what.changes), 'file')} changed")
    for line in what.then:
        shown.say(line)
    return EXIT_OK


def _agreed() -> bool:
    """A person's yes; the end of input is a no."""
    sys.stdout.write("Change this? [y/N] ")
    sys.stdout.flush()
    return (sys.stdin.readline() if sys.stdin else "").strip().lower() in ("y", "yes")
