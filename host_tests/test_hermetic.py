"""The host tests need no network: one scenario of each program runs where only the loopback interface exists.

Everything is inside: host, servers, listener, relay, scripted API. One connection elsewhere that the scenario
needs would fail it.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.programs import ROOT

from interlink_lab.tools import hosts

SCENARIOS = {
    "claude": "test_claude_wakes.py::test_an_idle_session_is_woken_fetches_acknowledges_and_listens_again",
    "codex": "test_codex_smoke.py::test_an_idle_thread_is_bound_woken_fetches_and_acknowledges_unattended",
}
ROWS = [(row.name, row.version) for row in hosts.rows() if row.name in SCENARIOS]


def alone() -> list[str]:
    """The words before a command that give it a network of its own; empty where that is not allowed."""
    for words in (["unshare", "-n"], ["unshare", "-rn"]):
        try:
            if subprocess.run([*words, "true"], capture_output=True, timeout=60).returncode == 0:
                return words
        except FileNotFoundError:
            return []
    return []


@pytest.mark.req("V2")
@pytest.mark.parametrize(("name", "version"), ROWS, ids=[f"{name}-{version}" for name, version in ROWS])
def test_a_scenario_runs_with_the_loopback_interface_alone(
    name: str, version: str, host: Callable[[str, str], Path], need: Callable[[str, bool, str], None]
) -> None:
    host(name, version)
    words = alone()
    need("a network namespace", bool(words), "run as root, or allow user namespaces (unshare -rn)")
    pytest_of_it = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v"]
    test = f"host_tests/{SCENARIOS[name]}[{version}]"
    done = subprocess.run(
        [*words, sys.executable, "-m", "host_tests.only_lo", *pytest_of_it, test],
        cwd=ROOT,
        env={**os.environ, "INTERLINK_REQUIRE_HOSTS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout[-4000:] + done.stderr[-2000:]
