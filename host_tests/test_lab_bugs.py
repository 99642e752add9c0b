"""The lab can fail: each seeded bug is caught, by the invariant that its line names."""

from pathlib import Path

import pytest

from host_tests.lab import lab, run
from interlink_lab import bugs
from interlink_lab.checker import names
from interlink_lab.scenarios import known

BUGS = bugs.known()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", sorted(BUGS))
def test_a_seeded_bug_is_caught(name: str, tmp_path: Path) -> None:
    bug = BUGS[name]
    verdict = run(bug.scenario, tmp_path, "--without-fix", name)
    found = {violation["invariant"] for violation in verdict["violations"]}
    assert bug.invariant in found, f"found {found or 'nothing'}; {verdict['error']}"


def test_the_list_of_bugs_fits_the_product_and_the_lab() -> None:
    assert len(BUGS) >= 25
    assert {bug.invariant for bug in BUGS.values()} <= set(names())
    assert {bug.scenario for bug in BUGS.values()} <= set(known())


@pytest.mark.timeout(400)
@pytest.mark.req("V3")
@pytest.mark.parametrize(
    ("fault", "fix", "invariant"),
    [
        ("idle-wake", "no-notice-at-all", "idle-wake"),
        ("duplicate-notice", "no-listener-lock", "one-wake-a-notice"),
    ],
)
def test_a_fault_is_reproduced_with_its_timeline(fault: str, fix: str, invariant: str, tmp_path: Path) -> None:
    done = lab("reproduce", fault, "--without-fix", fix, "--out", str(tmp_path))
    assert done.returncode == 1, done.stdout + done.stderr
    assert invariant in done.stdout and "m:alice-1" in done.stdout  # the timeline names the message
    (page,) = tmp_path.glob("*/report.html")
    assert invariant in page.read_text("utf-8")


@pytest.mark.timeout(400)
@pytest.mark.req("V3")
@pytest.mark.parametrize("fault", ["idle-wake", "duplicate-notice"])
def test_the_fault_is_not_there_on_this_tree(fault: str, tmp_path: Path) -> None:
    done = lab("reproduce", fault, "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "m:alice-1" in done.stdout
