"""`interlink setup codex`: a marked part of config.toml, all else as it was (X1, H14, H15)."""

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.cli import tree
from support.setup import NOTHING, home, install, plan_codex, setup

from interlink.errors import SetupError, UsageError
from interlink.setup import codex, plan
from interlink.setup.codex import BEGIN, END

MINE = """# mine
model = "gpt"   # keep
[mcp_servers.other]
command = "x"

[[hooks.Stop]]
[[hooks.Stop.hooks]]
type = "command"
command = "true"
"""
# What Codex adds at the end of the file, and so inside our part, when a person trusts the hooks.
TRUST = """
[hooks.state]

[hooks.state."/somewhere/me/.codex/config.toml:stop:1:0"]
trusted_hash = "sha256:00"

[projects."/w"]
trust_level = "trusted"
"""


def config() -> Path:
    return home(".codex", "config.toml")


def write(text: str | bytes) -> None:
    config().parent.mkdir(exist_ok=True)
    config().write_bytes(text.encode() if isinstance(text, str) else text)


def do(**options: str | None) -> int:
    """Plan and apply; how many files changed."""
    found = plan_codex(**options)
    plan.apply(found.changes)
    return len(found.changes)


def text() -> str:
    return config().read_bytes().decode()


def table() -> dict[str, Any]:
    return tomllib.loads(text())


def inside(more: str) -> None:
    """Put this at the end of our part, where Codex puts what it adds."""
    write(text().replace(END, more + END))


@pytest.mark.req("H15")
def test_a_first_run_shows_asks_appends_and_says_who_trusts(tmp_path: Path) -> None:
    program = install(tmp_path / 'a "b"')
    write(MINE)
    done = setup("codex", "--program", str(program), stdin="yes\n")
    assert done.code == 0, done
    assert "+[[hooks.UserPromptSubmit]]" in done.out and "model" not in done.out
    assert "backup: " in done.out and "until you trust them" in done.out and "Hooks need review" in done.out
    assert text().startswith(MINE + f"\n{BEGIN}\n") and text().endswith(f"{END}\n")
    server = table()["mcp_servers"]["interlink"]
    assert server["command"] == str(program) and server["args"] == ["--host", "codex"]
    assert "state" not in table()["hooks"]
    before = tree(str(home()))
    assert setup("codex", "--program", str(program)).out == NOTHING + "\n"
    assert tree(str(home())) == before


@pytest.mark.parametrize(
    ("args", "code", "last"),
    [(["--dry-run"], 0, "dry run: nothing was changed"), ([], 1, "[y/N] nothing was changed")],
)
def test_without_a_yes_nothing_changes(args: list[str], code: int, last: str) -> None:
    write(MINE)
    before = tree(str(home()))
    done = setup("codex", *args)
    assert done.code == code and done.out.endswith(last + "\n")
    assert tree(str(home())) == before


def test_it_is_the_shipped_configuration_that_is_written() -> None:
    do()
    mine, shipped = table(), tomllib.loads(codex.packaged())
    assert mine["mcp_servers"]["interlink"].pop("command") != shipped["mcp_servers"]["interlink"].pop("command")
    assert mine == shipped
    assert config().stat().st_mode & 0o777 == 0o600


@pytest.mark.req("H15")
def test_trust_and_projects_that_codex_put_into_our_part_are_kept() -> None:
    write(MINE)
    do()
    inside(TRUST)
    known = table()
    assert do() == 0
    assert do(url="http://127.0.0.1:1") == 1
    after = table()
    assert after["mcp_servers"]["interlink"].pop("args") == ["--host", "codex", "--url=http://127.0.0.1:1"]
    known["mcp_servers"]["interlink"].pop("args")
    assert after == known
    assert text().endswith(f"{END}\n\n{TRUST.lstrip()}")


@pytest.mark.req("H15")
def test_approvals_that_a_person_took_back_do_not_return() -> None:
    do()
    tool = "[mcp_servers.interlink.tools.send_message]"
    line = text().partition(tool)[2].partition("\n")[0]
    write(text().replace(f'{tool}{line}\napproval_mode = "approve"\n', ""))
    inside('[mcp_servers.interlink.tools.read_message]\napproval_mode = "prompt"\n')
    tools = table()["mcp_servers"]["interlink"]["tools"]
    assert do() == 0
    assert do(url="http://127.0.0.1:1") == 1
    assert table()["mcp_servers"]["interlink"]["tools"] == tools
    assert "send_message" not in tools and tools["read_message"] == {"approval_mode": "prompt"}


def test_what_a_person_added_to_the_server_and_behind_it_stays() -> None:
    do()
    write(text().replace("\nenv_vars", "\nstartup_timeout_sec = 30 # slow disk\nenabled = false\nenv_vars"))
    inside('[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = "command"\ncommand = "true"\n')
    assert do() == 0
    known = table()
    assert do(name="me") == 1
    after = table()
    assert after["mcp_servers"]["interlink"].pop("args")[2:] == ["--name=me"]
    known["mcp_servers"]["interlink"].pop("args")
    assert after == known and "startup_timeout_sec = 30 # slow disk\nenabled = false\n" in text()


def test_an_older_part_is_renewed_in_its_place() -> None:
    write(f"{MINE}\n{BEGIN}\n[mcp_servers.interlink]\ncommand = 'old'\n{END}\n\n[tail]\nx = 1\n")
    assert do() == 1
    assert table()["mcp_servers"]["interlink"]["command"] != "old" and len(table()["hooks"]["Stop"]) == 2
    assert text().startswith(MINE) and text().endswith(f"{END}\n\n[tail]\nx = 1\n")
    assert "tools" not in table()["mcp_servers"]["interlink"]  # what was not approved then is not now


def test_line_ends_and_the_missing_last_one() -> None:
    write(b'model = "x"\r\n[a]\r\nb = 1')
    do()
    assert b"\n" not in config().read_bytes().replace(b"\r\n", b"")
    assert table()["a"] == {"b": 1} and do() == 0


SERVER = '[mcp_servers.interlink]\ncommand = "x"\n'
HOOK = '[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = "mcp_tool"\nserver = "i"\ntool = "bind_codex_session"\n'
REFUSED = [
    (b"a = ", "not valid TOML"),
    (b"a = '\xff'", "is not UTF-8"),
    (SERVER.encode(), r"has \[mcp_servers.interlink\] outside"),
    (b'mcp_servers = { interlink = { command = "x" } }', "outside"),
    (b'[mcp_servers.interlink.tools.x]\napproval_mode = "approve"\n', "outside"),
    (HOOK.encode(), r"hooks that call bind_codex_session \(Stop\) outside"),
    (f"{SERVER}{BEGIN}\n{HOOK}{END}\n".encode(), r"\[mcp_servers.interlink\] outside"),
    (f"{BEGIN}\n{SERVER}".encode(), "once each"),
    (f"{END}\n{BEGIN}\n".encode(), "once each"),
    (f"{BEGIN}\n{END}\n{BEGIN}\n{END}\n".encode(), "once each"),
    (b"mcp_servers = {}\n", "by hand"),
    (b"hooks = { Stop = [] }\n", "by hand"),
    (b"[hooks]\nStop = []\n", "by hand"),
]


@pytest.mark.parametrize(("content", "reason"), REFUSED)
def test_what_cannot_be_merged_safely_is_refused(content: bytes, reason: str) -> None:
    write(content)
    with pytest.raises(SetupError, match=reason + ".*nothing was changed"):
        plan_codex()


def test_a_refusal_is_one_line_and_changes_nothing() -> None:
    write(SERVER)
    before = tree(str(home()))
    done = setup("codex", "--yes")
    assert done.code == 1 and done.out == "" and done.err.count("\n") == 1
    assert tree(str(home())) == before


@pytest.mark.req("H14")
def test_codex_home_is_passed_on_and_found(tmp_path: Path) -> None:
    env = {"CODEX_HOME": str(tmp_path / "a")}
    assert setup("codex", "--yes", env=env).code == 0
    found = tomllib.loads((tmp_path / "a/config.toml").read_text())
    assert "CODEX_HOME" in found["mcp_servers"]["interlink"]["env_vars"]
    assert setup("codex", "--yes", "--codex-home", str(tmp_path / "b"), env=env).code == 0
    assert (tmp_path / "b/config.toml").exists() and not config().exists()


def test_options_stay_until_they_are_given_anew() -> None:
    def server() -> tuple[list[str], dict[str, str]]:
        found = table()["mcp_servers"]["interlink"]
        return found["args"][2:], found.get("env", {})

    do(url="http://127.0.0.1:1", codex_bin="/opt/codex", state_home="~/st 'x'", name='q"\\')
    args = ["--url=http://127.0.0.1:1", '--name=q"\\', "--codex-bin=/opt/codex"]
    assert server() == (args, {"XDG_STATE_HOME": os.path.expanduser("~/st 'x'")})
    assert do() == 0
    assert do(name="", state_home="") == 1
    assert server() == ([args[0], args[2]], {})


def test_a_wrong_option_is_a_usage_error() -> None:
    with pytest.raises(UsageError):
        plan_codex(url="x")
    assert setup("codex", "--nope").code == 64 and setup("emacs").code == 64
