"""`interlinked ARGS...`: starts `claude` with interlink's native channel switched on (N2).

All arguments go to claude, and its exit code comes back. Claude itself decides whether channels are on: a host
with channels off takes no push, and says so at its start; use plain `claude` with the plugin's Stop hook then.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import NoReturn

from interlink.errors import EXIT_FAULT

CHANNEL = "plugin:interlink@interlink"
FLAG = "--dangerously-load-development-channels"
NOTE = (
    "interlinked: notices go through Claude's channel. Where Claude says that channels are not available, it "
    "takes no notice: start plain `claude` instead, whose Stop hook wakes it.\n"
)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Become claude; where the system cannot replace a process, run it and give its exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    program = os.environ.get("INTERLINK_CLAUDE_BIN") or "claude"
    found = shutil.which(program)
    if found is None:
        sys.stderr.write(f"interlinked: no `{program}` on PATH: install it, or set INTERLINK_CLAUDE_BIN\n")
        sys.exit(EXIT_FAULT)
    env = {**os.environ, "INTERLINK_CHANNELS": "1"}
    sys.stderr.write(NOTE)
    sys.stderr.flush()
    # The flag takes every word behind it, so it comes last, but before a `--`.
    at = args.index("--") if "--" in args else len(args)
    command = [found, *args[:at], FLAG, CHANNEL, *args[at:]]
    if os.name == "posix":
        os.execve(found, command, env)
    sys.exit(subprocess.call(command, env=env))


if __name__ == "__main__":
    main()
