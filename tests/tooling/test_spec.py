"""`just spec` on small trees, and that the real table is whole."""

from pathlib import Path

import pytest
from support.programs import ROOT

from interlink_lab.tools import spec

COUNTS = {"G": 8, "M": 31, "S": 3, "C": 11, "N": 3, "X": 6, "L": 3, "T": 6, "B": 7, "V": 3, "H": 21}
TESTS = """
import pytest

@pytest.mark.req("M1", "M2")
def test_a(): ...

@pytest.mark.req("G1")
class TestB:
    @pytest.mark.req("M1")
    async def test_c(self): ...
    def helper(self): ...

@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.req("T1"))])
def test_d(x): ...

def test_without(): ...
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for folder in ("docs", "tests/a", "host_tests", "lab"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "docs" / "spec.toml").write_bytes((ROOT / "docs" / "spec.toml").read_bytes())
    (tmp_path / "tests" / "a" / "test_x.py").write_text(TESTS)
    return tmp_path


def row(tree: Path, one: str) -> str:
    text = (tree / "docs" / "spec.md").read_text("utf-8")
    return next(line for line in text.splitlines() if line.startswith(f"| {one} |")).rpartition("| ")[2]


def out_of(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def test_every_requirement_has_a_row() -> None:
    rows, table = spec.requirements()
    assert list(rows) == [f"{letter}{n}" for letter, count in COUNTS.items() for n in range(1, count + 1)]
    assert all(len(text) > 20 and "|" not in text for text in rows.values())
    assert len(spec.edges(table["states"])) == 2 + 4 + 16 + 5 + 2


def test_the_real_file_names_real_tests() -> None:
    rows, _table = spec.requirements()
    tests = spec.collect()
    assert len(tests) > 50 and spec.complaints(rows, tests) == []
    for test in tests:
        file, _, name = test.name.partition("::")
        assert f"def {name.rpartition('::')[2]}(" in (ROOT / file).read_text("utf-8")


def test_marks_become_the_column_of_tests(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert spec.main([], tree) == 0
    assert "docs/spec.md: renewed" in out_of(capsys)
    assert row(tree, "M1") == "`tests/a/test_x.py::TestB::test_c`<br>`tests/a/test_x.py::test_a` |"
    assert row(tree, "G1") == "`tests/a/test_x.py::TestB::test_c` |"
    assert row(tree, "T1") == "`tests/a/test_x.py::test_d` |"
    assert row(tree, "M3") == "none yet |"
    first = (tree / "docs" / "spec.md").read_bytes()
    assert spec.main([], tree) == 0 and (tree / "docs" / "spec.md").read_bytes() == first
    out = out_of(capsys)
    assert "renewed" not in out and "spec: 4 of 102 promises" in out and "without a test: G2, G3" in out


def test_marks_of_host_tests_and_modules_count(tree: Path) -> None:
    (tree / "host_tests" / "test_h.py").write_text(
        'import pytest\npytestmark = pytest.mark.req("V2")\ndef test_v(): ...\n'
    )
    assert spec.main([], tree) == 0
    assert row(tree, "V2") == "`host_tests/test_h.py::test_v` |"


def test_check_writes_nothing_and_fails_when_out_of_date(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert spec.main(["--check"], tree) == 1
    assert "out of date" in out_of(capsys) and not (tree / "docs" / "spec.md").exists()
    spec.main([], tree)
    assert spec.main(["--check"], tree) == 0
    (tree / "docs" / "spec.md").write_text("edited")
    assert spec.main(["--check"], tree) == 1 and (tree / "docs" / "spec.md").read_text() == "edited"


def test_require_names_what_lacks_a_test(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert spec.main(["--require", "M1,G1"], tree) == 0
    assert spec.main(["--require", "M1, M3,H21"], tree) == 1
    assert "required, but without a test: M3, H21" in out_of(capsys)
    with pytest.raises(SystemExit) as caught:
        spec.main(["--require", "Q7"], tree)
    assert caught.value.code == 64
    assert "no such id: Q7" in capsys.readouterr().err


def test_wrong_marks_are_named_and_are_no_failure(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "tests" / "test_bad.py").write_text(
        'import pytest\n@pytest.mark.req("M1", "M2", "M3", "M4")\ndef test_four(): ...\n'
        '@pytest.mark.req("Z9")\ndef test_unknown(): ...\n@pytest.mark.req(IDS)\ndef test_name(): ...\n'
    )
    assert spec.main([], tree) == 0
    out = out_of(capsys)
    assert "tests/test_bad.py::test_four: 4 ids, 3 at most" in out
    assert "tests/test_bad.py::test_unknown: no such id: Z9" in out
    assert "tests/test_bad.py::test_name: req(IDS) is no plain string" in out


def test_a_wrong_option_exits_64(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        spec.main(["--nope"])
    assert caught.value.code == 64 and capsys.readouterr().err.startswith("spec: unrecognized arguments: --nope")
