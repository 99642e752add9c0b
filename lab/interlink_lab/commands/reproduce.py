"""`interlink-lab reproduce idle-wake|duplicate-notice`: the two faults that a developer asks for, with a timeline.

On this tree it shows that they do not happen; `--without-fix NAME` takes one fix out of a copy of the product and
shows what then happens. The names are those of the seeded bugs (`--help` lists them).
"""

import sys
import tempfile
import time
from pathlib import Path

import click
from rich.console import Console

from interlink_lab import bugs
from interlink_lab.commands.run import run_one, runs_folder, tell
from interlink_lab.report.text import timeline
from interlink_lab.scenarios import known

FAULTS = {
    "idle-wake": "killed-handoff",
    "duplicate-notice": "reservation",
}
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
EXIT_USAGE = 64


def fixes(fault: str) -> list[str]:
    """Names of the fixes whose absence shows this fault."""
    return sorted(bug.name for bug in bugs.known().values() if bug.invariant in RELATED[fault])


HELP = "\n\n".join(f"Fixes for {fault}: {', '.join(fixes(fault))}." for fault in FAULTS)


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run the case and print its timeline; exit 1 when the fault is there.\n\n" + HELP,
)
@click.argument("fault", type=click.Choice(sorted(FAULTS)))
@click.option("--without-fix", "name", default=None, help="take this fix out of a copy of the product")
@click.option("--backend", type=click.Choice(["process", "docker"]), default="process", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=None, help="folder for the run [lab-runs]")
def command(fault: str, name: str | None, backend: str, out: Path | None) -> None:
    """Run one case to its timeline."""
    console = Console(highlight=False)
    if name is not None and name not in fixes(fault):
        click.echo(f"no fix {name!r} for {fault}: one of {', '.join(fixes(fault))}", err=True)
        sys.exit(EXIT_USAGE)
    base = out or runs_folder()
    base.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{time.strftime('%m%d-%H%M%S')}-{fault}-", dir=base))
    scenario = known()[FAULTS[fault]]
    product = None
    if name is not None:
        scenario = known()[bugs.known()[name].scenario]
        product = bugs.patched_copy(name, folder / "product")
    verdict = run_one(console, scenario, folder, backend, 0, False, product, False)
    timeline(console, folder)
    tell(console, verdict, folder, keep=True)
    sys.exit(verdict.exit_code)


if __name__ == "__main__":
    command()
