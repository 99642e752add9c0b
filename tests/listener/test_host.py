"""The listener and its host process: it ends with it (H3) and does not hold up a one-shot run (H6)."""

import os
import signal
import sys

import pytest
from support.listener import (
    Child,
    Wait,
    cursor,
    host,
    layout,
    notice,
    of,
    put,
    size,
    until,
    wait_once,
    waiting,
)

from interlink.listener.host import prints_once
from interlink.state.locks import holder_pids
from interlink.state.process import Process


@pytest.mark.req("H3")
@pytest.mark.parametrize("reap", [True, False], ids=["reaped", "zombie"])
def test_it_ends_with_a_killed_host(reap: bool) -> None:
    with host() as one_host, waiting(env=of(one_host)) as one:
        one_host.kill(reap=reap)
        assert one.end() == (0, "", "")


@pytest.mark.req("H3", "C8")
def test_what_arrives_after_the_hosts_death_is_not_consumed() -> None:
    with host() as one_host, waiting(env=of(one_host)) as orphan:
        orphan.proc.send_signal(signal.SIGSTOP)
        one_host.kill()
        put(notice(1), notice(2), notice(3))
        orphan.proc.send_signal(signal.SIGCONT)
        assert orphan.end() == (0, "", "")
    assert cursor() is None
    with host() as next_host:
        code, err, _ = wait_once(env=of(next_host))
    assert code == 2 and all(f'"n{n}"' in err for n in (1, 2, 3)) and cursor() == size()


@pytest.mark.req("H3")
def test_a_host_that_is_gone_already_gets_nothing() -> None:
    put(notice())
    with host() as one_host:
        pass
    assert wait_once(env=of(one_host)) == (0, "", "")
    assert cursor() is None


@pytest.mark.req("H3")
@pytest.mark.parametrize("text", ["", "0", "x", "-5", "99999999999999999999"])
def test_a_host_variable_that_is_no_pid_is_unset(text: str) -> None:
    put(notice())
    assert wait_once(env={"CLAUDE_PID": text})[0] == 2


@pytest.mark.req("H3")
def test_without_the_variable_the_parent_stands_for_the_host() -> None:
    parent = Child(
        f"""
import subprocess, sys
one = subprocess.Popen([{sys.executable!r}, "-m", "interlink.cli.mcp", "wait", "--session", "s1"])
print(one.pid, flush=True)
sys.stdin.read()
"""
    )
    path = layout().inbox("s1", "lock")
    until(lambda: int(parent.said) in (holder_pids(path) or []), "the listener")
    parent.kill()
    until(lambda: not holder_pids(path), "the listener to end")
    assert cursor() is None


def test_a_process_is_told_from_one_that_reuses_its_pid() -> None:
    me = Process.me()
    assert me.alive() and Process.parse(me.text) == me
    assert not Process(me.pid, str(int(me.start) + 1), me.boot).alive()
    assert not Process(me.pid, me.start, "ffffffff").alive()
    for text in ("", "a-b", "a-b-c", "a-1-", "-1-2", "a/b-1-2", "a-1-" + "2" * 99, "a-\u0663-2"):
        assert Process.parse(text) is None, text


@pytest.mark.req("H6")
@pytest.mark.parametrize("env", [{}, {"CLAUDE_CODE_SESSION_ATTENDED": "0", "CLAUDE_CODE_ENTRYPOINT": "sdk-cli"}])
def test_a_one_shot_host_is_not_held_up(env: dict[str, str]) -> None:
    put(notice())
    with host("--model", "m", "-p", "hello") as one_host:
        assert wait_once(payload=None, env={**of(one_host), **env, "INTERLINK_PAYLOAD_WAIT_S": "60"}) == (
            0,
            "",
            "",
        )
    assert cursor() is None and not os.path.exists(layout().inbox("s1", "lock"))


@pytest.mark.req("H6")
@pytest.mark.parametrize(
    ("arguments", "env"),
    [
        (["-p", "--input-format", "stream-json"], {"CLAUDE_CODE_SESSION_ATTENDED": "0"}),
        (["hello"], {}),
        (["-p"], {"CLAUDE_CODE_SESSION_ATTENDED": "1", "CLAUDE_CODE_ENTRYPOINT": "cli"}),
    ],
)
def test_a_host_that_stays_is_waited_for(arguments: list[str], env: dict[str, str]) -> None:
    with host(*arguments) as one_host, waiting(env={**of(one_host), **env}) as one:
        put(notice())
        assert one.end()[0] == 2


@pytest.mark.req("H6")
def test_a_host_whose_input_has_ended_is_not_held_up() -> None:
    stays = "import sys, time; print('ready', flush=True); sys.stdin.read(); time.sleep(600)"
    one_host = Child(stays, "-p", "--input-format", "stream-json")
    try:
        with waiting(env=of(one_host)) as one:
            assert one.proc.poll() is None and one_host.proc.stdin is not None
            one_host.proc.stdin.close()
            assert one.end() == (0, "", "")
            assert wait_once(env=of(one_host)) == (0, "", "")  # what waits is for a session that stays
    finally:
        one_host.kill()
    assert cursor() is None


ONE_SHOT = [
    "-p",
    "-p hello",
    "--print",
    "--model m --print hello",
    "hello -p",
    "-cp",
    "-pc hello",
    "-p --output-format stream-json",
    "-p --input-format text",
    "-p --input-format=text",
    "--resume -p",
    "--continue --verbose -p -- --input-format stream-json",
    "-p --append-system-prompt --input-format stream-json",
]
STAYS = [
    "",
    "hello",
    "-c",
    "--permission-mode plan",
    "--plugin-dir -p",
    "--append-system-prompt -p hello",
    "--append-system-prompt --print",
    "-- -p",
    "use-p",
    "--printer",
    "-p --input-format stream-json",
    "-p --input-format=stream-json",
    "--input-format stream-json --output-format stream-json -p",
    "--input-format",
    "--input-format -p",
    "-",
]


@pytest.mark.req("H6")
def test_what_a_command_line_says_about_the_run() -> None:
    assert [line for line in ONE_SHOT if not prints_once(line.split())] == []
    assert [line for line in STAYS if prints_once(line.split())] == []
    assert not prints_once(["tell me what -p does", "and --print"])


@pytest.mark.req("H3", "C2")
def test_it_works_where_the_system_does_not_notify() -> None:
    code = """
from interlink.listener import main, watch
del watch.fcntl.F_NOTIFY
main.run([])
"""
    with host() as one_host, waiting(command=[sys.executable, "-c", code], env=of(one_host)) as one:
        put(notice())
        assert one.end()[0] == 2
        last = Wait(command=[sys.executable, "-c", code], env=of(one_host)).listening()
        one_host.kill()
        assert last.end() == (0, "", "")
    with waiting(command=[sys.executable, "-c", code]) as one:
        one.proc.send_signal(signal.SIGTERM)
        assert one.end() == (0, "", "")


@pytest.mark.req("C2")
def test_other_sessions_do_not_disturb_it() -> None:
    with waiting() as one:
        for n in range(20):
            put(notice(n), session="s2")
        put(notice(99))
        code, err, _ = one.end()
    assert code == 2 and err.count("[Interlink inbox notice]") == 1 and '"n99"' in err
