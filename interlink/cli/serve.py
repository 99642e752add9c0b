"""`interlink-mcp` without a subcommand: the MCP server on stdio. It always starts (H7)."""

import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import click

from interlink import __version__, log
from interlink.errors import EXIT_USAGE, InterlinkError
from interlink.hosts.base import HostAdapter
from interlink.hosts.claude_inbox import ClaudeInbox
from interlink.session.config import Config, make_config
from interlink.session.runtime import Runtime
from interlink.session.session import Session
from interlink.settings import load


@click.command(
    name="interlink-mcp",
    epilog="Subcommand: `interlink-mcp wait`, the listener that a Stop hook runs.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--host", help="claude (default) or codex.")
@click.option("--codex-bin", help="The codex program.")
@click.option("--key", help="Key file; default ~/.config/interlink/id.key.")
@click.option("--peers", help="Peers file; default ~/.config/interlink/peers.json.")
@click.option("--url", help="Relay address, several comma-separated.")
@click.option("--token-file", help="File with the relays' shared token.")
@click.option("--name", help="The name that this session announces.")
@click.option("--session", help="Pin the session id.")
@click.version_option(__version__)
def command(**options: str | None) -> None:
    """Serve MCP on stdio for one coding-agent session."""
    serve(options)


def serve(options: dict[str, str | None]) -> None:
    """Run until stdin closes or a signal comes. Wrong options become every tool's answer, not an exit (H7)."""
    settings = load(os.environ)
    for problem in settings.problems:
        log.event("setting_ignored", problem=problem)
    config: Config | None = None
    fault = ""
    try:
        config = make_config(options, os.environ)
    except InterlinkError as exc:
        fault = str(exc)
    runtime = Runtime(config, fault, settings, make_adapter)
    anyio.run(_main, runtime, backend="asyncio")


def make_adapter(session: Session) -> HostAdapter:
    """The adapter of this session's host."""
    return ClaudeInbox(session.layout, session.id)


async def _main(runtime: Runtime) -> None:
    from interlink.tools.app import App, definitions
    from interlink.tools.instructions import INSTRUCTIONS
    from interlink.tools.serving import Connection
    from interlink.tools.serving import serve as serve_mcp

    @asynccontextmanager
    async def body(_connection: Connection) -> AsyncIterator[None]:
        async with anyio.create_task_group() as group:
            group.start_soon(runtime.run)
            try:
                yield
            finally:
                group.cancel_scope.cancel()

    await serve_mcp(
        "interlink",
        __version__,
        INSTRUCTIONS,
        definitions(),
        App(runtime).call,
        channel=bool(runtime.config and runtime.config.channels),
        settings=runtime.settings,
        body=body,
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Exit 0 at the end, 64 for an unknown option; never 2 (H1)."""
    try:
        command.main(args=list(argv) if argv is not None else None, standalone_mode=False)
    except click.ClickException as exc:
        sys.stderr.write(f"interlink-mcp: {exc.format_message()} (see interlink-mcp --help)\n")
        sys.exit(EXIT_USAGE)
    except click.exceptions.Abort:
        sys.exit(1)


if __name__ == "__main__":
    main()
