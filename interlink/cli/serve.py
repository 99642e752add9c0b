"""`interlink-mcp` without a subcommand: the MCP server on stdio. It always starts (H7)."""

import gc
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import click

from interlink import __version__, log
from interlink.errors import EXIT_USAGE, InterlinkError
from interlink.hosts.base import HostAdapter
from interlink.hosts.claude_channel import ClaudeChannel
from interlink.hosts.claude_inbox import ClaudeInbox
from interlink.hosts.codex import Codex
from interlink.hosts.failed import FailedStore
from interlink.session.config import Config, make_config
from interlink.session.runtime import Runtime
from interlink.session.session import AdapterFactory, Session, now_ms
from interlink.settings import Settings, load
from interlink.tools.stdio import quiet_signals
from interlink.tools.surface import Connection


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
    quiet_signals()  # the SDK's import takes most of a second, and a host may change its mind meanwhile (H18)
    settings = load(os.environ)
    for problem in settings.problems:
        log.event("setting_ignored", problem=problem)
    config: Config | None = None
    fault = ""
    try:
        config = make_config(options, os.environ)
    except InterlinkError as exc:
        fault = str(exc)
    anyio.run(_main, config, fault, settings)


def _adapter_factory(connection: Connection) -> AdapterFactory:
    def make(session: Session) -> HostAdapter:
        config, settings = session.config, session.settings
        if config.host == "codex":
            failed = FailedStore(session.layout, session.identity.public, session.id, settings)
            return Codex(config.codex_bin, session.id, failed, settings, now_ms)
        if config.channels:
            return ClaudeChannel(connection.push_channel, settings.channel_push_s)
        return ClaudeInbox(session.layout, session.id)

    return make


async def _main(config: Config | None, fault: str, settings: Settings) -> None:
    gc.disable()  # what the SDK's import makes is kept: to look through it for garbage costs a tenth of the start
    from interlink.tools.app import App, definitions
    from interlink.tools.instructions import INSTRUCTIONS
    from interlink.tools.serving import serve as serve_mcp

    gc.freeze()
    gc.enable()
    runtime = Runtime(config, fault, settings)

    @asynccontextmanager
    async def body(connection: Connection) -> AsyncIterator[None]:
        async with anyio.create_task_group() as group:
            group.start_soon(runtime.run, _adapter_factory(connection))
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
        channel=bool(config and config.channels),
        settings=settings,
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
