"""Runs a scenario to its verdict and writes what came of it beside its history: verdict.json, junit.xml."""

import json
import shlex
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import anyio

from interlink_lab.checker import Violation, check
from interlink_lab.history import Event, History
from interlink_lab.programs import OTHER, binaries
from interlink_lab.remote import RemoteFailed
from interlink_lab.run import LabFailed, Run, open_run, prepare_backend
from interlink_lab.scenarios.base import Scenario

LIMIT_S = {False: 180.0, True: 1800.0}
"""Guard against hangs, short and long form."""
SPANS = 15  # a random run gets so many times its span besides


@dataclass
class Verdict:
    """`passed`, `failed` (an invariant does not hold) or `broken` (the lab could not run it: no verdict)."""

    scenario: str
    backend: str
    seed: int
    long: bool
    result: str
    seconds: float
    events: int
    violations: list[dict[str, Any]] = field(default_factory=list)
    error: str = ""
    span_s: float | None = None
    """How long a random run was told to go on; None for a scenario that ends by itself."""
    bug: str = ""
    """The seeded bug it ran with."""
    patience_s: float | None = None
    """How long it waited for anything, where it was told to wait less."""
    product: str = ""
    """The folder whose `interlink/` was run in place of this tree's."""
    binaries: str = ""
    """The folder of other binaries that were run (INTERLINK_LAB_BIN)."""

    missed: list[str] = field(default_factory=list)
    """Faults that there was nothing to do to."""

    @property
    def arguments(self) -> list[str]:
        """What `interlink-lab run` needs to run it again, besides the folder of other binaries."""
        name = "random" if self.span_s is not None else self.scenario
        words = [name, "--backend", self.backend, "--seed", str(self.seed)]
        words += ["--long"] if self.long else []
        words += [] if self.span_s is None else ["--seconds", f"{self.span_s:g}"]
        words += [] if self.patience_s is None else ["--patience", f"{self.patience_s:g}"]
        words += ["--product", self.product] if self.product else []
        return words + (["--without-fix", self.bug] if self.bug else [])

    @property
    def replay(self) -> str:
        """The one line that runs it again."""
        other = f"{OTHER}={shlex.quote(self.binaries)} " if self.binaries else ""
        return f"{other}./dev lab run {shlex.join(self.arguments)}"

    @property
    def exit_code(self) -> int:
        """0 passed, 1 failed, 3 broken."""
        return {"passed": 0, "failed": 1}.get(self.result, 3)

    def write(self, folder: Path) -> None:
        """verdict.json and junit.xml."""
        (folder / "verdict.json").write_text(self.as_json(indent=1) + "\n", "utf-8")
        (folder / "junit.xml").write_text(junit([self]), "utf-8")

    def as_json(self, indent: int | None = None) -> str:
        """As JSON text, in one line unless it is indented."""
        return json.dumps({**asdict(self), "replay": self.replay}, indent=indent, ensure_ascii=False)

    @classmethod
    def load(cls, folder: Path) -> "Verdict":
        """The verdict of a run's folder. OSError, ValueError for what is none."""
        return cls.of(json.loads((folder / "verdict.json").read_text("utf-8")))

    @classmethod
    def of(cls, table: object) -> "Verdict":
        """A verdict from its JSON. ValueError for what is none."""
        if not isinstance(table, dict):
            raise ValueError("verdict.json holds no object")
        known = {f.name for f in fields(cls)}
        try:
            return cls(**{key: value for key, value in table.items() if key in known})
        except TypeError as exc:
            raise ValueError(f"verdict.json: {exc}") from exc


def junit(verdicts: list[Verdict]) -> str:
    """JUnit XML of some verdicts."""
    rows = []
    for v in verdicts:
        name = quoteattr(f"{v.scenario}[{v.backend}]")
        body = "".join(
            f"<failure message={quoteattr(f['invariant'])}>{escape(f['text'])}</failure>" for f in v.violations
        )
        if v.result == "broken":
            body = f"<error>{escape(v.error)}</error>"
        rows.append(f'<testcase classname="interlink_lab" name={name} time="{v.seconds:.3f}">{body}</testcase>')
    failures = sum(v.result == "failed" for v in verdicts)
    errors = sum(v.result == "broken" for v in verdicts)
    head = f'<testsuite name="interlink_lab" tests="{len(verdicts)}" failures="{failures}" errors="{errors}">'
    return f'<?xml version="1.0" encoding="utf-8"?>\n{head}{"".join(rows)}</testsuite>\n'


def row(violation: Violation) -> dict[str, Any]:
    """A violation as JSON: the name, the words, the events that prove it."""
    return {"invariant": violation.invariant, "text": violation.text, "events": violation.events}


async def run_scenario(
    scenario: Scenario,
    folder: Path,
    *,
    backend: str = "process",
    seed: int = 0,
    long: bool = False,
    product: Path | None = None,
    watch: Callable[[Event], None] | None = None,
    bug: str = "",
    told_product: str = "",
) -> Verdict:
    """Run it below `folder`, check its history, write the verdict there.

    `bug`, `told_product`: what the verdict says of `product`, so that the run can be made again.
    """
    began = time.monotonic()
    error, mistake = "", False
    try:
        await prepare_backend(backend)  # may build an image: not on the run's time
        with anyio.fail_after(LIMIT_S[long] + SPANS * (scenario.span_s or 0.0)):
            async with open_run(
                scenario.topology, folder, backend=backend, product=product, long=long, seed=seed, watch=watch,
                patience_s=scenario.patience_s,
            ) as run:  # fmt: skip
                await scenario.body(run)
                if run.heals:
                    raise ValueError(f"never ended: {_left(run)}; end it, or `await heal(run)`, before `settled`")
    except* (LabFailed, RemoteFailed, TimeoutError, OSError) as group:
        error = "; ".join(f"{type(e).__name__}: {e}" for e in leaves(group))
    except* Exception as group:  # noqa: BLE001 - a mistake of the scenario: nothing is said about the product
        error, mistake = "; ".join(_where(e, scenario) for e in leaves(group)), True
    recorded = folder / "history.jsonl"
    history = History.load(recorded) if recorded.exists() else History()
    found = [] if mistake else check(history)
    if not error and not scenario.silent and not any(history.of("send.ok", "raw.send", "local.post")):
        error = "no message was accepted: this run proves nothing"
    result = "failed" if found else "broken" if error else "passed"
    verdict = Verdict(
        scenario=scenario.name,
        backend=backend,
        seed=seed,
        long=long,
        result=result,
        seconds=round(time.monotonic() - began, 3),
        events=len(history.events),
        violations=[row(v) for v in found],
        error=error,
        span_s=scenario.span_s,
        bug=bug,
        patience_s=scenario.patience_s,
        product=told_product,
        missed=_missed(history),
        binaries=binaries() or "",
    )
    verdict.write(folder)
    return verdict


def _left(run: Run) -> str:
    """The faults that are still on."""
    return ", ".join(f"{e['fault']} on {e['target']}" for e in run.history.of("fault") if e["id"] in run.heals)


def _missed(history: History) -> list[str]:
    """Faults that there was nothing to do to."""
    missed = {e["id"] for e in history.of("fault.missed")}
    return [f"{e['fault']} on {e['target']}" for e in history.of("fault") if e["id"] in missed]


def _where(wrong: BaseException, scenario: Scenario) -> str:
    """An exception with the last place in the scenario's own file."""
    file = scenario.body.__code__.co_filename
    places = [f for f in traceback.extract_tb(wrong.__traceback__) if f.filename == file]
    at = f" ({Path(file).name}:{places[-1].lineno})" if places else ""
    return f"{type(wrong).__name__}: {wrong}{at}"


def leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """The exceptions in a group of groups."""
    found: list[BaseException] = []
    for each in group.exceptions:
        found += leaves(each) if isinstance(each, BaseExceptionGroup) else [each]
    return found
