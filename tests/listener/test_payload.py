"""The hook payload on standard input: read as soon as it is whole, and never waited for without end (F3)."""

import os
import subprocess
import sys
import time

import pytest
from support.listener import Wait, cursor, layout, notice, put, size, until, wait_once, waiting

from interlink.listener.payload import MAX_BYTES, read_session_id

PATIENT = {"INTERLINK_PAYLOAD_WAIT_S": "60"}  # a test that needs the pause to end would hang
HASTY = {"INTERLINK_PAYLOAD_WAIT_S": "0.1"}
WHOLE = {
    "plain": b'{"session_id":"s1"}',
    "newline": b'{"session_id":"s1"}\n',
    "byte-order mark": b'\xef\xbb\xbf{"session_id":"s1"}',
    "more fields": '{"a":{"session_id":"no"},"b":"}\\"{é","session_id":"s1","n":[1,{}],"c":false}'.encode(),
    "spread": b' \r\n{\n "session_id" :\t"s1"\n}\n',
    "raw control character": b'{"last":"a\nb\x01","session_id":"s1"}',
    "broken text": b'{"last":"\xff\xfe","session_id":"s1"}',
    "more behind it": b'{"session_id":"s1"}{"session_id":"s2"}',
    "large": b'{"last":"' + b"x" * 300_000 + b'","session_id":"s1"}',
}


@pytest.mark.req("C5")
@pytest.mark.parametrize("payload", WHOLE.values(), ids=WHOLE)
def test_a_whole_object_is_enough_with_the_pipe_still_open(payload: bytes) -> None:
    with waiting(payload=payload, env=PATIENT) as one:
        put(notice())
        assert one.end()[0] == 2


@pytest.mark.req("C5")
def test_drips_are_put_together() -> None:
    one = Wait(payload=b"", env={**PATIENT, "INTERLINK_PAYLOAD_TOTAL_S": "60"})
    assert one.proc.stdin is not None
    data = b'\xef\xbb\xbf{"x":"\xc3\xa9}","session_id":"s1"}'
    for at in range(len(data)):
        one.proc.stdin.write(data[at : at + 1])
        one.proc.stdin.flush()
        # The next byte only after this one was read: drips, whatever the speed.
        until(lambda: _unread(one) == 0, "the byte to be read")
    one.listening()
    one.stop()


def _unread(one: Wait) -> int:
    import fcntl
    import struct
    import termios

    assert one.proc.stdin is not None and one.proc.poll() is None
    return int(struct.unpack("i", fcntl.ioctl(one.proc.stdin, termios.FIONREAD, b"\0\0\0\0"))[0])


@pytest.mark.req("C5")
@pytest.mark.parametrize(
    "payload",
    [
        None,
        b"",
        b'{"session_id":"s1"',
        b"garbage",
        b"[]",
        b'{"session_id":7}',
        b'{"session_id":""}',
        b"{}",
        b'{"a":}',
    ],
)
def test_without_a_usable_payload_it_is_main(payload: bytes | None) -> None:
    with waiting(payload=payload, env=HASTY, session="main") as one:
        put(notice(), session="main")
        assert one.end()[0] == 2
    assert cursor("main") == size("main")


@pytest.mark.req("C5")
@pytest.mark.parametrize("payload", [b"", b'{"session_id":"s1"'])
def test_the_end_of_input_is_not_waited_over(payload: bytes) -> None:
    with waiting(payload=payload, close=True, env=PATIENT, session="main"):
        pass


@pytest.mark.req("C5")
def test_no_standard_input_and_a_terminal_are_no_payload() -> None:
    shell = ["/bin/sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-m", "interlink.cli.mcp", "wait"]
    with waiting(command=shell, payload=None, env=PATIENT, session="main"):
        pass
    leader, follower = os.openpty()
    with waiting(stdin=follower, payload=None, env=PATIENT, session="main"):
        pass
    os.close(leader)
    os.close(follower)
    with waiting(stdin=subprocess.DEVNULL, payload=None, env=PATIENT, session="main"):
        pass


@pytest.mark.req("C5")
def test_a_non_blocking_input_is_waited_for() -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    one = Wait(stdin=read_end, payload=None, env=PATIENT)
    os.write(write_end, b'{"session_id":')
    os.write(write_end, b'"s1"}')
    one.listening()
    one.stop()
    os.close(read_end)
    os.close(write_end)


@pytest.mark.req("C5")
@pytest.mark.parametrize("bad", ["../up", ".hidden", "a b", "x" * 129, "é", "a/b"])
def test_a_bad_session_id_is_refused(bad: str) -> None:
    code, err, _ = wait_once(payload=f'{{"session_id":"{bad}"}}'.encode(), env=PATIENT)
    assert code == 1 and "payload" in err and err.count("\n") == 1
    assert not os.path.exists(layout().inbox_dir())


@pytest.mark.req("C5")
@pytest.mark.parametrize(
    ("args", "env"),
    [(["--session", "s1"], {}), (["--session=s1"], {"INTERLINK_SESSION": "x"}), ([], {"INTERLINK_SESSION": "s1"})],
)
def test_a_chosen_session_needs_no_payload(args: list[str], env: dict[str, str]) -> None:
    with waiting(*args, payload=None, env={**PATIENT, **env}):
        pass


@pytest.mark.req("C5")
def test_an_empty_choice_is_unset() -> None:
    with waiting("--session", "", env={**PATIENT, "INTERLINK_SESSION": ""}):
        pass


def test_a_drip_without_end_ends_by_the_total_and_a_flood_by_its_size() -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, b'{"a":"' + b"x" * 1000)
    started = time.monotonic()
    assert read_session_id(read_end, 60, 0.05) == ""
    assert time.monotonic() - started >= 0.05
    os.close(read_end)
    os.close(write_end)
    flood = subprocess.Popen(
        [sys.executable, "-c", f"print('{{\"a\":\"' + 'x' * {2 * MAX_BYTES}, end='', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert flood.stdout is not None
    assert read_session_id(flood.stdout.fileno(), 60, 60) == ""
    flood.kill()
    flood.communicate()
