"""`interlink-lab run SCENARIO...`: run scenarios, say what happens, exit by verdict."""

import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import click
from rich.console import Console
from rich.markup import escape

from interlink_lab import bugs
from interlink_lab.commands.many import CLOSING, default_jobs, run_many
from interlink_lab.commands.shell import above_zero, run_command, usage
from interlink_lab.history import Event
from interlink_lab.programs import binaries, use_binaries
from interlink_lab.report.text import line
from interlink_lab.scenarios import Scenario, known
from interlink_lab.verdict import Verdict, junit, run_scenario

SHOWN = 6  # violations in the terminal; the report has all


def runs_folder() -> Path:
    """Where runs are kept: lab-runs in the current folder."""
    return Path("lab-runs")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, required=True)
@click.option("--backend", type=click.Choice(["process", "docker"]), default="process", show_default=True)
@click.option("--seed", type=int, default=0, show_default=True, help="seed of a random run")
@click.option(
    "--seeds", "seeds_file", type=click.Path(path_type=Path), help="random runs, one a seed of this file"
)
@click.option("--long", "long_form", is_flag=True, help="the long form of the scenarios")
@click.option(
    "--seconds",
    type=float,
    callback=above_zero,
    default=None,
    help="how long a random run goes on [30; --long 60]",
)
@click.option(
    "--patience", type=float, callback=above_zero, default=None, help="seconds to wait for anything [60]"
)
@click.option("--keep", is_flag=True, help="keep the folders of passed runs too")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="folder for the runs [lab-runs]")
@click.option("--junit", "junit_file", type=click.Path(path_type=Path), default=None, help="write JUnit XML here")
@click.option("--json", "as_json", is_flag=True, help="print verdicts as JSON lines")
@click.option("--without-fix", "bug", default=None, help="run with a seeded bug (`interlink-lab list` names them)")
@click.option(
    "--product", type=click.Path(path_type=Path), help="run the interlink/ of this folder, not this tree's"
)
@click.option("--jobs", type=click.IntRange(1, 64), help="runs at one time [of several: 2 a core, at most 4]")
@click.option("-v", "--verbose", is_flag=True, help="print events as they happen, one run after another")
def command(
    names: tuple[str, ...], backend: str, seed: int, seeds_file: Path | None, long_form: bool,
    seconds: float | None, patience: float | None, keep: bool, out: Path | None, junit_file: Path | None,
    as_json: bool, bug: str | None, product: Path | None, jobs: int | None, verbose: bool,
) -> None:  # fmt: skip
    """Run scenarios by name, `all` of them, or `random` ones from a seed.

    Exit 0: all passed; 1: an invariant does not hold; 3: one could not be run; 64: usage; 130:
    ended by a signal.
    """
    console = Console(stderr=as_json, highlight=False)
    began = time.monotonic()
    try:
        seeds = [seed] if seeds_file is None else read_seeds(seeds_file)
        if seeds_file is not None and "random" not in names:
            raise ValueError("--seeds is for `random`")
        if sum(map(bool, (bug, product, binaries()))) > 1:
            raise ValueError("of --without-fix, --product and INTERLINK_LAB_BIN only one: each says what is run")
        told_product = checked(bug or "", product)
    except (OSError, ValueError) as exc:
        usage(exc)
    asked = chosen(names, backend, seeds, seconds, long_form, patience)
    base = out or runs_folder()
    if len(asked) > 1 and jobs != 1 and not verbose:
        drafts = [
            Verdict(
                scenario=one.name, backend=backend, seed=number, long=long_form, result="", seconds=0.0, events=0,
                span_s=one.span_s, bug=bug or "", patience_s=one.patience_s, product=told_product,
                binaries=binaries() or "",
            )
            for one, number in asked
        ]  # fmt: skip
        more = ["--out", str(base), *(["--keep"] if keep else [])]
        say = (lambda verdict: print(verdict.as_json(), flush=True)) if as_json else (lambda _: None)
        verdicts = run_many(console, drafts, more, jobs or default_jobs(), say)
    else:
        verdicts = []
        for scenario, number in asked:
            folder, verdict = run_one(
                console, scenario, base, backend, number, long_form, bug or "", verbose, product
            )
            verdicts.append(verdict)
            tell(console, verdict, folder, keep)
            if as_json:
                print(verdict.as_json(), flush=True)
            if verdict.result == "passed" and not keep:
                shutil.rmtree(folder, ignore_errors=True)
    if junit_file is not None:
        junit_file.write_text(junit(verdicts), "utf-8")
    passed = sum(v.result == "passed" for v in verdicts)
    console.print(f"{passed} of {len(verdicts)}{CLOSING}{time.monotonic() - began:.1f} s")
    sys.exit(worst(verdicts))


def checked(bug: str, product: Path | None) -> str:
    """What a verdict says of `product`. ValueError for no `interlink/` in it, no such bug, no such binaries."""
    if product is not None and not (product / "interlink" / "__init__.py").is_file():
        raise ValueError(f"no interlink/ in {product}")
    if bug and bug not in bugs.known():
        raise ValueError(f"no seeded bug {bug!r}: one of {', '.join(sorted(bugs.known()))}")
    use_binaries(binaries())
    return "" if product is None else str(product.resolve())


def worst(verdicts: list[Verdict]) -> int:
    """The exit code of several: one that failed says more than one without a verdict."""
    codes = {v.exit_code for v in verdicts}
    return next((code for code in (1, 3) if code in codes), 0)


def read_seeds(path: Path) -> list[int]:
    """One a line; `#` begins a comment. OSError; ValueError for what is no number, or for none at all."""
    found = []
    for number, text in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
        word = text.partition("#")[0].strip()
        try:
            found += [int(word)] if word else []
        except ValueError:
            raise ValueError(f"{path}:{number}: {word[:40]!r} is no seed, a whole number") from None
    if not found:
        raise ValueError(f"{path}: no seeds")
    return found


def chosen(
    names: tuple[str, ...], backend: str, seeds: Sequence[int], seconds: float | None, long_form: bool,
    patience_s: float | None = None,
) -> list[tuple[Scenario, int]]:  # fmt: skip
    """The scenarios of these names and their seeds; `random` is one for each seed. Exit 64 for an unknown name."""
    found = known()
    scenarios: list[tuple[Scenario, int]] = []
    for name in names:
        if name == "all":
            scenarios += [(s, seeds[0]) for s in found.values() if backend in s.backends]
        elif name == "random":
            from interlink_lab.random_run import random_scenario

            span_s = seconds or (60.0 if long_form else 30.0)
            scenarios += [(replace(random_scenario(n, span_s), span_s=span_s), n) for n in seeds]
        elif name in found:
            scenarios.append((found[name], seeds[0]))
        else:
            usage(f"no scenario {name!r}: one of all, random, {', '.join(sorted(found))}")
    if patience_s is None:
        return scenarios
    return [(replace(one, patience_s=patience_s), number) for one, number in scenarios]


def run_one(
    console: Console, scenario: Scenario, base: Path, backend: str, seed: int, long_form: bool, bug: str,
    verbose: bool, product: Path | None = None,
) -> tuple[Path, Verdict]:  # fmt: skip
    """Run one in a new folder below `base`, with a line that says what is going on.

    `product`: a folder that holds an `interlink/` to run in place of this tree's. ValueError as of `checked`.
    """
    told_product = checked(bug, product)
    base.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{time.strftime('%m%d-%H%M%S')}-{scenario.name}-", dir=base))
    if bug:
        product = bugs.patched_copy(bug, folder / "product")
    counts = {"events": 0, "faults": 0, "wakes": 0, "fetches": 0}
    with console.status(f"{scenario.name}: starting") as status:

        def watch(event: Event) -> None:
            counts["events"] += 1
            counts["faults"] += event["kind"] == "fault"
            counts["wakes"] += event["kind"] == "wake"
            counts["fetches"] += event["kind"] == "fetch"
            if verbose:
                console.print(escape(line(event)))
            told = ", ".join(f"{value} {name}" for name, value in counts.items())
            status.update(f"{scenario.name} \\[{backend}] {event['t']:.1f} s: {told}")

        async def go() -> Verdict:
            return await run_scenario(
                scenario, folder, backend=backend, seed=seed, long=long_form, product=product, watch=watch,
                bug=bug, told_product=told_product,
            )  # fmt: skip

        return folder, anyio.run(go)


def tell(console: Console, verdict: Verdict, folder: Path, keep: bool) -> None:
    """The verdict in a few lines; a failed one with its proof and how to run it again."""
    mark = {"passed": "[green]ok[/]", "failed": "[red]FAILED[/]"}.get(verdict.result, "[yellow]BROKEN[/]")
    seed = "" if verdict.span_s is None else f" seed {verdict.seed}"
    console.print(
        f"{mark} {verdict.scenario}{seed} \\[{verdict.backend}] {verdict.seconds:.1f} s, {verdict.events} events"
    )
    for found in verdict.violations[:SHOWN]:
        console.print(f"  [bold]{found['invariant']}[/]: {escape(found['text'])}", soft_wrap=True)
        for event in found["events"]:
            console.print(escape(f"      {line(event)}"), soft_wrap=True)
    if len(verdict.violations) > SHOWN:
        console.print(f"  and {len(verdict.violations) - SHOWN} more")
    if verdict.error:
        console.print(f"  {escape(verdict.error)}", soft_wrap=True)
    if verdict.missed and verdict.span_s is None:
        missed = escape(", ".join(verdict.missed))
        console.print(f"  without an effect, since there was nothing to do it to: {missed}", soft_wrap=True)
    if verdict.result != "passed":
        console.print(f"  run it again: {escape(verdict.replay)}", soft_wrap=True)
        if (folder / "history.jsonl").is_file():
            console.print(f"  look at it:   ./dev lab report {escape(str(folder))}", soft_wrap=True)
    elif keep:
        console.print(f"  kept in {escape(str(folder))}", soft_wrap=True)


if __name__ == "__main__":
    run_command(command, "interlink-lab run")
