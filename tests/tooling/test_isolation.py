"""The rules of tests/conftest.py hold: a home of its own, the real one out of reach, marks checked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import isolation
from support.programs import ROOT, program, scripts
from support.reqs import is_id

from interlink.state import paths


def test_home_is_not_the_real_one(own_home: str, state_root: str) -> None:
    assert os.environ["HOME"] == own_home
    assert paths.state_root(os.environ) == state_root
    assert os.stat(state_root).st_mode & 0o777 == 0o700
    assert paths.config_dir(os.environ).startswith(own_home)


def test_no_setting_leaks_in_from_outside() -> None:
    leaked = [n for n in os.environ if n.startswith(isolation.FAMILIES) and n not in isolation.KEPT]
    assert sorted(leaked) == ["XDG_CONFIG_HOME", "XDG_STATE_HOME"]


def test_the_real_state_root_is_out_of_reach() -> None:
    roots = os.environ[isolation.REAL_HOMES].split(os.pathsep)
    assert any(root.endswith(os.path.join(".local", "state", "interlink")) for root in roots)
    for root in roots:
        with pytest.raises(PermissionError, match="real state"):
            open(os.path.join(root, "x"), "rb")
        with pytest.raises(PermissionError, match="real state"):
            os.mkdir(root)


def test_children_run_this_tree() -> None:
    code = "import interlink, interlink_lab; print(interlink.__file__); print(interlink_lab.__file__)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/").stdout
    for line in out.splitlines():
        assert Path(line).is_relative_to(ROOT)


def test_program_names_a_module_that_runs() -> None:
    assert {"interlink", "interlink-mcp", "interlink-bus", "interlink-keygen", "interlinked"} <= set(scripts())
    with pytest.raises(LookupError, match="no program 'interlink-nope'"):
        program("interlink-nope")


@pytest.mark.parametrize("text", ["G1", "M31", "H21", "V3"])
def test_known_ids(text: str) -> None:
    assert is_id(text)


@pytest.mark.parametrize("text", ["G0", "G9", "M32", "Z1", "M01", "m1", "", "M", "M1 ", None, 4])
def test_unknown_ids(text: object) -> None:
    assert not is_id(text)


def pytest_run(folder: Path, body: str, *args: str) -> subprocess.CompletedProcess[str]:
    """pytest with this conftest on one test file of its own."""
    (folder / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text("utf-8"))
    (folder / "test_it.py").write_text("import pytest\n" + body)
    (folder / "pytest.ini").write_text(
        f"[pytest]\nmarkers = req(*ids): ids\npythonpath = {ROOT / 'tests'}\naddopts = -q -p no:cacheprovider\n"
    )
    return subprocess.run(
        [sys.executable, "-m", "pytest", str(folder), *args],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=100,
    )


MARKED = """
@pytest.mark.req("M4", "M6")
def test_a(): pass

@pytest.mark.req("G1")
def test_b(): pass

def test_c(): pass
"""


def test_req_selects_by_id(tmp_path: Path) -> None:
    assert "3 passed" in pytest_run(tmp_path, MARKED).stdout
    assert "1 passed, 2 deselected" in pytest_run(tmp_path, MARKED, "--req", "M6").stdout
    assert "2 passed, 1 deselected" in pytest_run(tmp_path, MARKED, "--req", "M6,G1").stdout
    nothing = pytest_run(tmp_path, MARKED, "--req", "T1")
    assert nothing.returncode == 5 and "3 deselected" in nothing.stdout


def test_wrong_marks_are_refused(tmp_path: Path) -> None:
    four = pytest_run(tmp_path, '@pytest.mark.req("M1", "M2", "M3", "M4")\ndef test_x(): pass\n')
    assert four.returncode == 4 and "4 requirement ids, 3 at most" in four.stderr + four.stdout
    unknown = pytest_run(tmp_path, '@pytest.mark.req("M99")\ndef test_x(): pass\n')
    assert unknown.returncode == 4 and "no such requirement: M99" in unknown.stderr + unknown.stdout
    asked = pytest_run(tmp_path, MARKED, "--req", "Q1")
    assert asked.returncode == 4 and "--req: no such requirement: Q1" in asked.stderr + asked.stdout
