"""What several commands share: options, the configuration, whose mail it is about."""

import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from interlink.cli import shown
from interlink.errors import SetupError, UsageError
from interlink.session.config import Config, make_config
from interlink.settings import Settings, load
from interlink.text import has_surrogate
from interlink.trust.identity import load_key

F = TypeVar("F", bound=Callable[..., Any])

HELP: dict[str, Any] = {"help_option_names": ["-h", "--help"]}

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
key_option = click.option("--key", help="Key file; default INTERLINK_KEY, else ~/.config/interlink/id.key.")
peers_option = click.option(
    "--peers", help="Peers file; default INTERLINK_PEERS, else ~/.config/interlink/peers.json."
)
identity_option = click.option("--identity", default="", help="Public key or fingerprint; default that of --key.")
url_option = click.option("--url", help="Relay address, several comma-separated; default INTERLINK_URL.")
token_option = click.option("--token-file", help="File with the relays' shared token.")


def now_ms() -> int:
    """The wall clock, ms since 1970."""
    return time.time_ns() // 1_000_000


def settings() -> Settings:
    """Settings from the environment; what is wrong with them goes to standard error."""
    found = load(os.environ)
    for problem in found.problems:
        shown.note(problem)
    return found


def config(**options: str | None) -> Config:
    """The paths and addresses that a server with the same options and environment would use.

    UsageError, SetupError as `make_config`.
    """
    return make_config(options, os.environ)


def own_key(where: Config) -> tuple[str, str]:
    """(our public key, ""), or ("", why there is none)."""
    try:
        return load_key(where.key_path).public, ""
    except SetupError as exc:
        return "", str(exc)


def plain(what: str, value: str) -> str:
    """The value; UsageError where the command line held bytes that are no text."""
    if has_surrogate(value):
        raise UsageError(f"the {what} is not valid UTF-8")
    return value
