"""`interlink-lab replay RUN`: run a recorded run again, from what its verdict says, and compare the verdicts."""

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from interlink_lab.commands.run import chosen, run_one, runs_folder, tell
from interlink_lab.commands.shell import run_command, usage
from interlink_lab.programs import use_binaries
from interlink_lab.verdict import Verdict


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), default=None, help="folder for the new run [lab-runs]")
@click.option("-v", "--verbose", is_flag=True, help="print events as they happen")
def command(run: Path, out: Path | None, verbose: bool) -> None:
    """Run the run of this folder again: the same scenario, backend, seed, form, length, seeded bug and binaries.

    The new run goes into a folder of its own, which is kept. The exit code is that of the new verdict.
    """
    console = Console(highlight=False)
    folder = run if run.is_dir() else run.parent
    try:
        before = Verdict.load(folder)
    except (OSError, ValueError) as exc:
        usage(f"no recorded run in {folder}: {exc}")
    name = "random" if before.span_s is not None else before.scenario
    console.print(f"replaying: {escape(before.replay)}", soft_wrap=True)
    only = chosen((name,), before.backend, [before.seed], before.span_s, before.long, before.patience_s)
    ((scenario, _),) = only
    try:
        use_binaries(before.binaries)
        fresh, after = run_one(
            console, scenario, out or runs_folder(), before.backend, before.seed, before.long, before.bug, verbose,
            Path(before.product) if before.product else None,
        )  # fmt: skip
    except ValueError as exc:  # the seeded bug, the other tree or the other binaries are not there any more
        usage(exc)
    tell(console, after, fresh, keep=True)
    console.print(compared(before, after))
    sys.exit(after.exit_code)


def compared(before: Verdict, after: Verdict) -> Table:
    """Both verdicts, side by side."""
    table = Table("", "recorded", "replayed", box=None, pad_edge=False)
    for name in ("result", "seconds", "events", "error"):
        old, new = getattr(before, name), getattr(after, name)
        if old != "" or new != "":
            table.add_row(name, escape(str(old)), escape(str(new)))
    names = sorted({v["invariant"] for v in (*before.violations, *after.violations)})
    for name in names:
        counts = [str(sum(v["invariant"] == name for v in each.violations)) for each in (before, after)]
        table.add_row(escape(name), *counts)
    return table


if __name__ == "__main__":
    run_command(command, "interlink-lab replay")
