"""`just mutate` on a small project: killed, survived, hanging, broken, and that the copy is what runs."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.programs import ROOT

from interlink_lab.tools import mutate

PYPROJECT = """
[project.scripts]
interlink = "interlink.main:main"
[tool.pytest.ini_options]
addopts = "-q -ra --import-mode=importlib -p no:anyio -p no:hypothesispytest -p no:xdist -p no:timeout"
markers = ["req(*ids): ids"]
pythonpath = ["tests"]
"""
CONFTEST = """
from support import reqs

def pytest_addoption(parser):
    reqs.add_option(parser)

def pytest_collection_modifyitems(config, items):
    reqs.select(config, items)
"""
PRODUCT = "def add(a, b):\n    return a + b\n\n\ndef loop():\n    while False:\n        pass\n"
MAIN = "from interlink.product import add\n\n\ndef main():\n    print(add(2, 3))\n"
TESTS = """
import os, subprocess, sys, pytest
from interlink.product import add, loop

@pytest.mark.req("M1")
def test_add():
    assert add(1, 2) == 3

@pytest.mark.req("M2")
def test_programs_are_the_copy_too():
    out = [subprocess.run(c, capture_output=True, text=True, env=e).stdout for c, e in [
        (["interlink"], None),
        ([sys.executable, "-c", "from interlink.main import main; main()"], {}),
        ([sys.executable, "-I", "-c", "from interlink.main import main; main()"], {}),
    ]]
    assert out == ["5\\n"] * 3

@pytest.mark.req("M3")
def test_weak():
    assert add(1, 0) == 1

@pytest.mark.req("M4")
def test_loop():
    loop()

@pytest.mark.req("M5")
def test_fails_anyhow():
    assert False
"""
MUTANT = """
[[mutant]]
name = "{name}"
id = "{id}"
file = "interlink/product.py"
find = "{find}"
replace = "{replace}"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {
        "pyproject.toml": PYPROJECT,
        "interlink/__init__.py": "",
        "interlink/product.py": PRODUCT,
        "interlink/main.py": MAIN,
        "tests/test_it.py": TESTS,
        "tests/conftest.py": CONFTEST,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for name in ("docs/spec.toml", "lab/interlink_lab", "tests/support"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    (tmp_path / "tests" / "mutants").mkdir()
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


def seed(project: Path, *rows: tuple[str, str, str, str]) -> None:
    text = "".join(MUTANT.format(name=n, id=i, find=f, replace=r) for n, i, f, r in rows)
    (project / "tests" / "mutants" / "it.toml").write_text(text)


def test_verdicts(project: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutate, "EXTRA_S", 5)
    minus = ("return a + b", "return a - b")
    seed(
        project,
        ("plain", "M1", *minus),
        ("through-programs", "M2", *minus),
        ("unseen", "M3", *minus),
        ("hangs", "M4", "while False", "while True"),
        ("red-before", "M5", *minus),
        ("nobody-looks", "M6", *minus),
        ("does-not-load", "M1", "return a + b", "return a +"),
    )
    assert mutate.main([], project) == 1
    out = capfd.readouterr().out
    words = {
        line.split()[2]: line.split()[0] for line in out.splitlines() if line.split()[1:2] and line[9:10] == "M"
    }
    assert words == {
        "plain": "killed",
        "through-programs": "killed",
        "unseen": "SURVIVED",
        "hangs": "killed",
        "red-before": "error",
        "nobody-looks": "error",
        "does-not-load": "error",
    }, out
    assert "its tests hung" in out and "no test carries this id" in out and "its tests do not start" in out
    assert "its tests fail without it: tests/test_it.py::test_fails_anyhow" in out
    assert "mutate: 3 killed, 1 survived, 3 error, 0 skipped; 7 mutants of 6 ids" in out
    assert (project / "interlink" / "product.py").read_text() == PRODUCT


def test_the_time_for_all_is_bounded(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    seed(project, ("plain", "M1", "return a + b", "return a - b"))
    assert mutate.main(["--total", "0.000001"], project) == 1
    assert "the time of this run is over" in capfd.readouterr().out


def test_choice_and_list(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed(project, ("one", "M1", "a + b", "a - b"), ("two", "M2", "a + b", "a * b"))
    assert mutate.main(["--list", "--only", "M2"], project) == 0
    assert capsys.readouterr().out == "M2   two  interlink/product.py\n"
    for args in (["--only", "three"], ["--jobs", "0"], ["--jobs", "x"]):
        with pytest.raises(SystemExit) as caught:
            mutate.main(args, project)
        assert caught.value.code == 64


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (("m", "M1", "nowhere", "x"), "its text is 0 times in interlink/product.py, not once"),
        (("m", "M1", "def ", "x"), "its text is 2 times"),
        (("m", "M99", "a + b", "x"), "no such id: M99"),
        (("m", "M1", "a + b", "a + b"), "it changes nothing"),
    ],
)
def test_a_wrong_mutant_is_named(
    project: Path, capsys: pytest.CaptureFixture[str], row: tuple[str, str, str, str], complaint: str
) -> None:
    seed(project, row)
    with pytest.raises(SystemExit) as caught:
        mutate.main([], project)
    assert caught.value.code == 1 and complaint in capsys.readouterr().err


def test_the_real_mutants_fit_the_tree() -> None:
    mutants = mutate.load()
    assert len(mutants) >= 10
    for mutant in mutants:
        assert not os.path.isabs(mutant.file) and all(
            (ROOT / path.partition("::")[0]).exists() for path in mutant.tests
        )
