"""The allowlist file as it is read: live, failing closed, through links (G7)."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from support.keys import ALICE, BOB, CAROL, identity
from support.peers import ME, ZERO_KEY, entry, peers_file, write

from interlink.errors import SetupError, StateError
from interlink.state.locks import Lock
from interlink.trust import peers as peers_module
from interlink.trust.peers import Peers


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "peers.json"


@pytest.mark.req("B6", "B7")
def test_reads_the_file(path: Path) -> None:
    write(path, {"bob": {"key": BOB.public, "added": 5}, "alice": entry()})
    found = peers_file(path).current()
    assert found == Peers({"bob": BOB.public, "alice": ALICE.public}, {BOB.public: "bob", ALICE.public: "alice"})
    assert list(found.by_name) == ["bob", "alice"]


@pytest.mark.req("G7")
@pytest.mark.parametrize("text", ["{}", " {\n}\n", "\ufeff{}"])
def test_a_file_without_peers(path: Path, text: str) -> None:
    write(path, text)
    assert peers_file(path).current() == Peers({}, {})


@pytest.mark.req("G7")
def test_no_file_at_first_is_no_peers(path: Path) -> None:
    peers = peers_file(path.parent / "missing" / "peers.json")
    assert peers.current() == Peers({}, {}) and peers.problem == ""
    assert not (path.parent / "missing").exists()


# What makes the file a fault -> what the error says. Each names the entry where there is one.
FAULTS: dict[str, tuple[str, str]] = {
    "empty": ("", "empty"),
    "blank": (" \n", "empty"),
    "cut": ('{"alice": {"key"', "not JSON"),
    "more behind": ("{} {}", "not JSON"),
    "a list": ("[]", "not an object"),
    "a string": ('"alice"', "not an object"),
    "null": ("null", "not an object"),
    "deep": ("[" * 100_000, "recursion"),
    "deep in an entry": (
        json.dumps({"alice": entry()})[:-2] + ', "x": ' + "[" * 100_000 + "]" * 100_000 + "}}",
        "recursion",
    ),
    "NaN": ('{"alice": {"key": "x", "n": NaN}}', "NaN"),
    "1e400": ('{"alice": {"key": "x", "n": 1e400}}', "1e400 is too large"),
    "5000 digits": ('{"alice": {"key": "x", "n": ' + "9" * 5000 + "}}", "digit"),
    "a name twice": (
        json.dumps({"alice": entry()})[:-1] + ', "alice": ' + json.dumps(entry(BOB)) + "}",
        'the entry "alice" is there twice',
    ),
    "key twice": (
        f'{{"alice": {{"key": "{ALICE.public}", "key": "{BOB.public}"}}}}',
        'the entry "alice": the member "key" is there twice',
    ),
    "twice, deep down": (
        f'{{"alice": {{"key": "{ALICE.public}", "x": [{{"y": 1, "y": 2}}]}}}}',
        'the entry "alice": the member "x": the member "y" is there twice',
    ),
    "one key, two names": (json.dumps({"alice": entry(), "bob": entry()}), 'entries "alice" and "bob"'),
    "own key twice": (json.dumps({"a": entry(ME), "b": entry(ME)}), 'entries "a" and "b"'),
    "key of small order": (json.dumps({"bob": entry(ZERO_KEY)}), 'entry "bob".*small order'),
    "key no point": (json.dumps({"bob": entry("A" * 40 + "BBA")}), 'entry "bob".*'),
    "key too short": (json.dumps({"bob": entry(BOB.public[:-1])}), 'entry "bob".*'),
    "key padded": (json.dumps({"bob": entry(BOB.public + "=")}), 'entry "bob".*'),
    "no key": (json.dumps({"bob": {"Key": BOB.public}}), 'entry "bob".*form'),
    "key null": (json.dumps({"bob": {"key": None}}), 'entry "bob".*form'),
    "key a list": (json.dumps({"bob": {"key": [BOB.public]}}), 'entry "bob".*form'),
    "entry a string": (json.dumps({"bob": BOB.public}), 'entry "bob".*form'),
    "name self": (json.dumps({"self": entry()}), 'entry "self"'),
    "name local": (json.dumps({"local:ci": entry()}), 'entry "local:ci"'),
    "name empty": (json.dumps({"": entry()}), 'entry ""'),
    "name with a line end": (json.dumps({"a\nb": entry()}), 'entry "a b"'),
    "name too long": (json.dumps({"x" * 33: entry()}), "entry"),
}


@pytest.mark.req("G7")
@pytest.mark.parametrize("what", FAULTS)
def test_a_fault_fails_closed_and_is_mended_live(path: Path, what: str) -> None:
    """Nobody is admitted, the error names file and entry on one line; a mended file is in force at once."""
    text, says = FAULTS[what]
    write(path, {"carol": entry(CAROL)})
    peers = peers_file(path)
    assert peers.current().by_name == {"carol": CAROL.public}
    write(path, text)
    for _ in range(2):
        with pytest.raises(SetupError, match=says) as caught:
            peers.current()
        assert str(path) in str(caught.value) and "\n" not in str(caught.value)
        assert peers.problem == str(caught.value)
    assert not any(who.public in str(caught.value) for who in (ALICE, BOB, CAROL))
    fresh = peers_file(path)
    with pytest.raises(SetupError, match=says):
        fresh.current()
    with pytest.raises(SetupError):
        fresh.resolve("carol")
    with pytest.raises(SetupError):
        fresh.add("dave", identity(4).public)
    assert path.read_text("utf-8") == text  # never overwritten
    write(path, {"bob": entry(BOB)})
    assert peers.current().by_name == fresh.current().by_name == {"bob": BOB.public}
    assert peers.problem == ""


@pytest.mark.req("G7")
def test_not_utf8(path: Path) -> None:
    path.write_bytes(b'{"caf\xe9": {}}')
    with pytest.raises(SetupError, match="not UTF-8"):
        peers_file(path).current()


@pytest.mark.req("G7")
def test_a_directory_or_fifo_in_its_place(path: Path) -> None:
    peers = peers_file(path)
    path.mkdir()
    with pytest.raises(SetupError, match="not a regular file"):
        peers.current()
    path.rmdir()
    os.mkfifo(path)
    with pytest.raises(SetupError, match="not a regular file"):  # does not hang
        peers.current()


@pytest.mark.req("G7")
def test_too_large(path: Path) -> None:
    write(path, {"bob": {"key": BOB.public, "x": "y" * 2000}})
    with pytest.raises(SetupError, match=r"more than the 1024"):
        peers_file(path, peers_max_bytes=1024).current()


@pytest.mark.req("G7")
def test_a_path_through_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(SetupError, match="Not a directory"):
        peers_file(tmp_path / "file" / "peers.json").current()


UNREADABLE = """
import os, sys
from interlink.settings import Settings
from interlink.trust.peers import PeersFile
path, own = sys.argv[1:]
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
os.mkdir(path)
peers = PeersFile(path + "/peers.json", own, Settings())
open(path + "/peers.json", "w").write("{}")
for mode in (0o000, 0o600):
    os.chmod(path + "/peers.json", mode)
    print(peers.problem)
os.chmod(path, 0o000)
print(peers.problem)
os.chmod(path, 0o700)
print(peers.problem)
"""


@pytest.mark.req("G7")
def test_unreadable_until_it_is_readable() -> None:
    """Permissions change neither size nor time of the file: a fault of reading is never remembered."""
    with tempfile.TemporaryDirectory() as base:  # not tmp_path: other users cannot reach that
        os.chmod(base, 0o777)
        argv = [sys.executable, "-c", UNREADABLE, os.path.join(base, "d"), ME.public]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    first, second, third, fourth = done.stdout.split("\n")[:4]
    assert "Permission denied" in first and second == ""
    assert "Permission denied" in third and fourth == ""


# --- live reload ---


@pytest.mark.req("G7")
def test_a_change_is_seen_at_once(path: Path) -> None:
    """Also one in place that leaves size and time as they were: two writes in one tick of the clock."""
    peers = peers_file(path)
    tick = time.time_ns() + 10**12  # ahead, so that this test may take its time
    for who in (ALICE, BOB, CAROL):
        write(path, {"peer": entry(who)})
        os.utime(path, ns=(tick, tick))
        assert peers.current().by_name == {"peer": who.public}
        assert peers.current().by_key == {who.public: "peer"}


def age(path: Path, seconds: int = 60) -> None:
    """Make the file look untouched for a while."""
    then = path.stat().st_mtime_ns - seconds * 10**9
    os.utime(path, ns=(then, then))


@pytest.mark.req("G7")
def test_an_unchanged_file_costs_one_stat(path: Path) -> None:
    write(path, {"alice": entry()})
    age(path)
    peers = peers_file(path)
    first = peers.current()
    seen: list[str] = []

    def watch(event: str, args: tuple[object, ...]) -> None:
        if event == "open" and str(path) in str(args[0]):
            seen.append(str(args[0]))

    sys.addaudithook(watch)
    assert peers.current() is first and seen == []
    write(path, {"bob": entry(BOB)})
    assert peers.current().by_name == {"bob": BOB.public} and seen


@pytest.mark.req("G7")
def test_a_file_that_vanishes_is_a_fault_until_it_is_back(path: Path) -> None:
    peers = peers_file(path)
    assert peers.problem == ""
    write(path, {"alice": entry()})
    age(path)
    assert peers.current().by_name
    aside = path.rename(path.with_name("aside"))
    with pytest.raises(SetupError, match=r"was there and is gone.*write \{\}"):
        peers.current()
    with pytest.raises(SetupError, match="was there and is gone"):
        peers.add("bob", BOB.public)
    assert not path.exists()
    aside.rename(path)
    assert peers.current().by_name == {"alice": ALICE.public}
    path.unlink()
    assert peers.problem
    write(path, "{}")
    assert peers.problem == "" and peers.current() == Peers({}, {})
    # A program that starts without the file has no peers, and can add one.
    path.unlink()
    assert peers_file(path).current() == Peers({}, {})
    peers_file(path).add("bob", BOB.public)
    assert peers.current().by_name == {"bob": BOB.public}


@pytest.mark.req("G7")
def test_changes_of_state_are_logged_once(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Not the first look (its caller reports it), then each change, without a key."""
    write(path, {"bob": entry(ZERO_KEY)})
    peers = peers_file(path)
    assert peers.problem and capfd.readouterr().err == ""
    write(path, {"bob": entry(BOB)})
    for _ in range(3):
        peers.current()
    assert capfd.readouterr().err.count("event=peers_mended") == 1
    write(path, {"bob": entry(BOB), "bobby": entry(BOB)})
    for _ in range(3):
        assert peers.problem
    logged = capfd.readouterr().err
    assert logged.count("\n") == logged.count("event=peers_fault") == 1
    assert "bobby" in logged and BOB.public not in logged
    path.unlink()
    for _ in range(3):
        assert peers.problem
    assert capfd.readouterr().err.count("event=peers_fault") == 1


# --- links ---


@pytest.mark.req("G7", "T2")
def test_a_link_is_written_through(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "peers.json"
    link = tmp_path / "config" / "peers.json"
    real.parent.mkdir()
    link.parent.mkdir()
    link.symlink_to(real)
    peers = peers_file(link)
    with pytest.raises(SetupError, match=r"links to .*dotfiles/peers\.json, which is not there"):
        peers.current()
    write(real, {"alice": entry()})
    assert peers.current().by_name == {"alice": ALICE.public}
    peers.add("bob", BOB.public)
    assert link.is_symlink() and list(json.loads(real.read_text())) == ["alice", "bob"]
    assert peers.current().by_name == peers_file(real).current().by_name
    assert [p.name for p in link.parent.iterdir()] == ["peers.json"]
    # One lock, whichever way leads to the file.
    with Lock(f"{real}.lock"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(peers_module, "Lock", lambda path: Lock(path, 0))
        for one in (peers, peers_file(real)):
            with pytest.raises(StateError, match="held by another"):
                one.add("carol", CAROL.public)
    real.unlink()
    with pytest.raises(SetupError, match="which is not there"):
        peers.current()


@pytest.mark.req("G7")
def test_a_loop_of_links(path: Path) -> None:
    path.symlink_to(path)
    with pytest.raises(SetupError, match="symbolic links"):
        peers_file(path).current()
