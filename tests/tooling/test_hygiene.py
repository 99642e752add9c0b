"""The repository check finds what must not be committed, and leaves the rest alone."""

import subprocess
from pathlib import Path

import pytest

from interlink_lab.tools import hygiene

# Put together here, so that this file passes the check itself.
HOME, ROOT, WORK = "/ho" + "me/", "/ro" + "ot/", "/wo" + "rk/"


@pytest.mark.parametrize(
    "line",
    [
        f"see {HOME}alice/notes",
        f'path = "{ROOT}.cache"',
        f"cd {WORK}main",
        "/Us" + "ers/bob/x",
        "https://py" + "pi.org/simple",
        "resolved: https://registry.npm" + "js.org/x",
        "pip install --index" + "-url http://x/y",
        "PIP --find" + "-links=/x",
        "-----BEGIN OPENSSH PRIVATE" + " KEY-----",
        "ghp_" + "a" * 36,
        "sk-ant" + "-api03xxxxxxxxxxxxxxxx",
    ],
)
def test_found(line: str) -> None:
    assert [number for number, _what in hygiene.scan(f"fine\n{line}\n")] == [2]
    assert hygiene.scan(f"{line}  # hygiene: ok") == []


@pytest.mark.parametrize(
    "line",
    [
        "~/.config",
        "$HOME/x",
        "tests/work/x",
        "homework/x",
        "http://127.0.0.1:9440/",
        "/tmp/x",
        "a/root/b",
        "sk-ant-dummy",
    ],
)
def test_left_alone(line: str) -> None:
    assert hygiene.scan(line) == []


def test_a_path_of_this_machine_is_found_wherever_it_is() -> None:
    assert hygiene.scan("x=/srv/me/project/y", ("/srv/me/project",)) == [
        (1, "a path of this machine: /srv/me/project")
    ]


def test_files(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "id.key").write_text("x")
    (tmp_path / "big.txt").write_text("x" * 1_100_000)
    (tmp_path / "link").symlink_to("/etc/hostname")
    (tmp_path / "fine").symlink_to("big.txt")
    (tmp_path / "note.md").write_text(f"one\n{HOME}bob/x\n")
    (tmp_path / ".gitignore").write_text("ignored\n")
    (tmp_path / "ignored").write_text(f"{HOME}bob/x\n")
    assert hygiene.check(tmp_path) == [
        "big.txt: 1100000 bytes; what a program makes is not for a repository",
        "id.key: a file of this name is not for a repository",
        "link: a link to an absolute path",
        f"note.md:2: an absolute path of one machine: {HOME}bob",
    ]
