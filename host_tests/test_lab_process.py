"""The lab's scenarios, short form, with plain processes: every invariant holds on this tree."""

from pathlib import Path

import pytest

from host_tests.lab import passes
from interlink_lab.scenarios import known

SCENARIOS = sorted(name for name, scenario in known().items() if "process" in scenario.backends)


@pytest.mark.timeout(400)
@pytest.mark.req("V1")
@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str, tmp_path: Path) -> None:
    passes(name, tmp_path, "process")
