"""What one server is started with: options, environment, defaults (C5, T1)."""

import os
from collections.abc import Mapping
from typing import NamedTuple

from interlink.errors import SetupError, UsageError
from interlink.hosts.registry import channel_mode
from interlink.relay.urls import parse_urls
from interlink.state import paths
from interlink.text import clean_line

DEFAULT_URL = "http://127.0.0.1:9440"
HOSTS = ("claude", "codex")


class Config(NamedTuple):
    """`session` is None in Codex mode, where a hook binds it (X1). `pinned`: a person chose it."""

    host: str
    channels: bool
    codex_bin: str
    key_path: str
    peers_path: str
    urls: list[str]
    token_file: str | None
    name: str
    session: str | None
    pinned: bool
    root: str
    cwd: str


def make_config(options: Mapping[str, str | None], environ: Mapping[str, str]) -> Config:
    """Options win over INTERLINK_* variables, an empty value is unset.

    Raises UsageError for a value that is not valid, SetupError where there is no home directory.
    """

    def pick(name: str, default: str = "") -> str:
        return options.get(name) or environ.get("INTERLINK_" + name.upper(), "") or default

    def path(name: str, default: str = "") -> str:
        return paths.expand(pick(name, default), environ)

    host = pick("host", "claude")
    if host not in HOSTS:
        raise UsageError(f"--host {host[:40]!r} is not known: use {' or '.join(HOSTS)}")
    folder = paths.config_dir(environ)
    session, pinned = _session(host, options, environ)
    return Config(
        host=host,
        channels=host == "claude" and channel_mode(environ),
        codex_bin=path("codex_bin", "codex"),
        key_path=path("key", os.path.join(folder, "id.key")),
        peers_path=path("peers", os.path.join(folder, "peers.json")),
        urls=parse_urls(pick("url", DEFAULT_URL)),
        token_file=path("token_file") or None,
        name=clean_line(pick("name", _default_name(environ)), 64),
        session=session,
        pinned=pinned,
        root=paths.state_root(environ),
        cwd=_cwd(),
    )


def _session(host: str, options: Mapping[str, str | None], environ: Mapping[str, str]) -> tuple[str | None, bool]:
    if host == "codex":
        return None, False
    for value in (options.get("session"), environ.get("INTERLINK_SESSION")):
        if value:
            return paths.check_session(value), True
    given = environ.get("CLAUDE_CODE_SESSION_ID")
    if given:
        return paths.check_session(given), False
    return os.urandom(4).hex(), False


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""  # it was removed under us: no reason not to start


def _default_name(environ: Mapping[str, str]) -> str:
    user = environ.get("USER") or environ.get("USERNAME") or "agent"
    return f"{user}@{os.uname().nodename if hasattr(os, 'uname') else environ.get('COMPUTERNAME', 'host')}"


def read_token(path: str | None) -> str | None:
    """The shared bearer token of the relays. SetupError where the file cannot be read or is empty."""
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as f:
            token = f.read(4096).strip()
    except (OSError, UnicodeError) as exc:
        raise SetupError(f"cannot read the relay token file {path}: {exc}") from exc
    if not token:
        raise SetupError(f"the relay token file {path} is empty")
    return token
