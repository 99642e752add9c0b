"""The crash driver sees what a careless writer loses, and nothing wrong in a careful one."""

import os
from pathlib import Path

import pytest
from support.crash import crashes, unsynced

SETUP = "import os"
IN_PLACE = """
fd = os.open(root + "/file", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
os.write(fd, b"newer")
os.close(fd)
"""
BY_RENAME = """
fd = os.open(root + "/temp", os.O_WRONLY | os.O_CREAT, 0o600)
os.write(fd, b"newer")
os.fsync(fd)
os.close(fd)
os.replace(root + "/temp", root + "/file")
fd = os.open(root, os.O_RDONLY)
os.fsync(fd)
os.close(fd)
"""


def old(root: str) -> None:
    Path(root, "file").write_bytes(b"old")


def test_a_write_in_place_is_caught_torn_and_empty(tmp_path: Path) -> None:
    seen = {
        (c.how, c.at): Path(c.root, "file").read_bytes()
        for c in crashes(tmp_path, IN_PLACE, setup=SETUP, prepare=old)
    }
    assert seen == {
        ("before", 1): b"old",
        ("after", 1): b"",
        ("before", 2): b"",
        ("after", 2): b"newer",
        ("torn", 2): b"ne",
        ("done", 0): b"newer",
    }


def test_a_rename_is_old_or_new(tmp_path: Path) -> None:
    found = list(crashes(tmp_path, BY_RENAME, setup=SETUP, prepare=old))
    assert {Path(c.root, "file").read_bytes() for c in found} == {b"old", b"newer"}
    assert [s.name for s in found[-1].steps] == ["open", "write", "fsync", "replace", "open", "fsync"]
    assert str(found[0]) == f"before call 1 of 6, os.open({tmp_path / 'record' / 'temp'})"


def test_a_failing_call_goes_on(tmp_path: Path) -> None:
    act = "import os\ntry:\n    os.mkdir(root + '/a')\nexcept OSError:\n    pass\nos.mkdir(root + '/b')\n"
    first, second, _done = crashes(tmp_path, act, how=("fail",))
    assert (first.error, os.listdir(first.root)) == (None, ["b"])
    assert second.error is not None and "OSError" in second.error and "No space left" in second.error


def test_an_act_that_fails_by_itself_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="failed undisturbed: ZeroDivisionError"):
        list(crashes(tmp_path, "1 / 0"))


@pytest.mark.parametrize(
    ("leave_out", "complaint"),
    [
        ("", None),
        ("os.fsync(fd)\nos.close(fd)\nos.replace", "renamed before its bytes were synced"),
        ("os.fsync(fd)\nos.close(fd)\n$", "was not synced after"),
    ],
)
def test_unsynced_names_what_a_power_cut_takes(tmp_path: Path, leave_out: str, complaint: str | None) -> None:
    act = (BY_RENAME + "$").replace(leave_out, leave_out.replace("os.fsync(fd)\n", "")) if leave_out else BY_RENAME
    steps = list(crashes(tmp_path, act.rstrip("$"), setup=SETUP, prepare=old, how=()))[-1].steps
    found = unsynced(steps)
    assert (not found) if complaint is None else any(complaint in line for line in found)


def test_unsynced_knows_bytes_and_new_folders(tmp_path: Path) -> None:
    act = IN_PLACE + "os.mkdir(root + '/d')\n"
    found = unsynced(list(crashes(tmp_path, act, setup=SETUP, how=()))[-1].steps)
    root = tmp_path / "record"
    assert found == [
        f"the bytes of {root}/file were not synced",
        f"{root} was not synced after {root}/d",
        f"{root} was not synced after {root}/file",
    ]
