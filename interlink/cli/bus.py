"""`interlink-bus`: the relay as a process (B2)."""

import os
import stat
from collections.abc import Mapping

import click

from interlink import __version__, log, settings
from interlink.cli import run
from interlink.errors import SetupError, UsageError
from interlink.state import files, paths

DEFAULT_ADDR = "127.0.0.1:9440"
TOKEN_MIN, TOKEN_MAX = 16, 4096


def _range(name: str) -> click.IntRange:
    low, high, _ = settings.TABLE[name]
    return click.IntRange(int(low), int(high))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--addr", envvar="INTERLINK_ADDR", default=DEFAULT_ADDR, show_default=True, help="HOST:PORT; port 0: any."
)
@click.option("--db", envvar="INTERLINK_DB", help="Queue file.  [default: bus/queue.db below the state root]")
@click.option("--memory", is_flag=True, help="Keep nothing on disk: a restart loses all messages.")
@click.option("--queue-cap", type=_range("relay_queue_max_messages"), help="Messages that wait for one recipient.")
@click.option("--max-bytes", type=_range("relay_max_bytes"), help="Bytes that wait in the whole relay.")
@click.option("--token-file", help="File (0600) with a bearer token that every client must show.")
@click.version_option(__version__, "--version", message="%(version)s")
def command(
    addr: str, db: str | None, memory: bool, queue_cap: int | None, max_bytes: int | None, token_file: str | None
) -> None:
    """Relay for coding-agent sessions: keeps each message until its recipient acknowledges it.

    A full queue makes senders wait; nothing is ever evicted. Stop it with SIGTERM.
    """
    from interlink.relay import serving

    host, port = split_address(addr)
    if memory and db:
        if click.get_current_context().get_parameter_source("db") is click.core.ParameterSource.COMMANDLINE:
            raise UsageError("--memory and --db exclude each other")
        db = None  # INTERLINK_DB is for everyday use, the option for this time
    values = settings.load(os.environ)
    for problem in values.problems:
        log.event("setting_ignored", problem=problem)
    if queue_cap is not None:
        values.relay_queue_max_messages = queue_cap
    if max_bytes is not None:
        values.relay_max_bytes = max_bytes
    token = read_token(paths.expand(token_file, os.environ)) if token_file is not None else None
    path = None if memory else queue_path(db, os.environ)
    serving.run(serving.Options(host, port, path, token), values)


def split_address(addr: str) -> tuple[str, int]:
    """(host, port) of `127.0.0.1:9440` or `[::1]:9440`. Raises UsageError."""
    host, colon, port = addr.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""  # an IPv6 address without brackets: where it ends is anyone's guess
    if not colon or not host or not (port.isascii() and port.isdigit() and len(port) < 6 and int(port) <= 65535):
        raise UsageError(f"--addr {addr[:80]!r} is not HOST:PORT: use for example {DEFAULT_ADDR} or [::1]:9440")
    return host, int(port)


def queue_path(db: str | None, environ: Mapping[str, str]) -> str:
    """The queue file; its directory is made where it is missing. Raises StateError or SetupError."""
    if db is None:
        root = files.ensure_root(paths.state_root(environ))
        return os.path.join(files.ensure_dir(os.path.join(root, "bus"), root), "queue.db")
    path = os.path.abspath(paths.expand(db, environ))
    try:
        os.makedirs(os.path.dirname(path), mode=files.DIR_MODE, exist_ok=True)
    except OSError as exc:
        raise files.explain(exc, f"make the directory of {path}") from exc
    if os.path.isdir(path):
        raise SetupError(f"{path} is a directory: --db names a file")
    return path


def read_token(path: str) -> str:
    """The token in a file: its content without surrounding white space.

    Raises SetupError for a file that others can read (a token that others had in sight is no secret), that
    is missing, or that holds anything but 16 to 4096 visible ASCII characters.
    """
    data = files.read_bytes(path, limit=TOKEN_MAX + 2)
    if data is None:
        raise SetupError(f"no token file {path}: make one with `umask 077; openssl rand -hex 32 > {path}`")
    if os.name == "posix" and stat.S_IMODE(os.stat(path).st_mode) & 0o077:
        raise SetupError(f"other users can read {path}: make a new token and `chmod 600 {path}`")
    token = data.strip()
    if not TOKEN_MIN <= len(token) <= TOKEN_MAX or not all(0x21 <= byte <= 0x7E for byte in token):
        raise SetupError(
            f"{path} does not hold a token: {TOKEN_MIN} to {TOKEN_MAX} visible ASCII characters, no space"
        )
    return token.decode("ascii")


def main() -> None:
    """Entry point of `interlink-bus`."""
    run(command, "interlink-bus")


if __name__ == "__main__":
    main()
