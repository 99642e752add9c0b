"""`interlink-lab reproduce idle-wake|duplicate-notice`: the two faults that a developer asks for, with a timeline.

On this tree it shows that they do not happen; `--without-fix NAME` takes one fix out of a copy of the product and
shows what then happens. The names are those of the seeded bugs (`--help` lists them).
"""

import sys
from pathlib import Path

import click
from rich.console import Console

from interlink_lab import bugs
from interlink_lab.commands.run import run_one, runs_folder, tell
from interlink_lab.commands.shell import run_command, usage
from interlink_lab.report.load import load
from interlink_lab.report.page import page
from interlink_lab.report.terminal import show
from interlink_lab.report.timeline import timeline
from interlink_lab.scenarios import known

FAULTS = {"idle-wake": "killed-handoff", "duplicate-notice": "reservation"}
"""Which scenario shows the fault where no fix is taken out."""

RELATED = {
    "idle-wake": ("idle-wake",),
    "duplicate-notice": (
        "duplicate-notice",
        "one-wake-a-notice",
        "consumed-wakes-nobody",
        "progress-wakes-nobody",
    ),
}


def fixes(fault: str) -> list[str]:
    """Names of the fixes whose absence shows this fault."""
    return sorted(bug.name for bug in bugs.known().values() if bug.invariant in RELATED[fault])


HELP = "\n\n".join(f"Fixes for {fault}: {', '.join(fixes(fault))}." for fault in FAULTS)


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run the case and print its timeline; exit 1 when the fault is there.\n\n" + HELP,
)
@click.argument("fault", type=click.Choice(sorted(FAULTS)))
@click.option("--without-fix", "name", default="", help="take this fix out of a copy of the product")
@click.option("--backend", type=click.Choice(["process", "docker"]), default="process", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=None, help="folder for the run [lab-runs]")
def command(fault: str, name: str, backend: str, out: Path | None) -> None:
    """Run one case to its timeline."""
    if name and name not in fixes(fault):
        usage(f"no fix {name!r} for {fault}: one of {', '.join(fixes(fault))}")
    console = Console(highlight=False)
    scenario = known()[bugs.known()[name].scenario if name else FAULTS[fault]]
    fix = f" without the fix {name}" if name else ""
    console.print(f"{fault}{fix}: scenario {scenario.name}, {scenario.what}", soft_wrap=True)
    folder, verdict = run_one(console, scenario, out or runs_folder(), backend, 0, False, name, False)
    recorded = load(folder)
    data = timeline(recorded)
    show(console, recorded, data, False)
    path = folder / "report.html"
    path.write_text(page(data), "utf-8")
    tell(console, verdict, folder, keep=True)
    console.print(f"  timeline: {path}", soft_wrap=True)
    there = {v["invariant"] for v in verdict.violations} & set(RELATED[fault])
    answer = f"it is there: {', '.join(sorted(there))}" if there else "it is not there"
    console.print(f"{fault}{fix}: {answer if verdict.result != 'broken' else 'no answer, the run is broken'}")
    sys.exit(verdict.exit_code)


if __name__ == "__main__":
    run_command(command, "interlink-lab reproduce")
