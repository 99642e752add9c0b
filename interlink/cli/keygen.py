"""`interlink-keygen`: make an identity (B1). The public key goes to stdout alone, all else to stderr.

Exit codes: 0 done, 1 a fault (the file exists, cannot be written or read), 64 a wrong argument.
Light on purpose: no click, no MCP SDK.
"""

import os
import sys
from typing import NamedTuple

from interlink import __version__
from interlink.errors import EXIT_OK, InterlinkError, StateError, UsageError
from interlink.state.files import explain, write_all
from interlink.state.paths import config_dir, expand
from interlink.text import clean_line, fingerprint
from interlink.trust.identity import Identity, load_key, write_key

PROGRAM = "interlink-keygen"
HELP = f"""\
usage: {PROGRAM} [--out PATH] [--force]
       {PROGRAM} --show [--out PATH]

Makes the key of an identity and prints its public key, the one line to give to peers.

  --out PATH   the key file; default ~/.config/interlink/id.key
  --force      replace an existing key (its messages and its peers' trust are lost)
  --show       print the public key of an existing key file, write nothing
  --version    print the version
  -h, --help   print this text
"""


class Options(NamedTuple):
    out: str
    force: bool
    show: bool


def parse(args: list[str], default: str) -> Options:
    """The options; UsageError for anything unknown, missing or said twice over."""
    out, force, show = "", False, False
    rest = list(args)
    while rest:
        word = rest.pop(0)
        name, mark, value = word.partition("=")
        if name == "--out":
            if not mark:
                value = rest.pop(0) if rest and not rest[0].startswith("-") else ""
            if not value:
                raise UsageError("--out needs a path")
            if out:
                raise UsageError("--out is there twice")
            out = expand(value, os.environ)
        elif word == "--force":
            force = True
        elif word == "--show":
            show = True
        else:
            raise UsageError(f"unknown argument {word[:60]!r}: see {PROGRAM} --help")
    if show and force:
        raise UsageError("--show writes nothing: leave out --force")
    return Options(out or default, force, show)


def run(options: Options) -> None:
    """Make or show the key. Raises SetupError, StateError."""
    if options.show:
        identity = load_key(options.out)
    else:
        identity = Identity.generate()
        write_key(options.out, identity, force=options.force)
    try:
        # Not sys.stdout: its second flush at the end would change the exit code.
        write_all(1, (identity.public + "\n").encode("ascii"))
    except OSError as exc:
        raise StateError(f"{explain(exc, 'print the public key')}: see {PROGRAM} --show") from exc
    if not options.show:
        mark = fingerprint(identity.public)
        _say(f"{options.out} is written, fingerprint {mark}: it stays private, give peers the public key")


def _say(text: str) -> None:
    try:
        write_all(2, f"{PROGRAM}: {clean_line(text, 2000)}\n".encode())
    except OSError:
        return  # nobody reads our stderr: the exit code still tells


def main() -> int:
    """The console script. Returns the exit code."""
    args = sys.argv[1:]
    try:
        if "-h" in args or "--help" in args:
            write_all(1, HELP.encode("ascii"))
        elif args == ["--version"]:
            write_all(1, f"{PROGRAM} {__version__}\n".encode("ascii"))
        else:
            run(parse(args, os.path.join(config_dir(os.environ), "id.key")))
    except InterlinkError as exc:
        _say(str(exc))
        return exc.exit_code
    except OSError as exc:
        _say(str(explain(exc, "print")))
        return StateError.exit_code
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
