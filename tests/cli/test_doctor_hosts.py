"""`interlink doctor` on what runs: notices and listeners, servers and hosts, the hosts' own settings."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from support.cli import ME, desk, layout, mcp_server, me, now_ms
from support.doctor import NO_RELAY, Report
from support.listener import Child, Wait, host, notice, of, put, server, until, waiting
from support.mail import Desk, note
from support.programs import program
from support.relay import RelayProcess

from interlink.doctor.claude import check_claude
from interlink.doctor.codex import check_codex, hook_hash
from interlink.doctor.finding import Process as Running
from interlink.doctor.finding import Scene
from interlink.doctor.processes import check_elsewhere, check_processes
from interlink.doctor.run import CHECKS
from interlink.hosts import registry
from interlink.settings import Settings
from interlink.state.paths import Layout
from interlink.state.process import Process

MINUTE_MS = 60_000


def told(minutes_ago: int, state: str = "inbox_queued", **options: bool) -> Desk:
    """One unread message whose notice went out some minutes ago."""
    box = desk()
    box.now -= minutes_ago * MINUTE_MS
    box.admit(note("m1", ts=box.now))
    box.reserve("n1")
    box.settle("n1", state, **options)
    return box


@pytest.mark.req("H5", "M10")
def test_a_notice_that_no_listener_takes() -> None:
    me()
    told(0)
    put(notice(1, through=1))
    with server(0, "s1", ME):
        report = Report("--url", NO_RELAY)
        found = report.one("listener", "warn")
        assert "no listener has taken it" in found["text"] and "interlink-mcp wait" in found["advice"]
        # The finding on the plugin may be in order, and then --problems does not show it.
        assert "interlink setup claude" in found["advice"] and "finding" not in found["advice"]
        assert found["data"]["notice"]["id"] == "n1" and report.broken == set()


@pytest.mark.req("M18")
def test_who_holds_which_lock_and_the_next_notice() -> None:
    me()
    box = desk()
    box.admit(note("m1", ts=box.now))
    with mcp_server("s1") as process:
        until(lambda: box.reopened().state("m1") == "inbox_queued", "its notice")
        with waiting("--session", "other", session="other"):
            report = Report("--url", NO_RELAY)
    held = report.one("session", "ok")
    assert held["data"]["notifiers"] == [process.pid] and held["data"]["listeners"] == []
    assert f"server {process.pid}, notifier lock {process.pid}, listener lock none" in held["text"]
    assert "the next in" in report.of("listener")[0]["text"]


def test_a_notice_that_a_listener_took_is_in_order() -> None:
    me()
    told(0)
    with server(0, "s1", ME), waiting("--session", "s1"):
        found = Report("--url", NO_RELAY).one("notice", "ok")
        assert "n1 inbox_queued" in found["text"] and "the next in" in found["text"]


@pytest.mark.req("M7", "M10")
@pytest.mark.parametrize("out", [True, False], ids=["overdue", "never sent"])
def test_a_server_that_sends_no_notices_is_broken(out: bool) -> None:
    me()
    if out:
        told(10)
    else:
        box = desk()
        box.now -= 10 * MINUTE_MS
        box.admit(note("m1", ts=box.now))
    with server(0, "s1", ME):
        report = Report("--url", NO_RELAY)
    assert "no notice goes out" in report.one("notice", "broken")["text"] and report.code == 1


@pytest.mark.req("M25")
def test_a_notice_that_failed() -> None:
    me()
    told(0, "delivery_failed", failed=True)
    with server(0, "s1", ME):
        found = Report("--url", NO_RELAY).one("notice", "warn")
    assert "1 failure in a row" in found["text"] and "delivery_failed" in found["text"]


@pytest.mark.req("H4", "C5")
def test_the_pairing_of_a_hosts_server_and_listener() -> None:
    me()
    with host() as process, server(process.pid, "s1", ME), waiting(env=of(process)) as listener:
        found = Report("--url", NO_RELAY).one("host", "ok")
        assert found["data"] == {"host": process.pid, "server_session": "s1", "listener_session": "s1"}
        assert f"listener {listener.pid}" in found["text"]


@pytest.mark.req("H4", "C5")
def test_a_listener_of_another_session_than_its_hosts_server() -> None:
    me()
    with host() as process, server(process.pid, "s1", ME), _of_session("s2", process):
        report = Report("--url", NO_RELAY)
    found = report.one("host", "broken")
    assert (found["data"]["server_session"], found["data"]["listener_session"]) == ("s1", "s2")
    assert report.code == 1


@pytest.mark.req("H4")
def test_two_sessions_of_one_host_are_ambiguous() -> None:
    me()
    with host() as process, server(process.pid, "s1", ME), server(process.pid, "s2", ME):
        assert Report("--url", NO_RELAY).one("host", "warn")["data"]["sessions"] == ["s1", "s2"]


def _of_session(session: str, process: Child) -> AbstractContextManager[Wait]:
    """A listener of this host that was told its session."""
    return waiting("--session", session, session=session, env=of(process))


_HOST = """
import subprocess, sys
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, **quiet)
print(server.pid, flush=True)
sys.stdin.read()
server.kill()
server.wait()
"""


@contextmanager
def _host_with_server(session: str) -> Iterator[Child]:
    """A host process that has started a real server behind a launcher."""
    launcher = ["/bin/sh", "-c", '"$@"; true', "sh", *program("interlink-mcp"), "--session", session]
    one = Child(_HOST, *launcher)
    try:
        until(lambda: [h for h, _ in registry.hosts(layout()) if h.pid == one.pid], "its server")
        one.said = str(registry.servers_of(layout(), Process.of(one.pid))[0].process.pid)
        yield one
    finally:
        one.stop()
        until(lambda: not registry.hosts(layout()), "the end of its server")


@contextmanager
def _elsewhere(process: Child) -> Iterator[Wait]:
    """A listener of this host with another state root."""
    other = os.path.join(os.environ["HOME"], "elsewhere")
    os.makedirs(other, mode=0o700)
    one = Wait("--session", "s1", env={**of(process), "XDG_STATE_HOME": other})
    try:
        until(lambda: os.path.exists(os.path.join(other, "interlink", "inbox", "s1.lock")), "its lock")
        yield one
    finally:
        one.stop()


@pytest.mark.req("H4", "T1")
def test_a_listener_with_another_state_root_than_its_hosts_server() -> None:
    me()
    with _host_with_server("s1") as process:
        with _elsewhere(process) as listener:
            report = Report("--url", NO_RELAY)
        here = Report("--url", NO_RELAY)
    roots = [f for f in report.of("processes", "warn") if listener.pid in f["data"].get("pids", ())]
    assert len(roots) == 1 and "elsewhere" in roots[0]["data"]["roots"][str(listener.pid)]
    apart = report.one("processes", "broken")
    assert apart["data"] == {"host": process.pid, "server": int(process.said), "listener": listener.pid}
    assert here.of("processes", "broken") == []


def _foreign(pid: int, *, listener: bool, root: str) -> Running:
    return Running(pid, listener, root, frozenset(), channels=False, codex=False)


def test_what_runs_elsewhere_is_one_finding_and_the_last() -> None:
    root = me()
    scene = _scene({})
    scene.layout = Layout(root)
    scene.processes = [_foreign(10, listener=False, root=root)]
    assert list(check_elsewhere(scene)) == []
    scene.processes += [_foreign(100 + n, listener=n > 15, root=f"/r{n % 4}/interlink") for n in range(17)]
    (found,) = check_elsewhere(scene)
    assert found.level == "warn" and found.data["pids"] == list(range(100, 117))
    assert "16 servers and 1 listener, pid 100, 101," in found.text and " 116 (" in found.text
    assert "/r0/interlink, /r1/interlink, /r2/interlink and 1 more" in found.text
    assert "XDG_STATE_HOME=/r0 interlink doctor" in found.advice
    assert not [f for f in check_processes(scene) if f.data.get("pid") in found.data["pids"]]
    assert CHECKS[-1][1] is check_elsewhere


@pytest.mark.req("H7", "X1")
@pytest.mark.parametrize("kind", ["claude", "codex"])
def test_a_server_that_serves_no_session(kind: str) -> None:
    root = me()
    key = [] if kind == "codex" else ["--key", "/nonexistent/id.key"]
    process = subprocess.Popen(
        [*program("interlink-mcp"), "--host", kind, *key],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        found = [
            f for f in Report("--url", NO_RELAY).of("processes", "warn") if f["data"].get("pid") == process.pid
        ]
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()
    assert len(found) == 1 and "serves no session" in found[0]["text"]
    assert ("hooks" in found[0]["advice"]) == (kind == "codex")
    assert os.path.isdir(root)


@pytest.mark.req("N2")
def test_channels_and_what_to_do_where_they_are_off() -> None:
    me()
    found = Report("--url", NO_RELAY, env={"INTERLINK_CHANNELS": "1"}).one("channel", "ok")
    assert "`interlinked`" in found["advice"] and "takes no push" in found["advice"]
    assert Report("--url", NO_RELAY).of("channel") == []


def test_a_running_session_that_no_relay_knows() -> None:
    me()
    with RelayProcess("--memory") as relay, server(0, "s1", ME):
        found = Report("--url", relay.url)
        assert found.one("relay", "warn")["data"]["sessions"] == ["s1"] and found.code == 0


# -- the hosts' own settings --------------------------------------------------------------------------


def _scene(environ: dict[str, str]) -> Scene:
    return Scene({**os.environ, **environ}, Settings(), now_ms())


HOOK = {"type": "command", "command": '"/opt/interlink/bin/interlink-mcp" wait', "async": True}
SETTINGS = [
    ({}, "warn", "not installed"),
    ({"enabledPlugins": {"interlink@market": True}}, "ok", "interlink@market is on"),
    ({"enabledPlugins": {"interlink@market": False}}, "warn", "is off"),
    ({"enabledPlugins": {"other@market": True}}, "warn", "not installed"),
    ({"hooks": {e: [{"hooks": [HOOK]}] for e in ("Stop", "StopFailure", "SessionStart")}}, "ok", "hooks start"),
    ({"hooks": {"Stop": [{"hooks": [HOOK]}]}}, "warn", "not on StopFailure, SessionStart"),
    ({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "echo wait"}]}]}}, "warn", "not installed"),
    ({"hooks": [], "enabledPlugins": "x"}, "warn", "not installed"),
    ([1, 2], "warn", "not installed"),
]


@pytest.mark.req("C1", "H5")
def test_the_plugin_or_hooks_of_claude() -> None:
    me()
    folder = Path(os.environ["HOME"], "claude")
    folder.mkdir()
    env = {"CLAUDE_CONFIG_DIR": str(folder)}
    for settings, level, text in SETTINGS:
        (folder / "settings.json").write_text(json.dumps(settings))
        (found,) = check_claude(_scene(env))
        assert found.level == level and text in found.text, settings
    (folder / "settings.json").write_text("{")
    found = next(iter(check_claude(_scene(env))))
    assert found.level == "warn" and "cannot be read" in found.text
    assert Report("--url", NO_RELAY, env=env).of("claude", "warn")


CODEX = """
[mcp_servers.interlink]
command = "interlink-mcp"
args = ["--host", "codex"]
{env_vars}

[[hooks.SessionStart]]
[[hooks.SessionStart.hooks]]
type = "mcp_tool"
server = "interlink"
tool = "bind_codex_session"
input = {{ thread_id = "${{session_id}}" }}

[[hooks.UserPromptSubmit]]
[[hooks.UserPromptSubmit.hooks]]
type = "mcp_tool"
server = "interlink"
tool = "bind_codex_session"
input = {{ thread_id = "${{session_id}}" }}
"""
# What Codex 0.160 and 0.171 themselves write for these two hooks.
TRUSTED = {
    "session_start": "sha256:2965325372acaeb83bfdc72723ea7a39f1ae17949c4fc0eadf05e0381eed4f8e",
    "user_prompt_submit": "sha256:76f117fbb73b0797549501ccc07d4618a41cdb8133c0b168f3642c13183b6abb",
}


def _trust(path: Path, **changed: str) -> str:
    rows = [
        f'[hooks.state."{path}:{event}:0:0"]\n{changed.get(event, f"trusted_hash = {json.dumps(digest)}")}\n'
        for event, digest in TRUSTED.items()
    ]
    return "\n".join(rows)


@pytest.mark.req("X1", "H14")
def test_the_hooks_of_codex_and_their_trust() -> None:
    me()
    folder = Path(os.environ["HOME"], "codex")
    folder.mkdir()
    path = folder / "config.toml"
    env = {"CODEX_HOME": str(folder)}
    passing = CODEX.format(env_vars='env_vars = ["CODEX_HOME"]')

    def codex(text: str) -> tuple[str, str]:
        path.write_text(text)
        found = list(check_codex(_scene(env)))
        assert len(found) == 1, found
        return found[0].level, found[0].text

    level, text = codex(passing + _trust(path))
    assert level == "ok" and "2 hooks trusted" in text
    assert Report("--url", NO_RELAY, env=env).one("codex", "ok")["text"] == text
    one = passing.partition("[[hooks.UserPromptSubmit]]")[0]
    assert "1 hook trusted" in codex(one + _trust(path))[1]
    level, text = codex(passing)
    assert level == "warn" and "SessionStart untrusted, UserPromptSubmit untrusted" in text
    level, text = codex(passing.replace("${session_id}", "${cwd}") + _trust(path))
    assert level == "warn" and "SessionStart modified, UserPromptSubmit modified" in text
    level, text = codex(passing + _trust(path, session_start="enabled = false"))
    assert level == "warn" and "skips: SessionStart disabled" in text
    path.write_text(CODEX.format(env_vars="") + _trust(path))
    lost, hooks = check_codex(_scene(env))
    assert (lost.level, hooks.level) == ("warn", "ok") and "does not get CODEX_HOME" in lost.text
    level, text = codex('[mcp_servers.interlink]\ncommand = "x"\nenv_vars = ["CODEX_HOME"]\n')
    assert level == "warn" and "has no hook that calls" in text
    assert codex('[mcp_servers.other]\ncommand = "x"\n')[0] == "ok"
    assert "cannot be read" in codex("[broken")[1]
    for odd in ("mcp_servers = 1", "hooks = 1\n" + passing.split("[[")[0], passing + 'timeout = "x"'):
        assert codex(odd)[1]


def test_the_hash_of_a_hook_with_a_matcher() -> None:
    """As Codex itself stored it for the tool hook of the shipped configuration."""
    hook = {
        "type": "mcp_tool",
        "server": "interlink",
        "tool": "bind_codex_session",
        "input": {"thread_id": "${session_id}"},
    }
    known = "sha256:be9fe83711a0198e2e8dee706f62f30264446ed82e15ffd54b26b4fd7b6ddd81"
    assert hook_hash("PreToolUse", {"matcher": "^mcp__interlink__"}, hook) == known
    known = "sha256:c07d437320c60ab80cef656b27c0610c053223b041fd48be771fff0da9b66d1f"
    assert hook_hash("Stop", {"matcher": "ignored"}, hook) == known


def test_a_hostile_petname_in_the_files_reaches_no_terminal() -> None:
    me()
    box = desk()
    box.admit(note("m1", ts=now_ms()))
    path = box.mailbox.path
    data = json.loads(Path(path).read_text("utf-8"))
    data["records"][0]["peer"] = "ev\x1b[31mil\n\u202egnissim"
    Path(path).write_text(json.dumps(data))
    done = Report("--url", NO_RELAY, "--peers", "/nonexistent/peers.json")
    assert done.one("held back", "warn")["text"].count('"') == 2
    for text in (done.done.out, done.done.err):
        assert "\x1b" not in text and "\u202e" not in text
