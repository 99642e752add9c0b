"""`interlink setup claude`: what it writes, what it leaves alone, what it refuses."""

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from support.cli import tree
from support.setup import NOTHING, home, install, plan_claude, setup

from interlink.errors import SetupError, StateError, UsageError
from interlink.setup import claude, plan
from interlink.setup.launch import find_program

# As a person wrote it: order, spacing, numbers and escapes of their own.
MINE = """{
    "permissions": { "allow": ["Bash(ls:*)"], "deny": [] },
    "x": 1e3, "\\u00e9": "\\ud800",
    "enabledPlugins": {
        "other@place": false
    },
    "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]}
}
"""


def settings() -> Path:
    return home(".claude", "settings.json")


def folder() -> Path:
    return home(".local", "share", "interlink", "claude")


def write(text: str, mode: int = 0o644) -> None:
    settings().parent.mkdir(exist_ok=True)
    settings().write_text(text)
    settings().chmod(mode)


def do(**options: str | None) -> list[str]:
    """Plan and apply; the names of the files that changed."""
    found = plan_claude(**options)
    plan.apply(found.changes)
    return [Path(one.path).name for one in found.changes]


def read(name: str) -> Any:
    return json.loads((folder() / name).read_text())


def test_a_first_run_shows_asks_and_installs(tmp_path: Path) -> None:
    program = install(tmp_path / "a b")
    done = setup("claude", "--program", str(program), stdin="y\n")
    assert done.code == 0 and done.err.startswith("interlink: set in this shell"), done
    assert f'+      "command": "{program}"' in done.out and '+    "interlink@interlink": true' in done.out
    assert "Change this? [y/N]" in done.out and "7 files changed" in done.out
    assert json.loads(settings().read_text()) == {
        "extraKnownMarketplaces": {"interlink": {"source": {"source": "directory", "path": str(folder())}}},
        "enabledPlugins": {"interlink@interlink": True},
    }
    assert read("plugin/.mcp.json")["mcpServers"]["interlink"] == {"command": str(program), "args": []}
    assert read(".claude-plugin/marketplace.json")["plugins"][0]["source"] == "./plugin"
    assert (folder() / "plugin/skills/interlink/SKILL.md").read_bytes() == claude.packaged()[
        "plugin/skills/interlink/SKILL.md"
    ]
    before = tree(str(home()))
    again = setup("claude", "--program", str(program))
    assert (again.code, again.out) == (0, NOTHING + "\n")
    assert tree(str(home())) == before


@pytest.mark.parametrize(
    ("args", "stdin", "code", "last"),
    [
        (["--dry-run", "--yes"], "", 0, "dry run: nothing was changed"),
        ([], "n\n", 1, "nothing was changed"),
        ([], "", 1, "nothing was changed"),
        ([], "\n", 1, "nothing was changed"),
    ],
)
def test_without_a_yes_nothing_changes(args: list[str], stdin: str, code: int, last: str) -> None:
    write(MINE)
    before = tree(str(home()))
    done = setup("claude", *args, stdin=stdin)
    assert done.code == code and done.out.endswith(last + "\n") and "+++ " in done.out
    assert tree(str(home())) == before


def test_what_is_not_ours_stays_byte_for_byte() -> None:
    write(MINE, 0o640)
    do()
    after = settings().read_text()
    for line in MINE.splitlines()[:3]:
        assert line in after
    assert '        "other@place": false,\n        "interlink@interlink": true\n    },' in after
    assert json.loads(after)["hooks"] == json.loads(MINE)["hooks"]
    assert list(json.loads(after)) == [*json.loads(MINE), "extraKnownMarketplaces"]
    assert stat.S_IMODE(settings().stat().st_mode) == 0o640
    (backup,) = settings().parent.glob("*.bak")
    assert re.fullmatch(r"settings\.json\.\d{8}T\d{6}Z\.bak", backup.name)
    assert backup.read_text() == MINE and stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert do() == []


def test_backups_do_not_replace_each_other() -> None:
    for number in range(3):
        write(json.dumps({"n": number}))
        do()
    saved = [json.loads(path.read_text()) for path in settings().parent.glob("*.bak")]
    assert sorted(one["n"] for one in saved) == [0, 1, 2]


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text(MINE)
    settings().parent.mkdir()
    settings().symlink_to(real)
    do()
    assert (
        settings().is_symlink() and json.loads(real.read_text())["enabledPlugins"]["interlink@interlink"] is True
    )
    assert len(list(tmp_path.glob("dotfiles.json.*.bak"))) == 1


def test_a_byte_order_mark_stays() -> None:
    settings().parent.mkdir()
    settings().write_bytes(b'\xef\xbb\xbf{"a": 1}')
    do()
    assert settings().read_bytes().startswith(b'\xef\xbb\xbf{"a": 1, ')


FOREIGN = {"source": {"source": "github", "repo": "someone/interlink"}}
REFUSED = [
    (b"{", "not valid JSON"),
    (b'{"a": 1,}', "not valid JSON"),
    (b"[]", "does not hold a JSON object"),
    (b'{"a": "\xff"}', "is not UTF-8"),
    (b'{"enabledPlugins": []}', "enabledPlugins is not an object"),
    (b'{"extraKnownMarketplaces": {"interlink": []}}', "from elsewhere"),
    (json.dumps({"extraKnownMarketplaces": {"interlink": FOREIGN}}).encode(), "from elsewhere"),
]


@pytest.mark.parametrize(("content", "reason"), REFUSED)
def test_settings_that_cannot_be_changed_safely_are_refused(content: bytes, reason: str) -> None:
    settings().parent.mkdir()
    settings().write_bytes(content)
    with pytest.raises(SetupError, match=reason):
        plan_claude()


def test_a_refusal_is_one_line_and_changes_nothing() -> None:
    write("{,}")
    before = tree(str(home()))
    done = setup("claude", "--yes")
    assert done.code == 1 and done.out == "" and done.err.startswith("interlink: ") and done.err.count("\n") == 1
    assert tree(str(home())) == before


def test_a_file_that_changes_while_the_person_thinks_is_left_alone() -> None:
    write(MINE)
    found = plan_claude()
    write(MINE + " ")
    before = tree(str(home()))
    with pytest.raises(SetupError, match="changed by another program"):
        plan.apply(found.changes)
    assert tree(str(home())) == before


def test_another_folder_of_the_marketplace_is_replaced_and_a_plugin_that_is_off_goes_on() -> None:
    source = {"source": "directory", "path": "/old/place"}
    write(
        json.dumps(
            {
                "extraKnownMarketplaces": {"interlink": {"source": source, "autoUpdate": False}},
                "enabledPlugins": {"interlink@interlink": False},
            }
        )
    )
    do()
    after = json.loads(settings().read_text())
    assert after["extraKnownMarketplaces"]["interlink"] == {
        "source": {"source": "directory", "path": str(folder())},
        "autoUpdate": False,
    }
    assert after["enabledPlugins"] == {"interlink@interlink": True}


def test_the_folders_come_from_option_and_environment(tmp_path: Path) -> None:
    env = {"CLAUDE_CONFIG_DIR": str(tmp_path / "cfg"), "XDG_DATA_HOME": str(tmp_path / "data")}
    assert setup("claude", "--yes", env=env).code == 0
    assert (tmp_path / "cfg/settings.json").exists()
    assert (tmp_path / "data/interlink/claude/plugin/.mcp.json").exists()
    assert setup("claude", "--yes", "--config-dir", str(tmp_path / "c2"), env=env).code == 0
    assert (tmp_path / "c2/settings.json").exists() and not home(".claude").exists()
    assert setup("claude", "--yes", env={"XDG_DATA_HOME": "data"}).code == 1


def test_files_and_folders_are_private() -> None:
    do()
    for path in [folder(), *folder().rglob("*"), settings()]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_options_stay_until_they_are_given_anew() -> None:
    def server() -> Any:
        return read("plugin/.mcp.json")["mcpServers"]["interlink"]

    do(url="http://127.0.0.1:1/,http://h:2", key="~/k", name="my\nname", token_file="rel", state_home="/st ate")
    args = ["--url=http://127.0.0.1:1,http://h:2", f"--key={home('k')}", f"--token-file={Path.cwd() / 'rel'}"]
    assert server()["args"] == [*args, "--name=my name"] and server()["env"] == {"XDG_STATE_HOME": "/st ate"}
    assert do() == []
    assert do(name="", key=None, state_home="") == [".mcp.json", "hooks.json"]
    assert server()["args"] == args and "env" not in server()


def test_server_and_hooks_get_the_same_state_root() -> None:
    do(state_home="/st ate", url="http://127.0.0.1:1")
    hooks = read("plugin/hooks/hooks.json")["hooks"]
    commands = [handler["command"] for groups in hooks.values() for group in groups for handler in group["hooks"]]
    assert len(commands) == 4 and all(one.startswith("XDG_STATE_HOME='/st ate' /") for one in commands)


@pytest.mark.parametrize("options", [{"url": "ftp://x"}, {"program": "/nowhere"}, {"name": "\ud800"}])
def test_a_wrong_option_is_a_usage_error(options: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        plan_claude(**options)


def test_what_an_earlier_version_left_in_its_folder_goes() -> None:
    do()
    (folder() / "plugin/skills/old").mkdir()
    (folder() / "plugin/skills/old/SKILL.md").write_text("old")
    (folder() / "plugin/.mcp.json").write_text("{broken")
    found = plan_claude()
    assert "-old" in plan.diff(found.changes)
    plan.apply(found.changes)
    assert not (folder() / "plugin/skills/old/SKILL.md").exists()
    assert [path.read_text() for path in (folder() / "plugin/skills/old").glob("*.bak")] == ["old"]
    assert read("plugin/.mcp.json")["mcpServers"] and do() == []


def test_settings_of_this_shell_alone_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    assert plan_claude().notes == []
    monkeypatch.setenv("INTERLINK_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("XDG_STATE_HOME", "/s")
    (note,) = plan_claude().notes
    assert "starts the host: INTERLINK_URL, XDG_STATE_HOME." in note
    assert plan_claude(url="http://127.0.0.1:1", state_home="/s").notes == []


def test_hooks_that_are_off_or_doubled_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    own = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "'/a b/interlink-mcp' wait"}]}]}}
    write(json.dumps({"disableAllHooks": True, **own}))
    off, twice = plan_claude().notes
    assert "disableAllHooks" in off and "on Stop" in twice


def test_the_program_is_this_installations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for scheme in ("", "posix_user"):
        monkeypatch.setattr(
            "sysconfig.get_path", lambda _name, given="", scheme=scheme: str(tmp_path / (given or "none"))
        )
    monkeypatch.setattr("sysconfig.get_preferred_scheme", lambda _key: "user")
    monkeypatch.setattr("sys.argv", [str(tmp_path / "link" / "interlink")])
    with pytest.raises(SetupError, match="install the package"):
        find_program()
    program = install(tmp_path / "venv" / "bin")
    (program.parent / "interlink").write_text("")
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "interlink").symlink_to(program.parent / "interlink")
    assert find_program() == str(program)
    theirs = install(tmp_path / "user")
    assert find_program() == str(theirs)
    theirs.chmod(0o644)
    assert find_program() == str(program)


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file" / "below"))
    with pytest.raises(StateError, match="Not a directory"):
        plan_claude()
    assert not settings().exists() and os.listdir(tmp_path) == ["file"]
