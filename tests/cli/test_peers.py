"""`interlink peers`: the person's own way to say who is trusted."""

import json
import os
import shlex

import pytest
from support.cli import ME, each, interlink, me, ok, peers_path
from support.keys import ALICE, BOB, CAROL
from support.listener import until

from interlink.settings import Settings
from interlink.trust.identity import Identity
from interlink.trust.peers import PeersFile

DASHED = next(
    key for key in (Identity.from_seed(n.to_bytes(32, "big")).public for n in range(1, 2000)) if key[0] == "-"
)


def names(path: str = "") -> dict[str, str]:
    with open(path or peers_path(), encoding="utf-8") as file:
        return {name: entry["key"] for name, entry in json.load(file).items()}


def test_add_list_remove() -> None:
    me()
    done = ok("peers", "add", "carol", CAROL.public)
    assert f'"carol" [{CAROL.public[:8]}] is trusted' in done.out
    assert names() == {"alice": ALICE.public, "carol": CAROL.public}
    listed = ok("peers", "list").out
    assert ok("peers").out == listed and CAROL.public in listed
    assert ok("peers", "list", "--json").json["peers"][1] == {
        "petname": "carol",
        "key": CAROL.public,
        "fingerprint": CAROL.public[:8],
    }
    ok("peers", "remove", "carol")
    assert names() == {"alice": ALICE.public}


@pytest.mark.req("G8")
def test_the_command_that_the_tools_print_works_as_it_is() -> None:
    """Options after the words, a path with a space, a petname with one."""
    me()
    path = os.path.join(os.environ["HOME"], "my peers.json")
    line = shlex.join(["interlink", "peers", "add", "carol two", CAROL.public, "--peers", path])
    ok(*shlex.split(line)[1:])
    assert names(path) == {"carol two": CAROL.public} and "carol two" not in names()
    ok(*shlex.split(shlex.join(["interlink", "peers", "remove", "carol two", "--peers", path]))[1:])
    assert names(path) == {}


def test_options_before_the_subcommand_hold_too() -> None:
    me()
    path = os.path.join(os.environ["HOME"], "other.json")
    ok("peers", "--peers", path, "add", "carol", CAROL.public)
    assert names(path) == {"carol": CAROL.public}
    assert CAROL.public in ok("peers", "--peers", path).out
    assert CAROL.public in ok("peers", "--peers", path, "list").out


@pytest.mark.req("G8")
@pytest.mark.parametrize("options_first", [False, True])
def test_a_key_and_a_petname_may_begin_with_a_dash(options_first: bool) -> None:
    me()
    path = os.path.join(os.environ["HOME"], "p.json")
    words = ["--peers", path, "-dash-", DASHED] if options_first else ["-dash-", DASHED, "--peers", path]
    ok("peers", "add", *words)
    assert names(path) == {"-dash-": DASHED}
    ok("peers", "remove", "-dash-", "--peers", path)
    assert names(path) == {}


BAD_NAMES = ("", "self", "local:x", "a#b", "two  spaces", "line\nbreak", "esc\x1b[31m", "rtl\u202e", "x" * 33)


def test_a_petname_that_cannot_be_shown_is_refused() -> None:
    me()
    for done in each(*(["peers", "add", petname, CAROL.public] for petname in BAD_NAMES)):
        assert done.code == 64 and "petname" in done.err, done
        assert "\x1b" not in done.err and "\u202e" not in done.err and done.err.count("\n") == 1
    assert names() == {"alice": ALICE.public}


def test_a_key_that_is_none_is_refused() -> None:
    me()
    bad = ("", "short", "A" * 43, ALICE.public + "A", ALICE.public[:-1] + "!", BOB.public)
    for key, done in zip(bad, each(*(["peers", "add", "carol", key] for key in bad)), strict=True):
        assert done.code == 64, (key, done)
    assert names() == {"alice": ALICE.public}


def test_bytes_that_are_no_text_are_refused() -> None:
    me()
    done = interlink("peers", "add", os.fsdecode(b"caf\xe9"), CAROL.public)
    assert done.code == 64 and "UTF-8" in done.err and names() == {"alice": ALICE.public}


def test_an_unknown_petname_lists_the_known() -> None:
    me()
    done = interlink("peers", "remove", "carol")
    assert done.code == 64 and '"alice"' in done.err


@pytest.mark.req("G7")
def test_a_broken_file_is_never_overwritten() -> None:
    me()
    with open(peers_path(), "w", encoding="utf-8") as file:
        file.write('{"alice": ')
    lines = (["list"], ["add", "carol", CAROL.public], ["remove", "alice"])
    for done in each(*(["peers", *line] for line in lines)):
        assert done.code == 1 and "mend it" in done.err
    with open(peers_path(), encoding="utf-8") as file:
        assert file.read() == '{"alice": '


def test_show_gives_the_public_key_and_nothing_private() -> None:
    me()
    done = ok("peers", "show")
    assert ME in done.out and f"interlink peers add PETNAME {ME}" in done.out
    assert BOB.seed_text() not in done.out
    shown = ok("peers", "show", "--json").json
    assert (shown["key"], shown["peers"], shown["path"]) == (ME, 1, peers_path())


def test_without_a_key_peers_can_be_kept_all_the_same() -> None:
    ok("peers", "add", "carol", CAROL.public)
    assert names() == {"carol": CAROL.public}
    assert "interlink-keygen" in ok("peers", "show").out


def test_a_running_reader_sees_a_change_at_once() -> None:
    me()
    file = PeersFile(peers_path(), ME, Settings())
    assert "carol" not in file.current().by_name
    ok("peers", "add", "carol", CAROL.public)
    until(lambda: file.current().by_name.get("carol") == CAROL.public, "carol")
