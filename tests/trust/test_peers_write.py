"""The allowlist file as it is changed, and who a name stands for (G8, B6)."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.crash import crashes, unsynced
from support.keys import ALICE, BOB, CAROL, identity
from support.peers import ME, ZERO_KEY, entry, peers_file, write

from interlink.errors import InterlinkError, StateError, UsageError
from interlink.settings import Settings
from interlink.state import files
from interlink.trust import peers as peers_module
from interlink.trust.peers import Peers, PeersFile, check_petname


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "peers.json"


# --- petnames ---


@pytest.mark.parametrize(
    "name", ["a", "alice", "my laptop", "é", "名前", "x" * 32, "self2", "a.b-c_d", "Local", "a:b"]
)
def test_good_petnames(path: Path, name: str) -> None:
    peers = peers_file(path)
    peers.add(name, ALICE.public)
    assert peers.current().by_name == {name: ALICE.public} and peers.resolve(name) == (name, ALICE.public)


BAD_NAMES = [
    "",
    "self",
    "SELF",
    "local:",
    "local:ci",
    "Local:x",
    "x" * 33,
    " a",
    "a ",
    "a  b",
    "a\tb",
    "a\nb",
    "a\r",
]
BAD_NAMES += [
    "#a",
    "a#b",
    "a\u202eb",
    "a\x1b[0m",
    "a\0",
    "a\u200b",
    "a\u00a0b",
    "a\u2028b",
    "\ud800",
    " ",
    "\u3000",
]


@pytest.mark.req("G8", "L1")
@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_bad_petnames(path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="petname") as caught:
        peers_file(path).add(name, ALICE.public)
    assert all(c.isprintable() for c in str(caught.value))
    assert not path.exists()
    with pytest.raises(UsageError):
        check_petname(name, Settings())


@given(st.text())
def test_a_petname_that_passes_is_shown_as_it_is(name: str) -> None:
    try:
        check_petname(name, Settings())
    except UsageError:
        return
    assert name.isprintable() and name == name.strip() and 1 <= len(name) <= 32


@pytest.mark.req("G8")
def test_the_length_is_a_setting(path: Path) -> None:
    with pytest.raises(UsageError, match="1 to 8 visible"):
        peers_file(path, name_max_chars=8).add("ninechars", ALICE.public)


# --- add and remove ---


@pytest.mark.req("B6", "T2")
def test_add_makes_the_file(path: Path) -> None:
    path = path.parent / "new" / "config" / "peers.json"
    before = os.umask(0)
    try:
        peers_file(path).add("alice", ALICE.public)
    finally:
        os.umask(before)
    assert json.loads(path.read_text()) == {"alice": {"key": ALICE.public}}
    assert path.read_text().endswith("}\n") and path.read_text().count("\n") == 5
    for one in (path, Path(f"{path}.lock")):
        assert stat.S_IMODE(one.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700
    assert sorted(p.name for p in path.parent.iterdir()) == ["peers.json", "peers.json.lock"]


@pytest.mark.req("B6", "B7")
def test_what_is_not_ours_is_kept(path: Path) -> None:
    """Order, other members, numbers as they are, characters as they are."""
    other = {"note": "é \ud83d\ude00", "n": [1, 1.5, 10**30, None, True], "deep": {"b": 1, "a": 2}}
    write(path, {"zoe": {"x": 1, "key": CAROL.public, **other}, "alice": entry()})
    peers = peers_file(path)
    peers.add("bob", BOB.public, extra={"added_ms": 5})
    peers.remove("alice")
    expected = {"zoe": {"x": 1, "key": CAROL.public, **other}, "bob": {"key": BOB.public, "added_ms": 5}}
    found = path.read_text("utf-8")
    assert json.dumps(json.loads(found)) == json.dumps(expected)  # dumps: order counts
    assert "é \U0001f600" in found
    write(path, {"zoe": {"key": CAROL.public, "note": "\ud800"}})
    peers.add("bob", BOB.public)
    assert json.loads(path.read_text("utf-8"))["zoe"]["note"] == "\ud800"


@pytest.mark.req("B6")
def test_the_same_pair_again(path: Path) -> None:
    peers = peers_file(path)
    peers.add("alice", ALICE.public, extra={"a": 1})
    before = files.signature(str(path))
    peers.add("alice", ALICE.public)
    peers.add("alice", ALICE.public, extra={"a": 1})
    assert files.signature(str(path)) == before
    peers.add("alice", ALICE.public, extra={"b": 2})
    assert json.loads(path.read_text())["alice"] == {"key": ALICE.public, "a": 1, "b": 2}


@pytest.mark.req("G8", "B6")
def test_conflicts(path: Path) -> None:
    peers = peers_file(path)
    peers.add("alice", ALICE.public)
    before = path.read_bytes()
    conflicts: list[tuple[str, str, str]] = [
        ("alice", BOB.public, f'"alice" is the petname of another key.*{ALICE.public[:8]}.*remove it first'),
        ("bob", ALICE.public, 'known as "alice".*remove "alice" and add "bob"'),
        ("me", ME.public, 'our own key.*"self"'),
        ("bob", ZERO_KEY, 'key for "bob" is not valid.*small order'),
        ("bob", BOB.public[:-1], 'key for "bob" is not valid'),
        ("bob", "", 'key for "bob" is not valid'),
    ]
    for name, key, says in conflicts:
        with pytest.raises(UsageError, match=says):
            peers.add(name, key)
    assert path.read_bytes() == before
    peers.remove("alice")
    peers.add("alicia", ALICE.public)
    assert peers.current().by_name == {"alicia": ALICE.public}


@pytest.mark.req("G8")
def test_remove_an_unknown_name(path: Path) -> None:
    peers = peers_file(path.parent / "none" / "peers.json")
    with pytest.raises(UsageError, match='no peer "bob": there are no peers yet'):
        peers.remove("bob")
    assert not (path.parent / "none").exists()
    peers = peers_file(path)
    peers.add("alice", ALICE.public)
    for name in ("bob", "", ALICE.public, ALICE.public[:8], "self"):
        with pytest.raises(UsageError, match='known are "alice"'):
            peers.remove(name)
    assert peers.current().by_name == {"alice": ALICE.public}


@pytest.mark.req("G7")
def test_remove_mends_a_wrong_entry(path: Path) -> None:
    write(path, {"alice": entry(), "bad": entry(ZERO_KEY), "self": 5})
    peers = peers_file(path)
    peers.remove("bad")
    assert 'entry "self"' in peers.problem
    peers.remove("self")
    assert peers.current().by_name == {"alice": ALICE.public}


@pytest.mark.req("T2")
def test_a_list_that_would_grow_too_large(path: Path) -> None:
    peers = peers_file(path, peers_max_bytes=1024)
    peers.add("alice", ALICE.public)
    with pytest.raises(UsageError, match="more than the 1024"):
        peers.add("bob", BOB.public, extra={"x": "y" * 1000})
    assert peers.current().by_name == {"alice": ALICE.public}


@pytest.mark.req("G7")
def test_our_own_key_in_a_shared_file_is_self(path: Path) -> None:
    write(path, {"laptop": entry(ME), "desk": entry(ALICE)})
    peers = peers_file(path)
    assert peers.current() == Peers({"desk": ALICE.public}, {ALICE.public: "desk"})
    assert peers.own_entry == "laptop" and peers.problem == ""
    assert peers.resolve("laptop") == ("self", ME.public)
    with pytest.raises(UsageError, match="petname of another key"):
        peers.add("laptop", BOB.public)
    peers.add("phone", BOB.public)
    assert list(json.loads(path.read_text())) == ["laptop", "desk", "phone"]
    peers.remove("laptop")
    assert peers.current().by_name.keys() == {"desk", "phone"} and peers.own_entry == ""


# --- resolve ---


def alike() -> list[str]:
    """Two keys with one fingerprint."""
    found: list[str] = []
    for tail in range(400):
        key = "Twins-AA" + "B" * 32 + f"{tail:03d}"[:2] + "A"
        try:
            peers_module.check_public_key(key)
        except InterlinkError:
            continue
        found.append(key)
    assert len(set(found)) >= 2
    return sorted(set(found))[:2]


@pytest.mark.req("G8", "B4")
def test_resolve(path: Path) -> None:
    peers = peers_file(path)
    peers.add("alice", ALICE.public)
    for text in ("alice", ALICE.public, ALICE.public[:8]):
        assert peers.resolve(text) == ("alice", ALICE.public)
    for text in ("self", ME.public, ME.public[:8]):
        assert peers.resolve(text) == ("self", ME.public)
    for text in ("", "Alice", "alic", ALICE.public[:7], ALICE.public[:9], BOB.public, BOB.public[:8], "\ud800"):
        with pytest.raises(UsageError, match=r'no peer .*known are "alice"'):
            peers.resolve(text)


@pytest.mark.req("G8")
def test_a_shared_fingerprint_needs_the_full_key(path: Path) -> None:
    one, two = alike()
    peers = peers_file(path)
    peers.add("one", one)
    assert peers.resolve("Twins-AA") == ("one", one)
    peers.add("two", two)
    with pytest.raises(UsageError, match=r'2 keys \("one", "two"\): give the full key'):
        peers.resolve("Twins-AA")
    assert peers.resolve(two) == ("two", two) and peers.resolve("one") == ("one", one)
    mine = PeersFile(str(path), two, Settings())  # shared with our own key
    with pytest.raises(UsageError, match=r'"one", "self"'):
        mine.resolve("Twins-AA")


@pytest.mark.req("G8", "B4")
def test_a_petname_goes_before_a_fingerprint(path: Path) -> None:
    peers = peers_file(path)
    peers.add("alice", ALICE.public)
    peers.add(ALICE.public[:8], BOB.public)
    assert peers.resolve(ALICE.public[:8]) == (ALICE.public[:8], BOB.public)


@pytest.mark.req("B4")
def test_an_unknown_name_lists_who_there_is_within_bounds(path: Path) -> None:
    write(path, {f"p{n}": entry(identity(n)) for n in range(30)})
    with pytest.raises(UsageError, match=r'"p0", .*"p20" and 9 more') as caught:  # identity 9 is our own
        peers_file(path).resolve("x" * 5000)
    assert len(str(caught.value)) < 500


# --- many writers, crashes ---

ADDER = """
import sys
from interlink.settings import Settings
from interlink.trust.identity import Identity
from interlink.trust.peers import PeersFile
path, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
peers = PeersFile(path, Identity.from_seed(bytes([9]) * 32).public, Settings())
sys.stdin.readline()
for n in range(first, first + count):
    peers.add(f"p{n}", Identity.from_seed(bytes([n]) * 32).public)
    if n % 3 == 0:
        peers.remove(f"p{n}")
"""


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    running: list[subprocess.Popen[str]] = []

    def start(*args: object) -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", ADDER, *map(str, args)]
        running.append(subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return running[-1]

    yield start
    for child in running:
        child.kill()
        child.communicate()


@pytest.mark.req("T2", "G8")
def test_concurrent_writers_lose_nothing(
    path: Path, tmp_path: Path, started: Callable[..., subprocess.Popen[str]]
) -> None:
    """Four processes, two of them through a link; each look of a fifth sees a whole file."""
    link = tmp_path / "link.json"
    write(path, {"carol": entry(CAROL)})
    link.symlink_to(path)
    children = [started(link if n % 2 else path, 20 + 20 * n, 20) for n in range(4)]
    watcher = peers_file(path)
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    looks = 0
    while any(child.poll() is None for child in children):
        assert watcher.current().by_name["carol"] == CAROL.public
        looks += 1
    for child in children:
        assert child.wait() == 0, child.communicate()[1]
    expected = {f"p{n}" for n in range(20, 100) if n % 3} | {"carol"}
    assert set(watcher.current().by_name) == expected and looks
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.json", "peers.json", "peers.json.lock"]


@pytest.mark.req("T2", "G7")
@pytest.mark.parametrize("first", [True, False])
def test_a_crash_leaves_the_old_list_or_the_new_one(tmp_path: Path, first: bool) -> None:
    setup = (
        "from interlink.settings import Settings\nfrom interlink.trust.peers import PeersFile\n"
        "from interlink.trust.identity import Identity"
    )
    act = f"peers = PeersFile(root + '/c/peers.json', {ME.public!r}, Settings())\npeers.add('bob', {BOB.public!r})"
    old = {} if first else {"alice": ALICE.public}

    def prepare(root: str) -> None:
        if not first:
            peers_file(Path(root) / "c" / "peers.json").add("alice", ALICE.public)

    new = {**old, "bob": BOB.public}
    for crash in crashes(tmp_path, act, prepare=prepare, setup=setup, how=("before", "torn", "fail")):
        peers = peers_file(Path(crash.root) / "c" / "peers.json")
        assert peers.current().by_name in (old, new), crash
        if crash.how == "done":
            assert peers.current().by_name == new and not unsynced(crash.steps)
        if crash.how == "fail":
            assert crash.error is None or crash.error.startswith(("StateError", "SetupError")), crash
            assert crash.error or peers.current().by_name == new, crash
        peers.add("bob", BOB.public)  # nothing that a crash left is in the way
        assert peers.current().by_name == new, crash


@pytest.mark.req("T2")
def test_a_lock_fault_is_an_error(path: Path) -> None:
    Path(f"{path}.lock").mkdir()
    with pytest.raises(StateError, match="lock"):
        peers_file(path).add("alice", ALICE.public)
    assert not path.exists()


def test_the_words_of_the_gate() -> None:
    """Both files speak of the same `self`."""
    from interlink.trust import gate

    assert peers_module.SELF == gate.SELF == "self"
