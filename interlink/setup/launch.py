"""How a host starts this installation's `interlink-mcp`: its absolute path, options, environment (H1, C5).

Server and hooks of one host must agree on the state root; all else (relay, key, name) is the server's alone. What
an earlier `setup` was given stays until it is given anew; an empty value takes it away.
"""

import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from interlink.errors import SetupError, UsageError
from interlink.relay.urls import parse_urls
from interlink.text import clean_line, has_surrogate

PROGRAM = "interlink-mcp"
STATE_HOME = "XDG_STATE_HOME"
OPTIONS = ("url", "key", "peers", "token_file", "name", "codex_bin")
_PATHS = frozenset({"key", "peers", "token_file", "state_home"})


class Launch(NamedTuple):
    """`args` and `env` are for the server. Hooks need `shared` of `env`, and nothing of `args`."""

    program: str
    args: list[str]
    env: dict[str, str]

    @property
    def shared(self) -> dict[str, str]:
        """The environment in which server and hooks must agree."""
        return {name: self.env[name] for name in (STATE_HOME, "INTERLINK_SESSION") if name in self.env}


def make_launch(
    options: Mapping[str, str | None], args: Sequence[str], env: Mapping[str, str], fixed: Sequence[str] = ()
) -> Launch:
    """From the options of this call, and the args and env that an earlier one wrote, behind the args `fixed`.

    UsageError for a value that is not valid; SetupError where the program is not found.
    """
    known = {**_read_back(args), "state_home": env.get(STATE_HOME, "")}
    for name, value in options.items():
        if value is not None:
            known[name] = _checked(name, value)
    words = [f"{_flag(name)}={known[name]}" for name in OPTIONS if known.get(name)]
    shared = {**env, STATE_HOME: known["state_home"]}
    return Launch(known.get("program") or find_program(), [*fixed, *words], {k: v for k, v in shared.items() if v})


def find_program() -> str:
    """This installation's `interlink-mcp`, absolute. SetupError where there is none."""
    folders = [
        sysconfig.get_path("scripts"),
        sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user")),
        os.path.dirname(os.path.realpath(sys.argv[0])),
    ]
    name = PROGRAM + (".exe" if os.name == "nt" else "")
    for folder in folders:
        path = os.path.join(os.path.abspath(folder), name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise SetupError(
        f"no {name} in {', '.join(dict.fromkeys(map(os.path.abspath, folders)))}: install the package "
        "(pip install .), or name the program with --program"
    )


def unseen(environ: Mapping[str, str], launch: Launch) -> list[str]:
    """A note about settings of this shell that a session started from elsewhere would not have."""
    given = {word.partition("=")[0] for word in launch.args}
    names = [
        variable
        for name in OPTIONS
        if environ.get(variable := f"INTERLINK_{name.upper()}") and _flag(name) not in given
    ]
    if environ.get(STATE_HOME) and STATE_HOME not in launch.env:
        names.append(STATE_HOME)
    if not names:
        return []
    return [
        f"set in this shell, and needed in every shell that starts the host: {', '.join(names)}. "
        "Or write them down: --url, --key, --peers, --token-file, --name, --state-home"
    ]


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _read_back(args: Sequence[str]) -> dict[str, str]:
    flags = {_flag(name): name for name in OPTIONS}
    pairs = (word.partition("=") for word in args)
    return {flags[flag]: value for flag, equals, value in pairs if equals and flag in flags}


def _checked(name: str, value: str) -> str:
    if not value:
        return ""
    if has_surrogate(value) or "\0" in value:
        raise UsageError(f"{_flag(name)} is not valid UTF-8")
    if name == "url":
        return ",".join(parse_urls(value))
    if name == "name":
        return clean_line(value, 64)
    if name in _PATHS:
        return os.path.abspath(os.path.expanduser(value))
    if name == "program":
        path = os.path.abspath(os.path.expanduser(value))
        if not (os.path.isfile(path) and os.access(path, os.X_OK)):
            raise UsageError(f"--program {value[:200]!r} is not a program that can be run")
        return path
    return value
