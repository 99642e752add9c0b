"""Event lines: one a line, quoted, and never a reason to wait or fail."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlink import log


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.text(), max_size=4))
def test_an_event_is_one_line_whatever_its_values(fields: dict[str, str]) -> None:
    line = log.format_event("name", 1, dict(fields))
    assert line.startswith("ts=1 event=name")
    assert len(line.encode("utf-8", "replace").decode().splitlines()) == 1


@pytest.mark.timeout(60)
def test_a_stderr_that_nobody_reads_holds_nobody_up_and_the_loss_is_counted() -> None:
    code = (
        "from interlink import log\n"
        "for n in range(5000): log.event('many', n=n)\n"
        "print('done', flush=True)\ninput()\nlog.event('last')"
    )
    read, write = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=write, text=True
    ) as child:
        os.close(write)
        assert child.stdin is not None and child.stdout is not None
        assert child.stdout.readline() == "done\n"  # with 64 KiB of room for 200 KiB of lines
        said = os.read(read, 1 << 20)
        child.stdin.write("\n")
        child.stdin.flush()
        while part := os.read(read, 1 << 20):
            said += part
    os.close(read)
    lines = said.decode().splitlines()
    assert all(line.startswith("ts=") for line in lines)
    assert "event=last dropped=" in lines[-1]
    assert int(lines[-1].rpartition("=")[2]) + len(lines) - 1 == 5000
