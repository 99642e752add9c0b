"""`interlink-lab`: what the lab can run, from one command."""

import runpy
import sys
from collections.abc import Sequence

COMMANDS = {
    "run": ("interlink_lab.commands.run", "run a scenario, or `all`, or `random`, and give its verdict"),
    "replay": ("interlink_lab.commands.replay", "run a recorded run again, from its folder"),
    "report": ("interlink_lab.commands.report", "a run's timeline as text and as one HTML file"),
    "reproduce": ("interlink_lab.commands.reproduce", "idle-wake or duplicate-notice, with its timeline"),
    "demo": ("interlink_lab.demo", "a message wakes an idle host, survives kill -9, is acknowledged (--codex)"),
    "bench": ("interlink_lab.bench", "measure P1 to P6 (--only, --quick, --peer)"),
    "load": ("interlink_lab.load", "send a bounded load to a relay (--addr, --senders, --seconds)"),
}
EXIT_USAGE = 64


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command of the lab with the arguments behind it; `list` names commands and scenarios."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("list", "-h", "--help"):
        width = max(map(len, COMMANDS))
        print("\n".join(f"interlink-lab {name:<{width}}  {what}" for name, (_, what) in COMMANDS.items()))
        if words[:1] == ["list"]:
            _list()
        return
    if words[0] not in COMMANDS:
        sys.stderr.write(f"interlink-lab: no command {words[0]!r}: one of list, {', '.join(COMMANDS)}\n")
        sys.exit(EXIT_USAGE)
    module = COMMANDS[words[0]][0]
    sys.argv = [f"interlink-lab {words[0]}", *words[1:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _list() -> None:
    from interlink_lab import bugs
    from interlink_lab.checker import names
    from interlink_lab.nemesis import KINDS
    from interlink_lab.scenarios import known

    found = known()
    several = {"all": "each of these", "random": "topology, work and faults from a seed (--seed, --seconds)"}
    _rows("Scenarios (interlink-lab run NAME)", {name: found[name].what for name in sorted(found)} | several)
    _rows("Invariants that the checker holds a history to", names())
    faults = {
        name: ", ".join([kind.where, *(f"{k}={v}" for k, v in kind.options.items())])
        for name, kind in KINDS.items()
    }
    _rows("Faults (nemesis.Fault(NAME, TARGET, options=...)): their targets, their options", faults)
    seeded = {name: f"{bug.what} (scenario {bug.scenario})" for name, bug in sorted(bugs.known().items())}
    _rows("Seeded bugs (interlink-lab run SCENARIO --without-fix NAME)", seeded)


def _rows(title: str, rows: dict[str, str]) -> None:
    print(f"\n{title}:")
    width = max(map(len, rows))
    for name, what in rows.items():
        print(f"  {name:<{width}}  {what}")


if __name__ == "__main__":
    main()
