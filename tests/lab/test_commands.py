"""The lab's command line: what it lists, how it refuses, that its seeded bugs still fit the product."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.programs import ROOT

from interlink_lab import bugs
from interlink_lab.checker import names
from interlink_lab.scenarios import known
from interlink_lab.scenarios.base import KNOWN
from interlink_lab.verdict import Verdict, junit


def lab(*arguments: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "interlink_lab.cli", *arguments]
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)


@pytest.mark.req("V3")
def test_list_names_commands_scenarios_and_invariants() -> None:
    done = lab("list")
    assert done.returncode == 0
    for name in ("reproduce", *known(), *names()):
        assert re.search(rf"\b{re.escape(name)}\b", done.stdout), name


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "no-such-scenario"),
        ("run", "random", "--seeds", "/no/such/file"),
        ("run", "one-message", "--product", "/no/such/folder"),
        ("run", "one-message", "--without-fix", "no-such-bug"),
        ("reproduce", "idle-wake", "--without-fix", "no-such-fix"),
        ("report", "/no/such/run"),
        ("replay", "/no/such/run"),
        ("no-such-command",),
    ],
    ids=" ".join,
)
def test_what_it_cannot_do_is_said_and_exits_64(arguments: tuple[str, ...], tmp_path: Path) -> None:
    more = ("--out", str(tmp_path)) if arguments[0] in ("run", "reproduce", "replay") else ()
    done = lab(*arguments, *more)
    assert done.returncode == 64, done.stdout + done.stderr
    assert done.stderr.strip() and "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("history.jsonl"))


@pytest.mark.parametrize("name", sorted(bugs.known()))
def test_a_seeded_bug_fits_the_product(name: str, tmp_path: Path) -> None:
    bug = bugs.known()[name]
    copy = bugs.patched_copy(name, tmp_path) / "interlink" / bug.file
    compile(copy.read_text("utf-8"), bug.file, "exec")
    assert bug.invariant in names() and bug.scenario in known()


def test_the_guide_s_scenario_can_be_loaded() -> None:
    text = (ROOT / "docs" / "lab.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    known()
    try:
        exec(compile(code, "docs/lab.md", "exec"), {})
        assert "night-shift" in KNOWN
    finally:
        KNOWN.pop("night-shift", None)


def test_the_guide_names_commands_that_there_are() -> None:
    text = (ROOT / "docs" / "lab.md").read_text("utf-8")
    for command, first in re.findall(r"\./dev lab (\w+) ([\w-]+)", text):
        done = lab(command, "--help") if command != "list" else lab("list")
        assert done.returncode == 0, command
        if command == "run":
            assert first in {*known(), "all", "random", "night-shift", "SCENARIO"}, first


def test_junit_tells_failures_from_broken_runs() -> None:
    row = {"invariant": "idle-wake", "text": "<not woken>", "events": []}
    base = {"backend": "process", "seed": 0, "long": False, "seconds": 1.0, "events": 1}
    verdicts = [
        Verdict(scenario="a", result="passed", **base),  # type: ignore[arg-type]
        Verdict(scenario="b", result="failed", violations=[row], **base),  # type: ignore[arg-type]
        Verdict(scenario="c", result="broken", error="no engine", **base),  # type: ignore[arg-type]
    ]
    text = junit(verdicts)
    assert 'tests="3" failures="1" errors="1"' in text
    assert "&lt;not woken&gt;" in text and "<error>no engine</error>" in text
    assert [v.exit_code for v in verdicts] == [0, 1, 3]
