"""`just hosts-install` with stand-ins for npm and cargo, and what host tests do when a host is missing."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.programs import ROOT

from host_tests import leftovers
from interlink_lab.tools import hosts, lint

NPM = """#!/bin/sh
echo "$@" >> "$LOG"
while [ "$1" != --prefix ]; do shift; done
[ "$FAILS" ] && exit 9
mkdir -p "$2/node_modules/.bin"
for name in claude codex; do echo real > "$2/node_modules/.bin/$name"; done
"""


CARGO = """#!/bin/sh
echo "$@" >> "$LOG"
while [ "$1" != --root ]; do shift; done
[ "$FAILS" ] && exit 9
mkdir -p "$2/bin" "$2/target"
echo real > "$2/bin/interlink-mcp"
"""


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    for name, text in (("npm", NPM), ("cargo", CARGO)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setenv("INTERLINK_HOSTS_DIR", str(tmp_path / "hosts"))
    return tmp_path / "log"


def install(monkeypatch: pytest.MonkeyPatch, *args: str) -> None:
    monkeypatch.setattr(sys, "argv", ["hosts", *args])
    hosts.main()


def test_each_version_is_installed_once_into_its_folder(npm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    install(monkeypatch, "codex")
    calls = npm.read_text().splitlines()
    rows = hosts.wanted([])
    assert len(calls) == len(rows) >= 5
    for call, row in zip(calls, rows, strict=True):
        if row.tool == "npm":
            assert call.endswith(f" {row.package}@{row.version}")
        else:
            assert "--locked" in call and f"--version {row.version} " in call and call.endswith(f" {row.package}")
        assert row.program.read_text() == "real\n" and row.program == hosts.program(row.name, row.version)
        assert not (row.folder / "target").exists()
    assert {p.name for p in (npm.parent / "hosts").iterdir()} == {f"{row.name}-{row.version}" for row in rows}


def test_the_peer_is_the_named_or_the_installed_one_never_one_on_path(
    npm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INTERLINK_PEER_DIR", raising=False)
    (npm.parent / "bin" / "interlink-mcp").write_text("on PATH")
    assert hosts.peer() is None
    install(monkeypatch, "peer")
    folder = hosts.peer()
    assert folder == hosts.program("peer", hosts.known()["peer"][1][-1]).parent
    monkeypatch.setenv("INTERLINK_PEER_DIR", str(npm.parent / "nothing here"))
    assert hosts.peer() is None
    monkeypatch.setenv("INTERLINK_PEER_DIR", str(npm.parent / "bin"))
    assert hosts.peer() == npm.parent / "bin"


def test_a_failed_installation_leaves_nothing(npm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAILS", "1")
    with pytest.raises(SystemExit) as caught:
        install(monkeypatch, "claude@2.1.278")
    assert caught.value.code == 1 and list((npm.parent / "hosts").iterdir()) == []


def test_an_unknown_host_and_a_missing_tool_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INTERLINK_HOSTS_DIR", str(tmp_path))
    for args, path, code, text in (
        (["emacs"], "/nowhere", 64, "emacs: not in host_tests/hosts.toml"),
        ([], "/nowhere", 1, "npm is missing: install Node.js"),
        (["peer"], "/nowhere", 1, "cargo is missing: install Rust"),
    ):
        monkeypatch.setenv("PATH", path)
        with pytest.raises(SystemExit) as caught:
            install(monkeypatch, *args)
        assert caught.value.code == code and text in capsys.readouterr().err


NEEDY = """
def test_docker(need):
    need("docker", False, "apt-get install docker.io")

def test_present(need):
    need("python", True, "")

def test_host(host):
    host("claude", "0.0.0")
"""


@pytest.mark.parametrize("require", ["", "1"])
def test_what_is_missing_is_skipped_or_with_the_variable_a_failure(tmp_path: Path, require: str) -> None:
    (tmp_path / "conftest.py").write_text((ROOT / "host_tests" / "conftest.py").read_text("utf-8"))
    (tmp_path / "test_it.py").write_text(NEEDY)
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\npythonpath = {ROOT / 'tests'}\naddopts = -q -ra -p no:cacheprovider\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:hypothesispytest", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "INTERLINK_REQUIRE_HOSTS": require},
    )
    assert ("2 failed, 1 passed" if require else "1 passed, 2 skipped") in done.stdout, done.stdout
    assert "docker is missing: apt-get install docker.io" in done.stdout
    assert "claude 0.0.0 is missing: run ./dev hosts-install" in done.stdout
    rows = {line.partition("  ")[0]: line.rpartition("  ")[2] for line in done.stdout.splitlines()}
    missing = "0 passed, 1 failed, 0 skipped" if require else "0 passed, 0 failed, 1 skipped"
    assert rows["host-test: claude 0.0.0"] == rows["host-test: docker"] == missing
    assert rows["host-test: python"].strip() == "1 passed, 0 failed, 0 skipped"


def test_a_process_that_a_host_test_leaves_is_found_by_its_home_and_ended(
    own_home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "ENDING_S", 0.0)
    assert leftovers.end(own_home) == []
    mark = os.path.join(own_home, "of a host test")
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={"MARK": mark})
    assert [left.pid for left in leftovers.end(mark)] == [child.pid]
    assert child.wait(60) == -signal.SIGKILL
    assert leftovers.end(mark) == []
    assert child.stdin is not None
    child.stdin.close()


def test_lint_runs_every_check_and_fails_when_one_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(lint.CHECKS) == ["ruff check", "ruff format", "mypy", "floors", "hygiene"]
    for second, code, end in (("this", 0, "lint: 2 passed, 0 failed"), ("nowhere", 1, "lint: 1 passed, 1 failed")):
        monkeypatch.setattr(lint, "CHECKS", {"one": ["this"], "two": [second]})
        with pytest.raises(SystemExit) as caught:
            lint.main()
        assert caught.value.code == code and end in capsys.readouterr().out
