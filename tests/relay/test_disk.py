"""Disks that are full, failing or slow (B2): senders are told, nothing is lost, the relay goes on."""

import os
import resource
import shutil
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.relay import HANG_S, Client, RelayProcess

Run = Callable[..., RelayProcess]
DISK = 12 * (1 << 20)


def _fill(client: Client, size: int, most: int, first: int = 0) -> int:
    """Send messages numbered from `first` until the relay cannot store; how many it took."""
    for number in range(most):
        answer = client.send("A#1", [first + number, "x" * size])
        if answer.status != 202:
            assert answer.status == 503, answer
            assert int(answer.headers["retry-after"]) >= 1
            assert "disk" in answer.json["error"] or "storage" in answer.json["error"]
            return number
    raise AssertionError("the disk never became full")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 12 MiB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    if mount is None or not hasattr(os, "getuid") or os.getuid() != 0:
        pytest.skip("mounting a small file system needs root")
    done = subprocess.run([mount, "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(folder)], capture_output=True)
    if done.returncode:
        pytest.skip(f"cannot mount a small file system: {done.stderr.decode()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.req("B2", "M28")
@pytest.mark.parametrize("size", [2000, 100_000])
def test_a_disk_that_our_own_messages_filled(run: Run, small_disk: Path, size: int) -> None:
    relay = run("--db", f"{small_disk}/q.db", env={"INTERLINK_RELAY_QUEUE_MAX_MESSAGES": "1000000"})
    try:
        client = relay.client
        taken = 0
        while client.call("GET", "/healthz").status == 200:
            # Full: the space held back is given up, in steps, until there is no more to give.
            taken += _fill(client, size, DISK // size, taken)
        assert taken > DISK // 8 // (size + 300)
        assert relay.until_event("relay_storage_failing") and relay.until_event("relay_reserve_used")
        assert client.send("A#1", "x").status == 503
        # Full, killed and started: all that was accepted is there, and can be acknowledged.
        relay.restart()
        client = relay.client
        found = client.drain("A#1")
        assert [number for number, _ in found][:taken] == list(range(taken))
        # Drained, so there is room again, with nobody's help.
        end = time.monotonic() + HANG_S
        while client.send("A#1", ["again"]).status != 202:
            assert time.monotonic() < end, relay.lines
        assert client.call("GET", "/healthz").status == 200
        assert client.drain("A#1") == [["again"]]
    finally:
        relay.kill()


@pytest.mark.req("B2")
def test_starting_on_a_full_disk(run: Run, small_disk: Path) -> None:
    relay = run("--db", f"{small_disk}/q.db")
    try:
        relay.client.send("A#1", "kept")
        assert relay.stop() == 0
        with (small_disk / "other").open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            while True:
                file.write(b"x" * 4096)
        relay.start()
        client = relay.client
        assert client.drain("A#1") == ["kept"], "handed out, and acknowledged"
        assert client.send("A#1", "x").status == 503
        (small_disk / "other").unlink()
        assert client.send("A#1", "x").status == 202
    finally:
        relay.kill()


@pytest.mark.req("B2")
def test_a_disk_that_others_filled_and_emptied(run: Run, small_disk: Path) -> None:
    relay = run("--db", f"{small_disk}/q.db")
    try:
        client = relay.client
        assert client.send("A#1", "before").status == 202
        other = small_disk / "other"
        with other.open("wb") as file, pytest.raises(OSError, match="No space"):
            while True:
                file.write(b"x" * 65_536)
        taken = _fill(client, 50_000, 2000)
        assert client.recv("A#1").json["envelope"]["payload"] == "before"
        assert client.call("GET", "/roster").status == 200
        assert client.ack("A#1", client.recv("A#1").json["ack"]).status == 200, "acks go on while it is full"
        other.unlink()
        assert client.send("A#1", "after").status == 202
        assert relay.until_event("relay_storage_recovered")
        found = client.drain("A#1")
        assert [entry[0] for entry in found[:-1]] == list(range(taken)) and found[-1] == "after"
    finally:
        relay.kill()


@pytest.mark.req("B2")
@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs prlimit")
def test_writes_that_fail(run: Run) -> None:
    relay = run()
    client = relay.client
    assert client.send("A#1", [0, ""]).status == 202
    soft, hard = resource.prlimit(relay.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(relay.process.pid, resource.RLIMIT_FSIZE, (600_000, hard))
    taken = _fill(client, 50_000, 100)
    assert 1 < taken < 100
    assert client.recv("A#1").status == 200, "reading goes on"
    resource.prlimit(relay.process.pid, resource.RLIMIT_FSIZE, (soft, hard))
    assert client.call("GET", "/healthz").status == 200, "found out without a sender"
    assert client.send("A#1", [taken, ""]).status == 202
    assert [number for number, _ in client.drain("A#1")] == [0, *range(taken), taken]
    relay.until_event("relay_storage_recovered")
    assert len([line for line in relay.lines if "event=relay_storage_failing " in line]) == 1, "one line a change"


@pytest.mark.req("B2")
def test_a_slow_disk_holds_up_senders_alone(run: Run, tmp_path: Path) -> None:
    relay = run("--db", f"{tmp_path}/q.db")
    client = relay.client
    client.send("A#1", "there")
    statuses: list[int] = []
    # Another connection holds the write lock: our commit waits, as on a disk that takes its time.
    blocker = sqlite3.connect(tmp_path / "q.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    sender = threading.Thread(target=lambda: statuses.append(relay.client.send("A#1", "slow").status))
    sender.start()
    for _ in range(20):
        assert client.recv("A#1").json["envelope"]["payload"] == "there"
        assert client.recv("B#1", 1).json == {"status": "timeout"}
        assert client.call("GET", "/roster").status == 200
    assert statuses == [], "no answer before the commit"
    blocker.execute("ROLLBACK")
    blocker.close()
    sender.join(HANG_S)
    assert statuses == [202]
    assert client.drain("A#1") == ["there", "slow"]
