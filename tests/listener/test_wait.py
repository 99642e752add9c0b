"""Exit codes and the handing over: 2 only after a notice was written and consumed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.listener import (
    Wait,
    cursor,
    layout,
    legacy,
    notice,
    put,
    size,
    until,
    wait_once,
    waiting,
)

from interlink import inbox
from interlink.state.flock import Flock

USAGE = [
    ["--nope"],
    ["extra"],
    ["--renew-after-secs", "abc"],
    ["--renew-after-secs", "0"],
    ["--renew-after-secs=3001"],
    ["--renew-after-secs", "1.5"],
    ["--renew-after-secs", "-1"],
    ["--renew-after-secs", "٣"],
    ["--renew-after-secs"],
    ["--session"],
    ["--session", "../up"],
    ["--session=.hidden"],
    ["--session", "x" * 129],
]


@pytest.mark.req("H1", "C4")
@pytest.mark.parametrize("args", USAGE, ids=lambda a: " ".join(a)[:30])
def test_a_wrong_argument_is_one_line_and_64(args: list[str]) -> None:
    put(notice())
    code, err, out = wait_once(*args)
    assert (code, out, cursor()) == (64, "", None)
    assert err.startswith("interlink-mcp wait: ") and err.count("\n") == 1


def test_a_bad_session_variable_is_a_usage_error() -> None:
    code, err, _ = wait_once(env={"INTERLINK_SESSION": "a/b"})
    assert code == 64 and "a/b" in err


def test_help_exits_0() -> None:
    code, err, out = wait_once("--help", payload=None)
    assert (code, err) == (0, "") and "--renew-after-secs" in out


@pytest.mark.req("C2")
def test_a_notice_is_printed_then_consumed_then_wakes() -> None:
    with waiting() as one:
        put(notice())
        code, err, out = one.end()
    assert code == 2 and out == ""
    assert err == '[Interlink inbox notice] receive_messages(notification_id="n1")\n'
    assert cursor() == size()


@pytest.mark.req("C2")
def test_an_end_by_signal_consumes_nothing() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        with waiting() as one:
            one.proc.send_signal(number)
            assert one.end() == (0, "", "")
    assert cursor() is None


@pytest.mark.req("H1")
def test_signals_end_it_before_it_has_a_session_too() -> None:
    one = Wait(payload=None)
    # It waits for its payload; a handler is in place before that.
    status = Path(f"/proc/{one.pid}/status")

    def caught() -> int:
        lines = status.read_text().splitlines()
        return int(next(line for line in lines if line.startswith("SigCgt:")).split()[1], 16)

    until(lambda: caught() >> (signal.SIGTERM - 1) & 1, "its signal handler")
    one.proc.send_signal(signal.SIGTERM)
    assert one.end() == (0, "", "")


@pytest.mark.req("H1", "C6")
def test_an_unusable_state_root_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "interlink").write_text("a file")
    code, err, _ = wait_once(env={"XDG_STATE_HOME": str(tmp_path / "state")})
    assert code == 1 and "not a directory" in err and err.count("\n") == 1
    code, err, _ = wait_once(env={"XDG_STATE_HOME": "relative"})
    assert code == 1 and "absolute" in err


@pytest.mark.req("H1")
@pytest.mark.skipif(os.getuid() != 0, reason="needs root to give a directory to another user")
def test_a_state_root_of_another_user_is_a_fault(tmp_path: Path) -> None:
    root = tmp_path / "interlink"
    root.mkdir()
    os.chown(root, 12345, 12345)
    code, err, _ = wait_once(env={"XDG_STATE_HOME": str(tmp_path)})
    assert code == 1 and "belongs to user 12345" in err


@pytest.mark.req("H1")
@pytest.mark.parametrize("error", ["SystemExit(2)", "KeyboardInterrupt()", "MemoryError()", "ValueError('x')"])
def test_no_exception_chooses_the_exit_code(error: str) -> None:
    code = f"""
import sys
import time
from interlink.listener import loop, main
def fail(self): raise {error}
loop.Listener.run = fail
main.run([])
"""
    status, err, _ = wait_once(command=[sys.executable, "-c", code])
    assert status == 1 and err.startswith("interlink-mcp wait: internal error") and err.count("\n") == 1


@pytest.mark.req("H1")
def test_a_hook_command_that_cannot_start_does_not_wake(tmp_path: Path) -> None:
    broken = tmp_path / "no-interpreter"
    broken.write_text("#!/nowhere/python3\n")
    broken.chmod(0o700)
    plain = tmp_path / "not-executable"
    plain.write_text("#!/bin/sh\n")
    empty = tmp_path / "no-package"
    empty.write_text(f"#!{sys.executable} -IS\nfrom interlink.cli.mcp import main\nmain()\n")
    empty.chmod(0o700)
    for path, codes in ((tmp_path / "missing", {127}), (broken, {126, 127}), (plain, {126}), (empty, {1})):
        done = subprocess.run(["/bin/sh", "-c", f"'{path}' wait"], capture_output=True, input=b"{}", check=False)
        assert done.returncode in codes, (path, done)


@pytest.mark.req("C10")
@pytest.mark.parametrize(
    "env", [{"INTERLINK_CHANNELS": "1"}, {"INTERLINK_CHANNELS": "true"}, {"INTERLINK_HOST": "codex"}], ids=str
)
def test_where_notices_take_another_way_it_ends_at_once(env: dict[str, str]) -> None:
    put(notice())
    assert wait_once(payload=None, env=env) == (0, "", "")
    assert cursor() is None and not os.path.exists(layout().inbox("s1", "lock"))


def test_an_empty_channel_variable_is_unset() -> None:
    put(notice())
    assert wait_once(env={"INTERLINK_CHANNELS": "", "INTERLINK_HOST": ""})[0] == 2


@pytest.mark.req("C7", "C8")
def test_a_reader_that_is_gone_consumes_nothing() -> None:
    put(notice(1))
    inbox.commit(layout(), "s1", int(size()))
    before = cursor()
    read_end, write_end = os.pipe()
    with waiting(stderr=write_end) as one:
        os.close(write_end)
        os.close(read_end)
        put(notice(2))
        code, _, _ = one.end()
    assert code == 1 and cursor() == before
    code, err, _ = wait_once()
    assert code == 2 and '"n2"' in err and '"n1"' not in err


@pytest.mark.req("C7", "H1")
def test_without_a_standard_error_nothing_is_consumed() -> None:
    put(notice())
    command = ["/bin/sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-m", "interlink.cli.mcp", "wait"]
    code, err, _ = wait_once(command=command)
    assert (code, err, cursor()) == (1, "", None)
    assert not os.path.exists(layout().inbox("s1", "lock"))


@pytest.mark.req("C8", "C2")
@pytest.mark.parametrize("fault", ["os.kill(os.getpid(), 9)", "raise StateError('disk full')"])
def test_between_flush_and_commit_it_repeats(fault: str) -> None:
    put(notice(1), notice(2))
    code = f"""
import os
from interlink import inbox
from interlink.errors import StateError
from interlink.listener import main
def fail(*args, **kwargs): {fault}
inbox.commit = fail
main.run(["--session", "s1"])
"""
    status, err, _ = wait_once(command=[sys.executable, "-c", code])
    assert status in (1, -9) and '"n1"' in err and cursor() is None
    status, err, _ = wait_once()
    assert status == 2 and '"n1"' in err and '"n2"' in err and cursor() == size()


@pytest.mark.req("C2")
def test_a_signal_between_flush_and_exit_does_not_part_them() -> None:
    put(notice(1))
    code = """
import os, signal
from interlink import inbox
from interlink.listener import main
commit = inbox.commit
def signalled(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGTERM)
    commit(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGTERM)
inbox.commit = signalled
main.run(["--session", "s1"])
"""
    status, err, _ = wait_once(command=[sys.executable, "-c", code])
    assert status == 2 and '"n1"' in err and cursor() == size()


@pytest.mark.req("C6", "C7")
def test_a_missing_cursor_is_0() -> None:
    put(notice(1), notice(2), notice(3))
    code, err, _ = wait_once()
    assert code == 2 and [n for n in (1, 2, 3) if f'"n{n}"' in err] == [1, 2, 3]


@pytest.mark.req("C7")
def test_at_most_64_records_a_wake_and_none_is_lost() -> None:
    put(*(notice(n) for n in range(70)))
    code, err, _ = wait_once()
    assert code == 2 and err.count("[Interlink inbox notice]") == 64 and '"n63"' in err
    code, err, _ = wait_once()
    assert code == 2 and err.count("[Interlink inbox notice]") == 6 and '"n69"' in err
    assert cursor() == size()


@pytest.mark.req("C7", "H8")
def test_a_batch_stops_after_256_kib_and_prints_less_than_the_host_cuts() -> None:
    put(*(legacy(f"<{n}>" + "x" * 100_000) for n in range(5)))
    sizes = []
    for _ in range(2):
        code, err, _ = wait_once()
        assert code == 2 and len(err) < 100_000
        sizes.append([n for n in range(5) if f"<{n}>" in err])
    assert sizes == [[0, 1, 2], [3, 4]]
    assert cursor() == size()


@pytest.mark.req("C7")
def test_a_partial_record_waits_for_its_end() -> None:
    put(notice(1))
    inbox.commit(layout(), "s1", int(size()))
    with open(layout().inbox("s1"), "ab") as f, waiting() as one:
        f.write(b'{"sender":"Interlink","msg_id":"n2",')
        f.flush()
        f.write(b'"content":"[Interlink inbox notice] whole"}')
        f.flush()
        assert one.proc.poll() is None and one.listening()
        f.write(b"\n")
        f.flush()
        code, err, _ = one.end()
    assert (code, err) == (2, "[Interlink inbox notice] whole\n")


@pytest.mark.req("C11")
def test_a_notice_whose_messages_are_consumed_wakes_nobody() -> None:
    inbox.set_consumed(layout(), "s1", 8)
    put(notice(1, through=7))
    with waiting() as one:
        put(notice(2, through=7))
        until(lambda: cursor() == size(), "the listener to pass over both")
        assert one.proc.poll() is None
        put(notice(3, through=7), notice(4, through=8))
        code, err, _ = one.end()
    assert code == 2 and '"n4"' in err and '"n3"' not in err and cursor() == size()


@pytest.mark.req("C11")
@pytest.mark.parametrize("mark", [None, b"", b"many", b"-1"])
def test_without_a_usable_watermark_a_notice_wakes(mark: bytes | None) -> None:
    put(notice(1, through=3))
    if mark is not None:
        Path(layout().inbox("s1", "consumed")).write_bytes(mark)
    assert wait_once()[0] == 2


@pytest.mark.req("C11")
@pytest.mark.parametrize("through", [None, "3", True, 2.0])
def test_a_notice_that_does_not_say_what_it_covers_wakes(through: object) -> None:
    inbox.set_consumed(layout(), "s1", 100)
    put({**notice(1), "through": through} if through is not None else notice(1))
    assert wait_once()[0] == 2


@pytest.mark.req("C11")
def test_a_message_that_claims_to_be_covered_wakes_all_the_same() -> None:
    inbox.set_consumed(layout(), "s1", 100)
    put(legacy("hello", through=1))
    code, err, _ = wait_once()
    assert code == 2 and "hello" in err


@pytest.mark.req("C7")
def test_lines_that_are_no_records_do_not_block() -> None:
    put(notice(1))
    with open(layout().inbox("s1"), "ab") as f:
        f.write(b"\xff\xfe\n\n[1]\n{}\n" + b'{"sender":1,"content":"x"}\n' + b"[" * 100_000 + b"\n")
    put(notice(2))
    code, err, _ = wait_once()
    assert code == 2 and '"n1"' in err and '"n2"' in err and cursor() == size()
    assert "[interlink listener: passed over 5 unusable lines of the inbox file]" in err


@pytest.mark.req("C7")
def test_a_cursor_of_garbage_repeats_and_says_so() -> None:
    put(notice(1))
    Path(layout().inbox("s1", "cursor")).write_bytes(b"garbage")
    code, err, _ = wait_once()
    assert code == 2 and '"n1"' in err and "cursor was not a number" in err and cursor() == size()


@pytest.mark.req("C7")
def test_an_inbox_that_became_shorter_is_read_from_its_beginning() -> None:
    put(notice(1), notice(2))
    assert wait_once()[0] == 2
    os.unlink(layout().inbox("s1"))
    put(notice(3))
    code, err, _ = wait_once()
    assert code == 2 and '"n3"' in err and cursor() == size()


def test_an_append_that_takes_long_is_waited_for() -> None:
    source = """
import os
from interlink import inbox
from interlink.errors import LockBusy
from interlink.listener import main
read = inbox.read
def told(*args, **kwargs):
    try:
        return read(*args, **kwargs)
    except LockBusy:
        os.write(1, b"busy\\n")
        raise
inbox.read = told
main.run([])
"""
    with waiting(command=[sys.executable, "-c", source], env={"INTERLINK_LISTENER_POLL_S": "0.02"}) as one:
        put(notice(1), session="s2")
        with Flock(layout().inbox("s1", "io-lock")):
            os.link(layout().inbox("s2"), layout().inbox("s1"))
            assert one.proc.stdout is not None and one.proc.stdout.readline() == b"busy\n"
            assert cursor() is None
        code, err, _ = one.end()
    assert code == 2 and '"n1"' in err and cursor() == size()


@pytest.mark.req("H1")
def test_the_listener_imports_nothing_heavy() -> None:
    put(legacy("text that has to be rendered"))
    code = """
import os, sys
leave = os._exit
def tell(code):
    os.write(1, " ".join(sys.modules).encode())
    leave(code)
os._exit = tell
sys.argv = ["interlink-mcp", "wait"]
from interlink.cli.mcp import main
main()
"""
    status, _, out = wait_once(command=[sys.executable, "-c", code])
    assert status == 2
    heavy = {"mcp", "click", "msgspec", "filelock", "cryptography", "asyncio", "anyio", "logging", "pathlib"}
    found = set(out.split())
    assert "interlink.listener.loop" in found and not heavy & found


@pytest.mark.req("C2")
def test_without_notification_a_look_ends_the_wait() -> None:
    source = """
from interlink.listener import main, watch
del watch.fcntl.F_NOTIFY
main.run([])
"""
    # The host is looked after once a minute only: it is the look at the inbox that finds the record.
    with waiting(command=[sys.executable, "-c", source], env={"INTERLINK_LISTENER_POLL_S": "60"}) as one:
        put(notice(1))
        started = time.monotonic()
        assert one.end()[0] == 2
        assert time.monotonic() - started < 50


@pytest.mark.req("C2")
def test_a_standard_error_that_does_not_block_gets_everything() -> None:
    body = "x" * 90_000  # more than a pipe holds
    put(legacy(body))
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    one = Wait(stderr=write_end)
    os.close(write_end)
    with open(read_end, encoding="utf-8") as reader:
        assert body in reader.read()
    assert one.end()[0] == 2 and cursor() == size()
