"""A verdict holds what it takes to run its run again, by its line or by `replay`."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from interlink_lab.commands import replay, run
from interlink_lab.verdict import Verdict

PLAIN: dict[str, Any] = {
    "scenario": "cross-host", "backend": "process", "seed": 3, "long": False, "result": "failed", "seconds": 1.5,
    "events": 7, "violations": [{"invariant": "idle-wake", "text": "x", "events": []}],
}  # fmt: skip
RANDOM = {**PLAIN, "scenario": "random", "span_s": 45.0, "seed": 17}
BUG = {**PLAIN, "long": True, "bug": "no-listener-lock", "backend": "docker"}
TREE = {**RANDOM, "product": "some folder/it's", "patience_s": 12.5}


@pytest.mark.parametrize("table", [PLAIN, RANDOM, BUG, TREE], ids=["plain", "random", "bug", "tree"])
def test_a_verdict_comes_back_whole_and_its_line_says_the_same(table: dict[str, Any], tmp_path: Path) -> None:
    verdict = Verdict(**table)
    verdict.write(tmp_path)
    assert Verdict.load(tmp_path) == verdict
    params = run.command.make_context("run", list(verdict.arguments), resilient_parsing=True).params
    assert params["names"] == (verdict.scenario,) and params["backend"] == verdict.backend
    assert params["seed"] == verdict.seed and params["long_form"] is verdict.long
    assert params["seconds"] == verdict.span_s and (params["bug"] or "") == verdict.bug
    assert str(params["product"] or "") == verdict.product and params["patience"] == verdict.patience_s


def test_replay_runs_the_same_again_and_exits_by_the_new_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Verdict(**{**PLAIN, "bug": "no-listener-lock"}).write(tmp_path)
    given: list[Any] = []

    def run_one(_console: object, scenario: Any, base: Path, *rest: Any) -> tuple[Path, Verdict]:
        given.extend([scenario.name, base, *rest])
        return tmp_path / "again", Verdict(**{**PLAIN, "result": "passed", "violations": []})

    monkeypatch.setattr(replay, "run_one", run_one)
    done = CliRunner().invoke(replay.command, [str(tmp_path), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert given[:6] == ["cross-host", tmp_path / "out", "process", 3, False, "no-listener-lock"]
    rows = [line.split() for line in done.output.splitlines()]
    assert ["result", "failed", "passed"] in rows and ["idle-wake", "1", "0"] in rows


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"scenario": 1}'])
def test_what_is_no_verdict_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "verdict.json").write_text(text, "utf-8")
    done = CliRunner().invoke(replay.command, [str(tmp_path)])
    assert done.exit_code == 64 and "no recorded run" in done.output
