"""The command as a whole: exit codes, help, what it loads, closed and full outputs."""

import os
import subprocess
import sys

import pytest
from support.cli import each, fresh, interlink, me
from support.programs import program

from interlink.cli.main import COMMANDS

SUBCOMMANDS = [*COMMANDS, "peers list", "peers add", "peers remove", "peers show", "pair list", "pair accept"]
WRONG = [
    ["nope"],
    ["--nope"],
    ["peers", "nope"],
    ["peers", "list", "extra"],
    ["peers", "add"],
    ["peers", "add", "bob"],
    ["inbox", "--nope"],
    ["inbox", "--session"],
    ["inbox", "--session", "../up"],
    ["inbox", "--identity", "nobody"],
    ["send"],
    ["send", "bob"],
    ["send", "bob", "hi", "--status", "sideways"],
    ["post"],
    ["post", "--source", "ci"],
    ["post", "--source", "ci", "--session", "a/b"],
    ["post", "--source", "ci", "--session", "s", "--seq", "x"],
    ["export", "--format", "xml"],
    ["adopt", "old"],
    ["adopt", "old", "--into", "../new"],
    ["prune", "extra"],
    ["doctor", "extra"],
    ["completion", "tcsh"],
    ["pair", "accept"],
]


@pytest.mark.req("H1")
def test_a_wrong_command_line_is_one_line_and_64() -> None:
    me()
    for words, done in zip(WRONG, each(*WRONG), strict=True):
        assert (done.code, done.out) == (64, ""), (words, done)
        assert done.err.startswith("interlink: ") and done.err.count("\n") == 1, (words, done)
    assert interlink("peers", "add").err.endswith("(see interlink peers add --help)\n")


def test_each_command_has_a_help() -> None:
    for name, done in zip(SUBCOMMANDS, each(*([*name.split(), "--help"] for name in SUBCOMMANDS)), strict=True):
        assert (done.code, done.err) == (0, ""), done
        assert done.out.startswith(f"Usage: interlink {name} ") and len(done.out.splitlines()) > 5


def test_alone_it_lists_its_commands() -> None:
    done = interlink()
    assert (done.code, done.err) == (0, "")
    assert all(f"  {name} " in done.out for name in COMMANDS)


def test_the_version() -> None:
    done = fresh("--version")
    assert done.code == 0 and done.out.strip()


def test_a_command_loads_no_sdk_and_no_relay_client() -> None:
    code = (
        "import importlib, sys\n"
        "from interlink.cli.main import COMMANDS\n"
        "for name, (module, _) in COMMANDS.items():\n"
        "    importlib.import_module(module)\n"
        "    bad = {'mcp', 'mcp_types', 'anyio', 'httpx2', 'starlette', 'pydantic'} & set(sys.modules)\n"
        "    assert not bad, (name, bad)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_main_loads_a_command_only_when_it_is_used() -> None:
    code = (
        "import sys, interlink.cli.main\nassert not {'msgspec', 'cryptography', 'filelock'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["status", "doctor"])
def test_the_commands_that_ask_relays_load_no_sdk_either(name: str) -> None:
    me()
    code = (
        f"import sys; sys.argv = ['interlink', {name!r}, '--url', 'http://127.0.0.1:9']\n"
        "from interlink.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as exc:\n    assert exc.code in (0, 1)\n"
        "assert not {'mcp', 'mcp_types', 'httpx2', 'starlette'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.req("H1")
def test_a_reader_that_went_away_is_no_traceback() -> None:
    me()
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run([*program("interlink"), "peers"], stdout=write_end, stderr=subprocess.PIPE)
    os.close(write_end)
    assert done.returncode == 1 and done.stderr == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_behind_the_output_is_a_fault() -> None:
    me()
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*program("interlink"), "peers"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "space" in done.stderr


def test_without_standard_streams_it_ends_all_the_same() -> None:
    me()
    done = subprocess.run(["/bin/sh", "-c", 'exec "$@" >&- 2>&- <&-', "sh", *program("interlink"), "peers"])
    assert done.returncode in (0, 1)


def test_output_is_utf8_in_every_locale() -> None:
    me()
    locale = {"LC_ALL": "C"}
    done = fresh("post", "--source", "büro", "--session", "s1", stdin="grün ✓", env=locale)
    assert done.code == 0, done
    done = fresh("inbox", env=locale)
    assert '"local:büro"' in done.out and "| grün ✓" in done.out


def test_the_completion_of_each_shell() -> None:
    for done in each(*(["completion", shell] for shell in ("bash", "zsh", "fish"))):
        assert done.code == 0 and "_INTERLINK_COMPLETE" in done.out


def test_the_completion_completes() -> None:
    env = {"_INTERLINK_COMPLETE": "bash_complete", "COMP_WORDS": "interlink p", "COMP_CWORD": "1"}
    words = {line.partition(",")[2] for line in interlink(env=env).out.split()}
    assert {"peers", "post", "prune", "pair"} <= words and "inbox" not in words


@pytest.mark.req("H1")
def test_a_fresh_process_gives_the_same_codes() -> None:
    """The other tests fork from a process that has started."""
    me()
    assert [fresh(*words, stdin="x").code for words in (["peers"], ["nope"], ["adopt", "x"])] == [0, 64, 64]
    assert fresh("post", "--source", "ci", "--session", "s1").code == 64
    assert fresh("send", "alice", "x", "--url", "http://127.0.0.1:9").code == 1


def test_a_bad_setting_is_named_and_the_command_goes_on() -> None:
    me()
    done = interlink("peers", env={"INTERLINK_TEXT_MAX_BYTES": "many"})
    assert done.code == 0 and "INTERLINK_TEXT_MAX_BYTES" in done.err
