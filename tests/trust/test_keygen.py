"""`interlink-keygen` as a process: what it writes, prints and refuses, and with which exit code (B1)."""

import os
import resource
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.keys import ALICE
from support.programs import program, pythonpath

from interlink.state import files
from interlink.trust.identity import check_public_key, load_key, write_key

Done = subprocess.CompletedProcess[str]


def keygen(*args: str | Path, **popen: object) -> Done:
    argv = [*program("interlink-keygen"), *map(str, args)]
    options: dict[str, object] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **popen}
    return subprocess.run(argv, timeout=100, **options)  # type: ignore[call-overload,no-any-return]


def one_line(done: Done) -> str:
    """What a refused or failed run said: one line on stderr, nothing on stdout."""
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("interlink-keygen: "), done.stderr
    return done.stderr


@pytest.mark.req("B1")
@pytest.mark.parametrize("equals", [False, True])
def test_makes_a_key(tmp_path: Path, equals: bool) -> None:
    path = tmp_path / "new" / "deep" / "id.key"
    done = keygen(f"--out={path}", umask=0) if equals else keygen("--out", path, umask=0)
    assert done.returncode == 0
    public = done.stdout.removesuffix("\n")
    assert check_public_key(public) == load_key(str(path)).public_bytes
    assert public[:8] in done.stderr and str(path) in done.stderr and done.stderr.count("\n") == 1
    seed = path.read_text().strip()
    assert seed not in done.stdout + done.stderr and path.read_text() == seed + "\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for folder in (path.parent, path.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [p.name for p in path.parent.iterdir()] == ["id.key"]


@pytest.mark.req("B1")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o277])
def test_the_mode_is_0600_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    assert keygen("--out", tmp_path / "id.key", umask=umask).returncode == 0
    assert stat.S_IMODE((tmp_path / "id.key").stat().st_mode) == 0o600


@pytest.mark.req("B1", "T1")
def test_the_default_place(own_home: str) -> None:
    done = keygen()
    assert done.returncode == 0
    assert load_key(f"{own_home}/config/interlink/id.key").public == done.stdout.strip()
    environ = {name: value for name, value in os.environ.items() if name != "XDG_CONFIG_HOME"}
    done = keygen(env=environ)
    assert load_key(f"{own_home}/.config/interlink/id.key").public == done.stdout.strip()


@pytest.mark.req("B1")
def test_refuses_to_overwrite_without_force(tmp_path: Path) -> None:
    path = tmp_path / "id.key"
    first = keygen("--out", path)
    before = path.read_bytes()
    done = keygen("--out", path)
    assert done.returncode == 1 and "exists and is kept" in one_line(done) and "--force" in done.stderr
    assert path.read_bytes() == before
    forced = keygen("--out", path, "--force")
    assert forced.returncode == 0 and forced.stdout != first.stdout
    assert load_key(str(path)).public == forced.stdout.strip()
    assert [p.name for p in tmp_path.iterdir()] == ["id.key"]


@pytest.mark.req("B1")
def test_of_many_at_once_one_wins(tmp_path: Path) -> None:
    path = tmp_path / "id.key"
    argv = [*program("interlink-keygen"), "--out", str(path)]
    running = [
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for _ in range(6)
    ]
    found = [(child.communicate(timeout=100)[0], child.returncode) for child in running]
    winners = [out for out, code in found if code == 0]
    assert len(winners) == 1 and winners[0].strip() == load_key(str(path)).public
    assert [one for one in found if one[1] != 0] == [("", 1)] * 5


@pytest.mark.req("B1")
@pytest.mark.parametrize("kind", ["link", "dangling", "folder"])
def test_whatever_is_there_is_kept(tmp_path: Path, kind: str) -> None:
    path, other = tmp_path / "id.key", tmp_path / "other"
    if kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(other)
        if kind == "link":
            other.write_text("mine")
    done = keygen("--out", path)
    assert done.returncode == 1 and "exists and is kept" in one_line(done)
    assert path.is_dir() if kind == "folder" else path.is_symlink()
    assert other.exists() == (kind == "link")


@pytest.mark.req("B1")
def test_show(tmp_path: Path) -> None:
    path = tmp_path / "id.key"
    write_key(str(path), ALICE)
    before = files.signature(str(path))
    done = keygen("--show", "--out", path)
    assert (done.returncode, done.stdout, done.stderr) == (0, ALICE.public + "\n", "")
    assert files.signature(str(path)) == before
    path.chmod(0o644)
    done = keygen("--show", f"--out={path}")
    assert done.returncode == 1 and "chmod 600" in one_line(done)
    done = keygen("--show", "--out", tmp_path / "none")
    assert done.returncode == 1 and "no key at" in one_line(done)
    assert not (tmp_path / "none").exists()


WRONG: list[list[str]] = [
    ["--nope"],
    ["x"],
    ["--out"],
    ["--out="],
    ["--out", ""],
    ["--out", "--force"],
    ["--out", "a", "--out", "b"],
    ["--force=1"],
    ["--show", "--force"],
    ["--show=x"],
    ["-f"],
    ["--"],
    ["\udcff"],
]


@pytest.mark.req("B1", "H1")
@pytest.mark.parametrize("args", WRONG, ids=lambda a: " ".join(a).encode("ascii", "replace").decode())
def test_a_usage_error_is_64_and_writes_nothing(tmp_path: Path, own_home: str, args: list[str]) -> None:
    done = keygen(*args, cwd=tmp_path)
    assert done.returncode == 64
    one_line(done)
    assert list(tmp_path.iterdir()) == [] and list(Path(own_home).iterdir()) == []


@pytest.mark.parametrize("args", [["--help"], ["-h"], ["--out", "x", "--help"], ["--version"]])
def test_help_and_version(tmp_path: Path, args: list[str]) -> None:
    done = keygen(*args, cwd=tmp_path)
    assert done.returncode == 0 and "interlink-keygen" in done.stdout and done.stderr == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.req("B1", "H1")
@pytest.mark.parametrize("show", [False, True])
def test_a_public_key_that_cannot_be_printed_is_a_fault(tmp_path: Path, show: bool) -> None:
    path = tmp_path / "id.key"
    if show:
        write_key(str(path), ALICE)
    with open("/dev/full", "wb") as full:
        done = keygen("--out", path, *(["--show"] if show else []), stdout=full)
    assert done.returncode == 1 and "No space left" in done.stderr and "--show" in done.stderr
    assert load_key(str(path))


@pytest.mark.req("B1", "H1")
@pytest.mark.parametrize("closed", [0, 1, 2])
def test_with_a_closed_standard_stream(tmp_path: Path, closed: int) -> None:
    """The key never ends up where a stream was, and only a missing stdout is a fault."""
    path = tmp_path / "id.key"
    done = keygen("--out", path, preexec_fn=lambda: os.close(closed))
    assert done.returncode == (1 if closed == 1 else 0)
    assert path.read_text().strip() not in done.stdout + done.stderr
    assert path.read_text() == load_key(str(path)).seed_text() + "\n"


@pytest.mark.req("B1", "H1")
def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    def no_bytes() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    done = keygen("--out", tmp_path / "id.key", preexec_fn=no_bytes)
    assert done.returncode == 1 and "cannot write the key" in one_line(done)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach, with a read-only folder in it."""
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        base.chmod(0o755)
        (base / "closed").mkdir()
        yield base
        (base / "closed").chmod(0o700)


# Everything is imported before the rights go: another user may not reach the interpreter.
WITHOUT_RIGHTS = """
import os, sys
from interlink.cli import keygen
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.exit(keygen.main())
"""


@pytest.mark.req("B1", "H1")
@pytest.mark.parametrize("deeper", ["", "new/"])
def test_no_permission(open_folder: Path, deeper: str) -> None:
    (open_folder / "closed").chmod(0o555)
    path = open_folder / "closed" / f"{deeper}id.key"
    argv = [sys.executable, "-c", WITHOUT_RIGHTS, "--out", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1 and "Permission denied" in one_line(done)
    assert list((open_folder / "closed").iterdir()) == []


@pytest.mark.req("B1")
def test_it_starts_light(tmp_path: Path) -> None:
    """No MCP SDK, and nothing else that takes long to import."""
    code = (
        "import sys\nfrom interlink.cli import keygen\nsys.argv = ['interlink-keygen', '--out', sys.argv[1]]\n"
        "assert keygen.main() == 0\nprint(*sorted(m.partition('.')[0] for m in sys.modules))"
    )
    environ = {"PYTHONPATH": pythonpath({}), "HOME": str(tmp_path)}
    argv = [sys.executable, "-c", code, str(tmp_path / "id.key")]
    done = subprocess.run(argv, capture_output=True, text=True, env=environ, check=True, timeout=100)
    loaded = set(done.stdout.split("\n")[1].split())
    assert "cryptography" in loaded
    heavy = {
        "mcp",
        "msgspec",
        "filelock",
        "click",
        "asyncio",
        "json",
        "pydantic",
        "argparse",
        "tempfile",
        "logging",
    }
    assert not loaded & heavy
