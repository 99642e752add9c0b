"""The lab's command line: what it lists, how it refuses, that its seeded bugs still fit the product."""

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.programs import ROOT

from interlink_lab import bugs
from interlink_lab.checker import names
from interlink_lab.commands import replay
from interlink_lab.commands.run import read_seeds
from interlink_lab.nemesis import KINDS, Fault, begin
from interlink_lab.run import Run
from interlink_lab.scenarios import known
from interlink_lab.scenarios.base import KNOWN, Body, Scenario
from interlink_lab.topology import two_hosts
from interlink_lab.verdict import Verdict, junit, run_scenario


def lab(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "interlink_lab.cli", *arguments]
    env = {**os.environ, **environment}
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env)


@pytest.mark.req("V3")
def test_list_names_commands_scenarios_and_invariants() -> None:
    done = lab("list")
    assert done.returncode == 0
    for name in ("interlink-lab reproduce", *known(), "all", "random", *names(), *KINDS, *bugs.known()):
        assert re.search(rf"^ *{re.escape(name)}  +\S", done.stdout, re.MULTILINE), name


def test_an_invariant_is_told_to_its_end_also_over_lines_and_colons() -> None:
    told = names()
    assert told["channel-push"].endswith("and no listener waits beside it (N1, C10).")
    assert (
        told["consumed-when-acked"].startswith("nobody but the agent")
        and ": a receipt" in told["consumed-when-acked"]
    )
    assert not any("  " in text or "\n" in text for text in told.values())
    assert told["locks-free"] == told["nothing-left-running"]


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


FAILED: dict[str, Any] = {
    "scenario": "one-message", "backend": "process", "seed": 0, "long": False, "result": "failed", "seconds": 1.0,
    "events": 1,
}  # fmt: skip


def test_other_binaries_are_a_part_of_the_verdict_and_of_its_line(tmp_path: Path) -> None:
    verdict = Verdict(**FAILED, binaries="/opt/it's/bin")
    verdict.write(tmp_path)
    assert Verdict.load(tmp_path) == verdict
    first, *rest = shlex.split(verdict.replay)
    assert first == "INTERLINK_LAB_BIN=/opt/it's/bin" and rest[:4] == ["./dev", "lab", "run", "one-message"]
    assert Verdict(**FAILED).replay.startswith("./dev lab run ")


def useless(folder: Path) -> None:
    """Programs that end at once: the lab cannot run them."""
    folder.mkdir(exist_ok=True)
    for name in ("interlink-mcp", "interlink-bus", "interlink-keygen"):
        (folder / name).write_text("#!/bin/sh\nexit 1\n", "ascii")
        (folder / name).chmod(0o755)


def test_a_run_with_other_binaries_says_so(tmp_path: Path) -> None:
    useless(tmp_path)
    done = lab("run", "one-message", "--json", "--out", str(tmp_path / "out"), INTERLINK_LAB_BIN=str(tmp_path))
    assert done.returncode == 3, done.stdout + done.stderr
    row = json.loads(done.stdout)
    assert row["binaries"] == str(tmp_path) and row["replay"].startswith(
        f"INTERLINK_LAB_BIN={tmp_path} ./dev lab run"
    )
    assert f"run it again: {row['replay']}\n" in done.stderr, "in one line"


@pytest.mark.parametrize("recorded", ["bin", ""])
def test_a_replay_runs_the_binaries_that_were_recorded(
    recorded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    useless(tmp_path / "bin")
    monkeypatch.setenv("INTERLINK_LAB_BIN", "/those/of/now")
    monkeypatch.chdir(tmp_path)
    Verdict(**FAILED, binaries=recorded).write(tmp_path)
    used = []

    def run_one(*_arguments: Any) -> tuple[Path, Verdict]:
        used.append(os.environ.get("INTERLINK_LAB_BIN"))
        return tmp_path / "again", Verdict(**{**FAILED, "result": "passed"})

    monkeypatch.setattr(replay, "run_one", run_one)
    done = CliRunner().invoke(replay.command, [str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert used == [str(tmp_path / "bin") if recorded else None]


def test_binaries_that_are_not_there_are_said_and_exit_64(tmp_path: Path) -> None:
    useless(tmp_path)
    (tmp_path / "interlink-bus").unlink()
    done = lab("run", "one-message", "--out", str(tmp_path / "out"), INTERLINK_LAB_BIN=str(tmp_path))
    assert done.returncode == 64 and "no program interlink-bus in" in done.stderr, done.stdout + done.stderr
    Verdict(**FAILED, binaries=str(tmp_path / "gone")).write(tmp_path)
    done = lab("replay", str(tmp_path), "--out", str(tmp_path / "out"))
    assert done.returncode == 64 and "no program interlink-mcp in" in done.stderr, done.stdout + done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run",), "Missing argument"),
        (("run", "one-message", "--bogus"), "No such option"),
        (("run", "one-message", "--backend", "cloud"), "cloud"),
        (("run", "random", "--seconds", "nan"), "no number of seconds"),
        (("run", "one-message", "--patience", "-1"), "no number of seconds"),
        (("run", "one-message", "--without-fix", "nosuch"), "no seeded bug"),
        (("run", "one-message", "--without-fix", "no-listener-lock", "--product", "."), "only one"),
        (("run", "one-message", "stranger", "--without-fix", "nosuch"), "no seeded bug"),
        (("run", "one-message", "--jobs", "0"), "0"),
        (("reproduce", "earthquake"), "earthquake"),
    ],
)
def test_what_is_asked_wrongly_exits_64_and_leaves_no_folder(
    words: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    done = lab(*words, "--out", str(tmp_path / "out"))
    assert done.returncode == 64 and told in done.stderr, done.stdout + done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "out").exists()


def test_several_at_a_time_give_one_verdict_each_and_the_worst_exit_code(tmp_path: Path) -> None:
    found = tmp_path / "junit.xml"
    done = lab(
        "run", "one-message", "stranger", "passed-over", "--without-fix", "listener-wakes-for-everything",
        "--json", "--jobs", "3", "--junit", str(found), "--out", str(tmp_path / "out"),
    )  # fmt: skip
    rows = {row["scenario"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert {name: row["result"] for name, row in rows.items()} == {
        "one-message": "passed", "stranger": "passed", "passed-over": "failed",
    }, done.stderr  # fmt: skip
    assert done.returncode == 1
    assert f"run it again: {rows['passed-over']['replay']}\n" in done.stderr
    assert done.stderr.count(" passed in ") == 1 and "2 of 3 passed in " in done.stderr
    assert 'tests="3" failures="1"' in found.read_text("utf-8")
    assert len(list((tmp_path / "out").iterdir())) == 1, "the folder of the failed one stays"


def test_a_run_that_ends_without_a_verdict_is_broken(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = lab("run", "one-message", "stranger", "--json", "--out", str(tmp_path / "file"))
    assert done.returncode == 3, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["result"] for row in rows] == ["broken", "broken"]
    assert all("file" in row["error"] for row in rows)


def test_seeds_that_are_none_are_named_with_their_line(tmp_path: Path) -> None:
    (tmp_path / "seeds").write_bytes(b"1\n# none\n\xffabc\n")
    with pytest.raises(ValueError, match=r"seeds:3: .*abc' is no seed"):
        read_seeds(tmp_path / "seeds")


def test_a_folder_that_cannot_be_made_is_no_verdict_on_the_product(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = lab("run", "one-message", "--out", str(tmp_path / "file"))
    assert done.returncode == 3 and "file" in done.stderr and "Traceback" not in done.stderr, done.stderr


async def _misspelt(run: Run) -> None:
    run.host("carol")


async def _left_on(run: Run) -> None:
    await run.host("alice").send(run.host("bob"))
    await begin(run, Fault("pause", "bob.server"))


@pytest.mark.parametrize(("body", "told"), [(_misspelt, "no host 'carol'"), (_left_on, "pause on bob.server")])
def test_a_mistake_of_a_scenario_is_no_verdict_on_the_product(body: Body, told: str, tmp_path: Path) -> None:
    verdict = asyncio.run(run_scenario(Scenario("mine", "", two_hosts(), body), tmp_path))
    assert (verdict.result, verdict.exit_code, verdict.violations) == ("broken", 3, []), verdict
    assert told in verdict.error
    assert Verdict.load(tmp_path) == verdict


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
