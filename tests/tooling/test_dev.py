"""./dev on fresh checkouts: a small project that needs no network stands in for this one; pip and venv are real.

Few tests with many steps: each environment that is made costs seconds.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.programs import ROOT

# A build backend within the project: it makes a wheel whose script `just` prints its arguments.
BACKEND = """
import os, time, zipfile

def get_requires_for_build_editable(config=None):
    return []

def build_editable(folder, config=None, metadata=None):
    open("started", "w").close()
    while os.path.exists("hold"):
        time.sleep(0.02)
    info = "toy-1.dist-info/"
    with zipfile.ZipFile(os.path.join(folder, "toy-1-py3-none-any.whl"), "w") as z:
        z.writestr("toy.py", "import os, sys\\ndef main(): print(os.getcwd(), sys.argv[1:])\\n")
        z.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: toy\\nVersion: 1\\nProvides-Extra: dev\\n")
        z.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        z.writestr(info + "entry_points.txt", "[console_scripts]\\njust = toy:main\\n")
        z.writestr(info + "RECORD", "")
    return "toy-1-py3-none-any.whl"
"""
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "toy"
version = "1"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "a check out"  # a space, as people have them
    (root / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / "dev", root / "dev")
    shutil.copy(ROOT / ".ci" / "make_venv.py", root / ".ci")
    (root / ".ci" / "constraints.txt").write_text("")
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / "backend.py").write_text(BACKEND)
    (root / "justfile").write_text("")
    return root


def environment(**more: str) -> dict[str, str]:
    base = {"PATH": "/usr/bin:/bin", "HOME": os.environ["HOME"], "PYTHON": sys.executable, "PIP_NO_INDEX": "1"}
    return {**base, **more}


def start(root: Path, *args: str, cwd: Path | None = None, **more: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [str(root / "dev"), *args],
        cwd=cwd or root,
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(root: Path, *args: str, cwd: Path | None = None, **more: str) -> tuple[int, str, str]:
    child = start(root, *args, cwd=cwd, **more)
    out, err = child.communicate(timeout=100)
    return child.returncode, out, err


def wait_for(path: Path) -> None:
    while not path.exists():  # the test's own time limit ends this
        time.sleep(0.02)


def said(root: Path, *args: str) -> str:
    shown = ["--justfile", f"{root}/justfile", "--working-directory", str(root), *args]
    return f"{shown}\n"


def test_one_environment_for_runs_at_the_same_time(checkout: Path, tmp_path: Path) -> None:
    (checkout / "hold").touch()
    first = start(checkout, "one")
    wait_for(checkout / "started")
    second = start(checkout, "two")
    assert second.stderr is not None
    assert second.stderr.readline() == "dev: another ./dev is making .venv: waiting for it\n"
    (checkout / "hold").unlink()
    out, err = first.communicate(timeout=100)
    assert first.returncode == 0 and out.endswith(said(checkout, "one"))
    assert err.startswith("dev: making .venv with Python 3.") and err.count("\n") == 1
    out, err = second.communicate(timeout=100)
    assert (second.returncode, err) == (0, "") and out.endswith(said(checkout, "two"))

    # Up to date: not a word, arguments as they are, from any folder.
    odd = ["test", "-k", "a or b", "", "$HOME", "*", "--x=ü"]
    code, out, err = run(checkout, *odd, cwd=tmp_path)
    assert (code, err) == (0, "") and out == f"{tmp_path} {said(checkout, *odd)}"
    assert run(checkout)[1].endswith(said(checkout, "--list"))

    # What it is made from changed: updated in place.
    (checkout / ".ci" / "constraints.txt").write_text("# newer\n")
    code, _out, err = run(checkout, "x")
    assert code == 0 and "updating .venv" in err
    assert run(checkout, "x")[2] == ""

    # Moved: its scripts name the old place, so it has to be made anew.
    check = [checkout / ".venv" / "bin" / "python", "-I", "-S", checkout / ".ci" / "make_venv.py", "check"]
    assert subprocess.run(check).returncode == 0
    moved = tmp_path / "moved"
    checkout.rename(moved)
    check = [moved / ".venv" / "bin" / "python", "-I", "-S", moved / ".ci" / "make_venv.py", "check"]
    assert subprocess.run(check).returncode == 1


def processes_of(root: Path, name: str) -> list[int]:
    """Processes that have this argument, a path below the checkout."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                arguments = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue  # it ended meanwhile
            if f"{root}/{name}".encode() in arguments:
                found.append(int(folder.name))
    return found


def test_an_interrupted_installation_is_made_anew(checkout: Path) -> None:
    (checkout / "hold").touch()
    first = start(checkout, "one")
    wait_for(checkout / "started")
    (maker,) = processes_of(checkout, ".ci/make_venv.py")
    os.kill(maker, signal.SIGKILL)
    assert first.wait(timeout=100) != 0

    # Its installer lives on and would write into the same folder: the next run waits for its end.
    second = start(checkout, "two")
    assert second.stderr is not None and "waiting for it" in second.stderr.readline()
    (checkout / "backend.py").write_text("def build_editable(*a, **k): raise SystemExit('no luck today')\n")
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate(timeout=100)

    # It makes all anew, and when that fails it says why and leaves no stamp: the next one would try again.
    out, err = second.communicate(timeout=100)
    assert (second.returncode, out) == (1, "")
    assert "making .venv" in err and "no luck today" in err and "mend it and run ./dev again" in err
    assert not (checkout / ".venv" / ".stamp").exists()


def test_no_python_or_an_old_one_is_said_clearly(checkout: Path, tmp_path: Path) -> None:
    old = tmp_path / "python-old"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    for name in ("/nowhere/python", str(old)):
        code, out, err = run(checkout, "one", PYTHON=name)
        assert (code, out) == (1, "")
        assert err.startswith("dev: no Python 3.11 or newer") and "apt-get install python3 python3-venv" in err


def test_a_python_without_venv_names_the_package(checkout: Path, tmp_path: Path) -> None:
    bare = tmp_path / "python-bare"
    block = "import runpy, sys; sys.modules['ensurepip'] = None; sys.argv = sys.argv[2:]; "
    block += "runpy.run_path(sys.argv[0], run_name='__main__')"
    real = sys.executable
    bare.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exec "{real}" "$@"\nexec "{real}" -c "{block}" "$@"\n')
    bare.chmod(0o755)
    code, out, err = run(checkout, "one", PYTHON=str(bare))
    assert (code, out) == (1, "")
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    assert f"install {name} (apt-get install {name})" in err
