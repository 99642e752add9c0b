"""The plugin's hook commands, run as the host runs them: by `/bin/sh -c`, whatever is broken behind them (H1)."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.listener import notice, put
from support.setup import hook_commands, install

PAYLOAD = b'{"session_id":"s1","hook_event_name":"Stop"}\n'


def run(command: str, **env: str) -> tuple[int, str]:
    """(exit code, standard error) of one hook."""
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        input=PAYLOAD,
        env={**os.environ, **env},
        capture_output=True,
        start_new_session=True,
        timeout=60,
    )
    return done.returncode, done.stderr.decode()


def script(path: Path, text: str) -> None:
    path.unlink()
    path.write_text(text)
    path.chmod(0o755)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


GONE = "/nowhere/bin/python"
BROKEN: dict[str, tuple[Callable[[Path], object], set[int]]] = {
    "missing": (lambda path: path.unlink(), {127}),
    "folder missing": (lambda path: (path.unlink(), path.parent.rmdir()), {127}),
    "not executable": (lambda path: path.chmod(0o644), {126}),
    "a folder": (_folder, {126}),
    "interpreter missing": (lambda path: script(path, f"#!{GONE}\n"), {126, 127}),
    "interpreter missing, long path": (
        lambda path: script(path, f"#!/bin/sh\n'''exec' \"{GONE}\" \"$0\" \"$@\"\n' '''\nimport sys\n"),
        {126, 127},
    ),
    "package missing": (lambda path: script(path, f"#!{sys.executable}\nimport interlink_gone\n"), {1}),
    "program cut short": (lambda path: script(path, f"#!{sys.executable}\nimport sys\nsys.exit(\n"), {1}),
    "empty": (lambda path: script(path, ""), {0}),
}


@pytest.mark.req("H1")
@pytest.mark.parametrize("name", list(BROKEN))
def test_a_broken_installation_never_wakes_the_model(name: str, tmp_path: Path) -> None:
    broken, expected = BROKEN[name]
    program = install(tmp_path / "a b")
    commands = set(hook_commands(program).values())
    assert len(commands) == 2
    broken(program)
    assert {run(command)[0] for command in commands} <= expected


@pytest.mark.req("H1")
@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"XDG_STATE_HOME": "relative"}, 1),
        ({"XDG_STATE_HOME": "/dev/null"}, 1),
        ({"INTERLINK_SESSION": "a/b"}, 64),
        ({"INTERLINK_SESSION": ".."}, 64),
    ],
)
def test_a_broken_environment_never_wakes_the_model(env: dict[str, str], expected: int, tmp_path: Path) -> None:
    commands = hook_commands(install(tmp_path))
    assert run(commands["Stop"], **env)[0] == expected
    assert run(commands["PostToolUse"], **env)[0] == 0


@pytest.mark.req("H1")
def test_an_argument_that_nobody_knows_never_wakes_the_model(tmp_path: Path) -> None:
    command = hook_commands(install(tmp_path))["Stop"]
    assert [run(f"{command} {more}")[0] for more in ("--nope", "x", "--session", "--renew-after-secs 0")] == [
        64
    ] * 4


@pytest.mark.req("C1", "C2")
@pytest.mark.parametrize("event", ["SessionStart", "Stop", "StopFailure"])
def test_each_of_the_three_hooks_wakes_with_a_notice(event: str, tmp_path: Path) -> None:
    program = install(tmp_path / 'it\'s; $HOME `x` & "y"\n*')
    put(notice())
    code, said = run(hook_commands(program)[event])
    assert code == 2 and said.startswith("[Interlink inbox notice]")


@pytest.mark.req("C1", "C5")
def test_the_state_root_that_setup_wrote_down_is_the_hooks(tmp_path: Path) -> None:
    put(notice())
    root = os.environ.pop("XDG_STATE_HOME")
    try:
        commands = hook_commands(install(tmp_path), state_home=root)
        code, said = run(commands["Stop"])
    finally:
        os.environ["XDG_STATE_HOME"] = root
    assert code == 2 and said.startswith("[Interlink inbox notice]")
