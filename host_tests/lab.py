"""Running the lab from a test, as a person does: by its command."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

GUARD_S = 380.0  # against hangs, never a measure


def lab(*arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """One call of `interlink-lab` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "interlink_lab.cli", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=GUARD_S,
        env={**os.environ, **env},
    )


def run(name: str, folder: Path, *arguments: str, **env: str) -> dict[str, Any]:
    """The verdict of one scenario. AssertionError where there is none."""
    done = lab("run", name, "--json", "--keep", "--out", str(folder), *arguments, **env)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, f"no verdict (exit {done.returncode}): {done.stderr[-2000:]}"
    verdict: dict[str, Any] = json.loads(lines[-1])
    assert done.returncode == {"passed": 0, "failed": 1}.get(verdict["result"], 3)
    return verdict


def passes(name: str, folder: Path, backend: str) -> None:
    """Run it and assert that it passed, with the proof and the line that runs it again in the message."""
    verdict = run(name, folder, "--backend", backend)
    proof = [f"{v['invariant']}: {v['text']}" for v in verdict["violations"]]
    assert verdict["result"] == "passed", f"{verdict['error']} {proof}\nrun it again: {verdict['replay']}"
