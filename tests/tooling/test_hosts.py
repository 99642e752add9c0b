"""`just hosts-install` with a stand-in for npm, and what host tests do when a host is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.programs import ROOT

from interlink_lab.tools import hosts, lint

NPM = """#!/bin/sh
echo "$@" >> "$LOG"
while [ "$1" != --prefix ]; do shift; done
[ "$FAILS" ] && exit 9
mkdir -p "$2/node_modules/.bin"
for name in claude codex; do echo real > "$2/node_modules/.bin/$name"; done
"""


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "npm").write_text(NPM)
    (tmp_path / "bin" / "npm").chmod(0o755)
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
    assert len(calls) == len(rows) >= 4
    for call, (name, package, version) in zip(calls, rows, strict=True):
        assert call.endswith(f" {package}@{version}")
        assert hosts.program(name, version).read_text() == "real\n"
    assert {p.name for p in (npm.parent / "hosts").iterdir()} == {f"{n}-{v}" for n, _p, v in rows}


def test_a_failed_installation_leaves_nothing(npm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAILS", "1")
    with pytest.raises(SystemExit) as caught:
        install(monkeypatch, "claude@2.1.278")
    assert caught.value.code == 1 and list((npm.parent / "hosts").iterdir()) == []


def test_an_unknown_host_and_a_missing_npm_are_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for args, path, code, text in (
        (["emacs"], "/nowhere", 64, "emacs: not in host_tests/hosts.toml"),
        ([], "/nowhere", 1, "npm is missing: install Node.js"),
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


def test_lint_runs_every_check_and_fails_when_one_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(lint.CHECKS) == ["ruff check", "ruff format", "mypy", "floors", "hygiene"]
    for second, code, end in (("this", 0, "lint: 2 passed, 0 failed"), ("nowhere", 1, "lint: 1 passed, 1 failed")):
        monkeypatch.setattr(lint, "CHECKS", {"one": ["this"], "two": [second]})
        with pytest.raises(SystemExit) as caught:
            lint.main()
        assert caught.value.code == code and end in capsys.readouterr().out
