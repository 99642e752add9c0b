"""`interlink-lab run SCENARIO...`: run scenarios, say what happens, exit by verdict."""

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import anyio
import click
from rich.console import Console
from rich.markup import escape

from interlink_lab.history import Event
from interlink_lab.scenarios import Scenario, known
from interlink_lab.verdict import Verdict, junit, run_scenario

SHOWN = 6  # violations in the terminal; the report has all
EXIT_USAGE = 64


def runs_folder() -> Path:
    """Where runs are kept: lab-runs in the current folder."""
    return Path("lab-runs")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, required=True)
@click.option("--backend", type=click.Choice(["process", "docker"]), default="process", show_default=True)
@click.option("--seed", type=int, default=0, help="seed of a random run")
@click.option("--long", "long_form", is_flag=True, help="the long form of the scenarios")
@click.option("--seconds", type=float, default=None, help="how long a random run goes on")
@click.option("--patience", type=float, default=None, help="seconds to wait for anything [60]")
@click.option("--keep", is_flag=True, help="keep the folders of passed runs too")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="folder for the runs [lab-runs]")
@click.option("--junit", "junit_file", type=click.Path(path_type=Path), default=None, help="write JUnit XML here")
@click.option("--json", "as_json", is_flag=True, help="print verdicts as JSON lines")
@click.option("--without-fix", "bug", default=None, help="run with a seeded bug (`interlink-lab list` names them)")
@click.option("-v", "--verbose", is_flag=True, help="print events as they happen")
def command(
    names: tuple[str, ...], backend: str, seed: int, long_form: bool, seconds: float | None,
    patience: float | None, keep: bool, out: Path | None, junit_file: Path | None, as_json: bool,
    bug: str | None, verbose: bool,
) -> None:  # fmt: skip
    """Run scenarios by name, `all` of them, or `random` ones from a seed."""
    console = Console(stderr=as_json, highlight=False)
    verdicts = []
    for scenario in chosen(names, backend, seed, seconds, long_form, patience):
        folder, verdict = run_one(
            console, scenario, out or runs_folder(), backend, seed, long_form, bug or "", verbose
        )
        verdicts.append(verdict)
        tell(console, verdict, folder, keep)
        if as_json:
            print((folder / "verdict.json").read_text("utf-8").replace("\n", ""), flush=True)
        if verdict.result == "passed" and not keep:
            import shutil

            shutil.rmtree(folder, ignore_errors=True)
    if junit_file is not None:
        junit_file.write_text(junit(verdicts), "utf-8")
    passed = sum(v.result == "passed" for v in verdicts)
    seconds_in_all = sum(v.seconds for v in verdicts)
    console.print(f"{passed} of {len(verdicts)} passed in {seconds_in_all:.1f} s")
    sys.exit(max((v.exit_code for v in verdicts), default=0))


def chosen(
    names: tuple[str, ...], backend: str, seed: int, seconds: float | None, long_form: bool,
    patience_s: float | None,
) -> list[Scenario]:  # fmt: skip
    """The scenarios of these names. Exit 64 for an unknown one."""
    found = known()
    scenarios: list[Scenario] = []
    for name in names:
        if name == "all":
            scenarios += [s for s in found.values() if backend in s.backends]
        elif name == "random":
            from interlink_lab.random_run import random_scenario

            span_s = seconds or (60.0 if long_form else 30.0)
            scenarios.append(replace(random_scenario(seed, span_s), span_s=span_s))
        elif name in found:
            scenarios.append(found[name])
        else:
            click.echo(f"no scenario {name!r}: one of all, random, {', '.join(sorted(found))}", err=True)
            sys.exit(EXIT_USAGE)
    return scenarios if patience_s is None else [replace(s, patience_s=patience_s) for s in scenarios]


def run_one(
    console: Console, scenario: Scenario, base: Path, backend: str, seed: int, long_form: bool, bug: str,
    verbose: bool,
) -> tuple[Path, Verdict]:  # fmt: skip
    """Run one in a new folder below `base`, with a line that says what is going on. ValueError for no such bug."""
    base.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{time.strftime('%m%d-%H%M%S')}-{scenario.name}-", dir=base))
    product = None
    if bug:
        from interlink_lab.bugs import patched_copy

        product = patched_copy(bug, folder / "product")
    counts = {"events": 0, "faults": 0, "wakes": 0, "fetches": 0}
    with console.status(f"{scenario.name}: starting") as status:

        def watch(event: Event) -> None:
            counts["events"] += 1
            counts["faults"] += event["kind"] == "fault"
            counts["wakes"] += event["kind"] == "wake"
            counts["fetches"] += event["kind"] == "fetch"
            if verbose:
                from interlink_lab.report.text import line

                console.print(escape(line(event)))
            told = ", ".join(f"{value} {name}" for name, value in counts.items())
            status.update(f"{scenario.name} [{backend}] {event['t']:.1f} s: {told}")

        async def go() -> Verdict:
            return await run_scenario(
                scenario, folder, backend=backend, seed=seed, long=long_form, product=product, watch=watch,
                bug=bug,
            )  # fmt: skip

        return folder, anyio.run(go)


def tell(console: Console, verdict: Verdict, folder: Path, keep: bool) -> None:
    """The verdict in a few lines; a failed one with its proof and how to run it again."""
    mark = {"passed": "[green]ok[/]", "failed": "[red]FAILED[/]"}.get(verdict.result, "[yellow]BROKEN[/]")
    console.print(
        f"{mark} {verdict.scenario} [{verdict.backend}] {verdict.seconds:.1f} s, {verdict.events} events"
    )
    for found in verdict.violations[:SHOWN]:
        console.print(f"  [bold]{found['invariant']}[/]: {escape(found['text'])}")
        from interlink_lab.report.text import line

        for event in found["events"]:
            console.print(escape(f"      {line(event)}"))
    if len(verdict.violations) > SHOWN:
        console.print(f"  and {len(verdict.violations) - SHOWN} more")
    if verdict.error:
        console.print(f"  {escape(verdict.error)}")
    if verdict.result != "passed":
        console.print(f"  run it again: {verdict.replay}\n  look at it:   ./dev lab report {folder}")
    elif keep:
        console.print(f"  kept in {folder}")


if __name__ == "__main__":
    command()
