"""`interlink-lab`: what the lab can run, from one command."""

import runpy
import sys
from collections.abc import Sequence

COMMANDS = {
    "demo": ("interlink_lab.demo", "a message wakes an idle host, survives kill -9, is acknowledged (--codex)"),
    "bench": ("interlink_lab.bench", "measure P1 to P6 (--only, --quick, --peer)"),
    "load": ("interlink_lab.load", "send a bounded load to a relay (--addr, --senders, --seconds)"),
}
EXIT_USAGE = 64


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command of the lab with the arguments behind it; `list` names them."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("list", "-h", "--help"):
        width = max(map(len, COMMANDS))
        print("\n".join(f"interlink-lab {name:<{width}}  {what}" for name, (_, what) in COMMANDS.items()))
        return
    if words[0] not in COMMANDS:
        sys.stderr.write(f"interlink-lab: no command {words[0]!r}: one of list, {', '.join(COMMANDS)}\n")
        sys.exit(EXIT_USAGE)
    module = COMMANDS[words[0]][0]
    sys.argv = [f"interlink-lab {words[0]}", *words[1:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
