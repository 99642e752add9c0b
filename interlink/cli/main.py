"""`interlink`: what a person or a script does from a shell. Each command is a file, loaded when it is used.

Exit codes: 0 done, 1 a fault, 64 a wrong command line; never 2, which wakes a model (H1).
"""

import importlib
import os
import sys

import click

from interlink import __version__
from interlink.cli import run
from interlink.errors import EXIT_FAULT

PROGRAM = "interlink"

# name -> (module with a `command`, what the list of commands says). In the order in which they are listed.
COMMANDS = {
    "status": ("interlink.cli.status", "One screen: identity, relays, sessions, unread mail."),
    "doctor": ("interlink.cli.doctor", "Find out what is wrong, and what to do about it."),
    "setup": ("interlink.cli.setup", "Connect a host program: Claude Code or Codex CLI."),
    "peers": ("interlink.cli.peers", "Who is trusted: list, add, remove."),
    "pair": ("interlink.cli.pair", "Requests to pair: list, accept, reject."),
    "inbox": ("interlink.cli.inbox", "Read mail without consuming it."),
    "send": ("interlink.cli.send", "Send one message to a peer."),
    "post": ("interlink.cli.post", "Put a message of a local source into a session's mailbox."),
    "export": ("interlink.cli.export", "Write out mailboxes and what was sent."),
    "adopt": ("interlink.cli.adopt", "Move the mail of a session that is gone into another."),
    "prune": ("interlink.cli.prune", "Tidy what sessions left that nothing uses any more."),
    "completion": ("interlink.cli.completion", "Print the shell completion."),
}


class Lazy(click.Group):
    """A group whose commands are imported one at a time."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = COMMANDS.get(cmd_name)
        if found is None:
            return None
        command = importlib.import_module(found[0]).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_module, text) in COMMANDS.items()])


@click.group(
    cls=Lazy,
    name=PROGRAM,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 a fault, 64 a wrong command line. See COMMAND --help.",
)
@click.version_option(__version__, "--version", message="%(version)s")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Signed, durable messages between coding-agent sessions."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main() -> None:
    """Entry point of `interlink`."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    code: object = EXIT_FAULT
    try:
        try:
            run(command, PROGRAM)
        except SystemExit as exc:
            code = exc.code
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as exc:
        code = EXIT_FAULT
        _drop_output(exc)
    sys.exit(code)


def _drop_output(exc: OSError) -> None:
    """A reader that went away is no news; a full disk behind standard output is. Nothing is flushed at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    if not isinstance(exc, BrokenPipeError):
        try:
            sys.stderr.write(f"{PROGRAM}: {exc.strerror or exc}\n")
        except (OSError, AttributeError):
            return  # nobody reads our stderr either: the exit code still tells


if __name__ == "__main__":
    main()
