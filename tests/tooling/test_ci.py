"""The CI script, with a stand-in for ./dev: every part runs, the end tells all, nothing is left running."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from support.programs import ROOT

DEV = """#!/bin/sh
case "$1" in
--summary) echo recipes ;;
test) cat; echo "... 100%"; echo "7 passed in 1.00s"; echo; {test} ;;
lint) echo "lint: 5 passed, 0 failed in 0.1s" ;;
host-test) {hosts} ;;
esac
"""


def ci(folder: Path, test: str = "", hosts: str = "echo none") -> "subprocess.CompletedProcess[str]":
    (folder / ".ci").mkdir()
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "python").symlink_to("/bin/true")
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")
    (folder / "dev").write_text(DEV.format(test=test, hosts=hosts))
    (folder / "dev").chmod(0o755)
    for name in (".ci/install", "docker/start-engine"):  # called as root on Debian alone
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("#!/bin/sh\necho ok\n")
        (folder / name).chmod(0o755)
    return subprocess.run(
        ["bash", str(folder / ".ci" / "run")],
        cwd="/",
        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def lines(done: "subprocess.CompletedProcess[str]") -> list[str]:
    return [line for line in done.stdout.splitlines() if line.startswith("ci:")]


def test_it_passes_and_shows_the_closing_lines(tmp_path: Path) -> None:
    done = ci(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed in 1.00s\n" in done.stdout
    end = [line for line in lines(done) if " exit " in line]
    told = [line.split()[1] for line in end]
    assert told[:3] == ["prepare", "test", "lint"] and told[-1] == "host-test"
    assert lines(done)[-1].startswith("ci: passed")
    assert end[1].endswith("7 passed in 1.00s") and "exit 0" in end[1]
    assert not [name for name in os.listdir(tmp_path) if name.startswith("tmp.")]


def test_a_failure_is_told_at_the_end_and_the_other_parts_run(tmp_path: Path) -> None:
    done = ci(tmp_path, test="exit 3")
    assert done.returncode == 1
    assert lines(done)[-1] == "ci: FAILED: test"
    (line,) = [line for line in lines(done) if line.startswith("ci:   test ")]
    assert "exit 3" in line and "lint: 5 passed, 0 failed" in done.stdout and "none" in done.stdout


def test_a_host_test_that_failed_is_run_once_more_and_named(tmp_path: Path) -> None:
    hosts = 'if [ "$2" = --last-failed ]; then echo "1 passed in 2.00s"; else {first}; fi'
    first = 'echo "FAILED host_tests/test_a.py::test_b - AssertionError: late"; echo "1 failed"; exit 1'
    done = ci(tmp_path, hosts=hosts.replace("{first}", first))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ci:   FAILED host_tests/test_a.py::test_b" in lines(done)
    told = {line.split()[1]: line for line in lines(done) if " exit " in line}
    assert "exit 1" in told["host-test"] and "exit 0" in told["host-again"]


@pytest.mark.parametrize("failures", [1, 6])
def test_what_fails_twice_or_in_numbers_is_a_failure(tmp_path: Path, failures: int) -> None:
    hosts = f"for n in $(seq {failures}); do echo FAILED host_tests/test_a.py::test_$n - x; done; exit 1"
    done = ci(tmp_path, hosts=hosts)
    assert done.returncode == 1
    assert lines(done)[-1] == f"ci: FAILED: {'host-again' if failures == 1 else 'host-test'}"


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
def test_what_is_left_running_is_ended_and_is_a_failure(tmp_path: Path) -> None:
    hosts = "setsid sleep 987 >/dev/null 2>&1 & echo $! > pid; echo done"
    done = ci(tmp_path, hosts=hosts)
    pid = int((tmp_path / "pid").read_text())
    assert done.returncode == 1 and lines(done)[-1] == "ci: FAILED: leftovers"
    assert f"ci: left running: {pid} sleep 987" in done.stdout
    guard = time.monotonic() + 60
    while not _gone(pid):  # the kernel ends it a moment after the signal
        assert time.monotonic() < guard
        time.sleep(0.02)


def _gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
