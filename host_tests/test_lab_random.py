"""A random run: the faults that it must have, each seen to take effect, and every invariant holds."""

import json
from pathlib import Path

import pytest

from host_tests.lab import run
from interlink_lab import random_run
from interlink_lab.commands.run import read_seeds
from interlink_lab.history import History
from interlink_lab.nemesis import observed

SEEDS = read_seeds(random_run.SEEDS)


def test_the_seeds_that_passed_are_distinct() -> None:
    assert len(set(SEEDS)) == len(SEEDS) >= 100


@pytest.mark.timeout(400)
@pytest.mark.req("M28", "V2")
def test_a_random_run_of_60_s(tmp_path: Path) -> None:
    verdict = run("random", tmp_path, "--seed", "60", "--seconds", "60")
    proof = [f"{v['invariant']}: {v['text']}" for v in verdict["violations"]]
    assert verdict["result"] == "passed", f"{verdict['error']} {proof}\nrun it again: {verdict['replay']}"
    (path,) = tmp_path.glob("*/history.jsonl")
    history = History.load(path)
    counted = next(e for e in history.events if e["kind"] == "statistics")
    assert counted["kinds"] >= 8 and counted["kills"] >= 20, json.dumps(counted)
    faults = [e for e in history.events if e["kind"] == "fault"]
    assert len({e["fault"] for e in faults if observed(history, e)}) == counted["kinds"]
