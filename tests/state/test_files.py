"""Durable files: old or new at every moment, private modes, clear refusals (T2, M29)."""

import errno
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.crash import crashes, unsynced

from interlink.errors import StateError
from interlink.state import files

OLD, NEW = b"old" * 2000, b"newer" * 2000
SETUP = "import os\nfrom interlink.state import files\n"
WRITE = "files.atomic_write(root + '/file', b'newer' * 2000)"


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def put_old(root: str) -> None:
    files.atomic_write(root + "/file", OLD)


# --- atomic replacement ---------------------------------------------------------------------------


@pytest.mark.req("T2")
def test_a_kill_at_any_call_leaves_old_or_new(tmp_path: Path) -> None:
    seen = set()
    for crash in crashes(tmp_path, WRITE, setup=SETUP, prepare=put_old):
        data = Path(crash.root, "file").read_bytes()
        assert data in (OLD, NEW), crash
        seen.add(data)
        left = [n for n in os.listdir(crash.root) if n != "file"]
        assert all(n.startswith(".file.") and n.endswith(".tmp") for n in left), crash
        assert mode(Path(crash.root, "file")) == 0o600, crash
        # The next start removes what the killed one left, and nothing else.
        assert files.remove_stale_temps(crash.root) == len(left)
        assert os.listdir(crash.root) == ["file"]
    assert seen == {OLD, NEW}


@pytest.mark.req("T2")
def test_a_first_write_is_nothing_or_whole(tmp_path: Path) -> None:
    for crash in crashes(tmp_path, WRITE, setup=SETUP):
        path = Path(crash.root, "file")
        assert not path.exists() or path.read_bytes() == NEW, crash


@pytest.mark.req("T2")
def test_a_power_cut_takes_nothing_from_a_durable_write(tmp_path: Path) -> None:
    done = list(crashes(tmp_path, WRITE, setup=SETUP, prepare=put_old, how=()))[-1]
    assert unsynced(done.steps) == []
    names = [step.name for step in done.steps]
    assert names.index("fsync") < names.index("replace") < len(names) - 1 - names[::-1].index("fsync")


def test_a_write_that_need_not_last_skips_the_syncs(tmp_path: Path) -> None:
    act = "files.atomic_write(root + '/file', b'x', durable=False)"
    done = list(crashes(tmp_path, act, setup=SETUP, how=()))[-1]
    assert [step.name for step in done.steps] == ["open", "write", "replace"]


@pytest.mark.req("T2")
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failed_write_says_so_and_keeps_the_old_content(tmp_path: Path, code: int) -> None:
    count = 0
    for crash in crashes(tmp_path, WRITE, setup=SETUP, prepare=put_old, how=("fail",), code=code):
        if crash.how == "done":
            continue
        count += 1
        assert crash.error is not None and crash.error.startswith("StateError: cannot write "), crash
        assert os.strerror(code) in crash.error and "/file" in crash.error
        assert os.listdir(crash.root) == ["file"], crash  # no temporary file is left behind
        renamed = crash.at > [s.name for s in crash.steps].index("replace") + 1
        assert Path(crash.root, "file").read_bytes() == (NEW if renamed else OLD), crash
    assert count >= 5


def test_short_writes_of_the_system_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:7]))
    files.atomic_write(str(tmp_path / "f"), b"0123456789" * 5)
    assert (tmp_path / "f").read_bytes() == b"0123456789" * 5


@pytest.mark.req("T2")
def test_the_temporary_file_lies_in_the_same_folder(tmp_path: Path) -> None:
    steps = list(crashes(tmp_path, WRITE, setup=SETUP, how=()))[-1].steps
    (replace,) = [s for s in steps if s.name == "replace"]
    assert os.path.dirname(replace.paths[0]) == os.path.dirname(replace.paths[1])


def test_a_link_is_replaced_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"theirs")
    (tmp_path / "f").symlink_to(outside)
    files.atomic_write(str(tmp_path / "f"), b"ours")
    assert outside.read_bytes() == b"theirs" and not (tmp_path / "f").is_symlink()


@pytest.mark.req("M29")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_new_files_and_folders_are_private_under_any_umask(tmp_path: Path, umask: int) -> None:
    root = str(tmp_path / "state" / "interlink")
    code = (
        "import os, sys\nfrom interlink.state import files\n"
        f"os.umask({umask})\nroot = files.ensure_root(sys.argv[1])\n"
        "files.ensure_dir(root + '/a/b', root)\nfiles.atomic_write(root + '/a/b/f', b'x')\n"
    )
    subprocess.run([sys.executable, "-c", code, root], check=True)
    assert [mode(root), mode(root + "/a"), mode(root + "/a/b")] == [0o700] * 3
    assert mode(root + "/a/b/f") == 0o600


# --- the root and its folders ---------------------------------------------------------------------


@pytest.mark.req("M29")
def test_a_wider_mode_is_tightened(state_root: str) -> None:
    os.chmod(state_root, 0o755)
    assert files.ensure_root(state_root) == state_root
    assert mode(state_root) == 0o700
    folder = state_root + "/inbox"
    os.mkdir(folder, 0o777)
    os.chmod(folder, 0o777)
    files.ensure_dir(folder, state_root)
    assert mode(folder) == 0o700
    Path(folder, "f").write_bytes(b"")
    os.chmod(folder + "/f", 0o666)
    assert files.tighten(folder + "/f") and mode(folder + "/f") == 0o600
    assert not files.tighten(folder + "/f")


@pytest.mark.req("M29")
def test_a_relative_root_is_refused() -> None:
    with pytest.raises(StateError, match="relative: set XDG_STATE_HOME to an absolute path"):
        files.ensure_root("state/interlink")


@pytest.mark.req("M29")
def test_a_root_of_another_user_is_refused(state_root: str) -> None:
    other = 0 if os.getuid() else 12345
    if other:
        os.chown(state_root, other, -1)
    with pytest.raises(StateError, match=f"belongs to user {other}"):
        files.ensure_root(state_root if other else "/")


def test_a_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    with pytest.raises(StateError, match="not a directory"):
        files.ensure_root(str(tmp_path / "f"))
    with pytest.raises(StateError, match=r"/f is not a directory: move it away"):
        files.ensure_root(str(tmp_path / "f" / "below"))


@pytest.mark.req("M29")
def test_a_link_out_of_the_root_is_refused(tmp_path: Path, state_root: str) -> None:
    os.mkdir(tmp_path / "elsewhere", 0o755)
    os.chmod(tmp_path / "elsewhere", 0o755)
    os.symlink(tmp_path / "elsewhere", state_root + "/mailbox")
    for path in ("/mailbox", "/mailbox/key"):
        with pytest.raises(StateError, match="leads out of the state root by a symbolic link"):
            files.ensure_dir(state_root + path, state_root)
    assert mode(tmp_path / "elsewhere") == 0o755  # what lies outside is not ours to change


def test_a_link_within_the_root_is_fine(state_root: str) -> None:
    os.mkdir(state_root + "/real", 0o700)
    os.symlink(state_root + "/real", state_root + "/mailbox")
    assert files.ensure_dir(state_root + "/mailbox", state_root) == state_root + "/mailbox"


def test_a_folder_is_synced_into_its_parent(tmp_path: Path) -> None:
    done = list(crashes(tmp_path, "files.ensure_dir(root + '/a/b', root)", setup=SETUP, how=()))[-1]
    assert unsynced(done.steps) == []
    assert [s.name for s in done.steps].count("mkdir") == 2


def test_a_file_in_the_place_of_a_folder_is_refused(state_root: str) -> None:
    Path(state_root, "mailbox").write_bytes(b"")
    with pytest.raises(StateError, match="not a directory: move it away"):
        files.ensure_dir(state_root + "/mailbox", state_root)


# --- reading --------------------------------------------------------------------------------------


def test_reading_what_is_there_and_what_is_not(tmp_path: Path) -> None:
    path = tmp_path / "f"
    assert files.read_bytes(str(path)) is None
    assert files.signature(str(path)) is None
    path.write_bytes(b"x" * 3_000_000)
    assert files.read_bytes(str(path)) == b"x" * 3_000_000
    assert files.read_bytes(str(path), limit=3_000_000) == b"x" * 3_000_000
    with pytest.raises(StateError, match="3000000 bytes, more than the 2999999"):
        files.read_bytes(str(path), limit=2_999_999)


def test_what_is_no_regular_file_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dir").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "dir")
    for name in ("pipe", "dir"):
        with pytest.raises(StateError, match="not a regular file: move it away"):
            files.read_bytes(str(tmp_path / name))
    with pytest.raises(StateError, match="cannot read"):
        files.read_bytes(str(tmp_path / "link"))
    with socket.socket(socket.AF_UNIX) as sock:
        os.chdir(tmp_path)  # a socket's path is short
        sock.bind("sock")
        with pytest.raises(StateError, match="cannot read"):
            files.read_bytes(str(tmp_path / "sock"))


def test_the_signature_changes_with_every_replacement_and_append(tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    seen = []
    for data in (b"a", b"b", b"b"):
        files.atomic_write(path, data)
        seen.append(files.signature(path))
    with open(path, "ab") as f:
        f.write(b"more")
    seen.append(files.signature(path))
    assert None not in seen and len(set(seen)) == 4
    assert files.signature(path) == seen[-1]


# --- what a crash left ----------------------------------------------------------------------------


def test_only_temporary_files_of_ended_processes_are_removed(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    names = [
        f".f.json.{gone.pid}.tmp",
        f".f.json.{os.getpid()}.tmp",
        ".f.json.x.tmp",
        "f.json",
        f"f.{gone.pid}.tmp",
    ]
    for name in names:
        (tmp_path / name).write_bytes(b"")
    assert files.remove_stale_temps(str(tmp_path)) == 1
    assert sorted(os.listdir(tmp_path)) == sorted(names[1:])
    assert files.remove_stale_temps(str(tmp_path / "missing")) == 0
