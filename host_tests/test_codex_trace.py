"""The standard trace of the real Codex, version by version: what a fixture of it has to do."""

from collections.abc import Callable
from pathlib import Path

import pytest

from host_tests.codex_trace import codex_trace, expected
from host_tests.codex_world import VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.req("X1", "X2", "H13")
def test_the_standard_trace(version: str, host: Callable[[str, str], Path], tmp_path: Path) -> None:
    assert codex_trace(host("codex", version), tmp_path) == expected(version)
