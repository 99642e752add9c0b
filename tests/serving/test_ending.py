"""However a host leaves: the clean-up runs, then the process ends with 0. Times are guards against hangs."""

import json
import signal
import sys
import time
from pathlib import Path

import pytest
from support.mcp_client import GUARD_S, INITIALIZE, RawClient
from support.programs import program
from support.steps import Steps

SERVER = [sys.executable, str(Path(__file__).with_name("sample_server.py"))]
SLOW_MACHINE = {"INTERLINK_SHUTDOWN_GRACE_S": "40"}  # so that the last resort is not what ends a slow run
PIPE_BYTES = 1 << 20

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


@pytest.fixture
def steps(tmp_path: Path) -> Steps:
    return Steps(tmp_path)


def leave(host: RawClient, how: str) -> None:
    if how == "EOF":
        host.close_stdin()
    else:
        host.process.send_signal(getattr(signal, how))


def fill_stdout(host: RawClient) -> None:
    """More answers than a pipe holds, for a host that does not read them."""
    host.call("fill", "repeat", {"text": "x", "times": PIPE_BYTES})


@pytest.mark.req("H18")
@pytest.mark.parametrize("how", ["EOF", "SIGHUP"])
def test_clean_up_then_gone(how: str, steps: Steps) -> None:
    with RawClient(SERVER, {"SAMPLE_TRACE": str(steps.path), **SLOW_MACHINE}) as host:
        host.handshake()
        host.call(1, "wait", {"tag": "a"})
        steps.wait_for("waiting a")
        leave(host, how)
        assert host.wait() == 0
        assert steps.all() == ["entering", "entered", "waiting a", "cancelled a", "leaving", "left"]
        check_log(host, how)


@pytest.mark.req("H18")
@pytest.mark.parametrize("how", ["EOF", "SIGTERM", "SIGINT"])
def test_clean_up_then_gone_with_a_full_pipe(how: str, steps: Steps) -> None:
    """A host that does not read: answers and a push that wait for room hold nothing up."""
    env = {"SAMPLE_TRACE": str(steps.path), **SLOW_MACHINE, "SAMPLE_CHANNEL": "1", "SAMPLE_PUSH": "late"}
    with RawClient(SERVER, env, read_stdout=False) as host:
        host.request(0, "initialize", INITIALIZE)
        fill_stdout(host)
        steps.wait_for("repeating")
        host.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        host.call(1, "wait", {"tag": "a"})
        steps.wait_for("waiting a")
        leave(host, how)
        assert host.wait() == 0
        assert steps.all()[-2:] == ["leaving", "left"]
        assert {"cancelled a", "push refused"} <= set(steps.all())
        check_log(host, how)


def check_log(host: RawClient, how: str) -> None:
    why = '"stdin closed"' if how == "EOF" else how
    assert f"event=server_ending why={why}\n" in host.log()
    assert "shutdown_forced" not in host.log() and "Traceback" not in host.log()


@pytest.mark.req("H18")
def test_signals_that_do_not_stop_coming(steps: Steps) -> None:
    with RawClient(SERVER, {"SAMPLE_TRACE": str(steps.path), **SLOW_MACHINE}) as host:
        host.handshake()
        steps.wait_for("entered")
        until = time.monotonic() + GUARD_S
        while host.process.poll() is None and time.monotonic() < until:
            host.process.send_signal(signal.SIGINT)
            host.process.send_signal(signal.SIGTERM)
            time.sleep(0.001)
        assert host.wait() == 0
        assert steps.all()[-1] == "left"
        assert "Traceback" not in host.log()


@pytest.mark.req("H18")
@pytest.mark.parametrize(
    ("stuck", "how"),
    [
        ("hanging clean-up", "EOF"),
        ("blocking tool", "SIGTERM"),
        ("full stderr", "EOF"),
        ("full stderr", "SIGINT"),
    ],
)
def test_the_last_resort(stuck: str, how: str, steps: Steps) -> None:
    """Whatever hangs, the process ends with 0 once the grace time is over."""
    env = {"SAMPLE_TRACE": str(steps.path), "INTERLINK_SHUTDOWN_GRACE_S": "0.3"}
    if stuck == "hanging clean-up":
        env["SAMPLE_LEAVE"] = "hang"
    with RawClient(SERVER, env, read_stderr=stuck != "full stderr") as host:
        host.handshake()
        if stuck == "blocking tool":
            host.call(1, "block")
        elif stuck == "full stderr":
            host.call(1, "flood")
        host.request(2, "ping")
        if stuck == "hanging clean-up":
            host.answer(2)
        else:
            steps.wait_for("blocking")
        leave(host, how)
        assert host.wait() == 0
        if stuck == "full stderr":  # nobody reads the log: lines are dropped, and clean-up is not held up
            steps.wait_for("left")
        else:
            assert "left" not in steps.all()
            assert "event=shutdown_forced" in host.log() and "after_s=0.3" in host.log()


@pytest.mark.req("H18")
def test_a_host_that_closes_our_stdout(steps: Steps) -> None:
    with RawClient(SERVER, {"SAMPLE_TRACE": str(steps.path), **SLOW_MACHINE}, read_stdout=False) as host:
        host.request(0, "initialize", INITIALIZE)
        steps.wait_for("entered")
        assert host.process.stdout is not None
        host.process.stdout.close()
        fill_stdout(host)
        assert host.wait() == 0
        assert steps.all()[-1] == "left"
        assert 'event=server_ending why="stdout closed"' in host.log()


@pytest.mark.req("H7", "H18")
def test_a_runtime_that_is_still_being_entered_is_cancelled(steps: Steps) -> None:
    """And the server serves meanwhile."""
    env = {"SAMPLE_TRACE": str(steps.path), **SLOW_MACHINE, "SAMPLE_ENTER": "hang"}
    with RawClient(SERVER, env) as host:
        host.handshake()
        host.call(1, "echo", {"text": "x"})
        assert host.answer(1)["result"]["isError"] is False
        leave(host, "SIGTERM")
        assert host.wait() == 0
        assert steps.all() == ["entering", "entering cancelled"]
        assert "shutdown_forced" not in host.log()


def test_a_clean_up_that_fails_is_logged(steps: Steps) -> None:
    with RawClient(SERVER, {"SAMPLE_TRACE": str(steps.path), **SLOW_MACHINE, "SAMPLE_LEAVE": "fail"}) as host:
        host.handshake()
        steps.wait_for("entered")
        host.close_stdin()
        assert host.wait() == 0
        assert 'event=runtime_failed when=ending error=OSError text="nothing to unregister from"' in host.log()


@pytest.mark.req("H17", "H18")
def test_calls_before_the_end_of_stdin_are_answered() -> None:
    """A quick one is finished, a long one is told that the connection is over."""
    with RawClient(SERVER, {**SLOW_MACHINE, "INTERLINK_SHUTDOWN_SETTLE_S": "3"}) as host:
        host.handshake()
        host.call("long", "wait", {"tag": "a"})
        host.call("quick", "brief")
        host.send_bytes(b'{"jsonrpc":"2.0","id":"unfinished line","method":"ping"}')
        host.close_stdin()
        answers = {}
        while (line := host.lines.get(timeout=GUARD_S)) is not None:
            found = json.loads(line)
            answers[found["id"]] = found
        assert answers["unfinished line"]["result"] == {}
        assert answers["quick"]["result"]["content"][0]["text"] == "done"
        assert answers["long"]["error"]["code"] == -32000
        assert host.wait() == 0


@pytest.mark.req("H18")
@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", ">/dev/full"])
def test_streams_that_are_closed_from_the_start(closed: str, steps: Steps) -> None:
    with RawClient(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *SERVER], {"SAMPLE_TRACE": str(steps.path), **SLOW_MACHINE}
    ) as host:
        if "<" not in closed:
            host.request(0, "initialize", INITIALIZE)  # its answer is what finds stdout closed
        assert host.wait() == 0
        assert steps.all()[-1] == "left"


@pytest.mark.req("H18")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_server_is_still_loading(number: signal.Signals) -> None:
    argv = [sys.executable, "-X", "importtime", *program("interlink-mcp")[1:]]
    with RawClient(argv) as host:
        until = time.monotonic() + GUARD_S
        while "pydantic" not in host.log():  # the SDK begins with it
            assert time.monotonic() < until
            time.sleep(0.005)
        host.process.send_signal(number)
        assert host.wait() == 0
        assert "Traceback" not in host.log()
