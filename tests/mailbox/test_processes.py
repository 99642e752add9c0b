"""Real processes on the same files: nothing is lost between them, and each message has one place (M1, G5, F5)."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from support.mail import IN_CHILD, Desk, note

GO = """
import json
desk = Desk(sys.argv[1], sys.argv[2])
def say(what):
    print(json.dumps(what), flush=True)
say("ready")
sys.stdin.readline()
"""

# Each admits its own messages one by one, and acknowledges every second one at once.
ADMIT_AND_ACK = """
name, count = sys.argv[3], int(sys.argv[4])
for n in range(count):
    outcome = desk.admit(note(f"{name}{n}"))
    newly = desk.ack(f"{name}{n}").newly if n % 2 else None
    say([outcome[0], newly])
"""

# Both admit the same messages, a batch at each line that they are given.
ADMIT_ALL = """
count = int(sys.argv[3])
batch = [note(f"m{n}") for n in range(count)]
for at in range(0, count, 5):
    part = batch[at:at + 5]
    say([[m.msg_id, outcome] for m, outcome in zip(part, desk.admit(*part))])
    sys.stdin.readline()
"""

# Reports each message when the relay would be told to forget it, each receipt when its call would have answered.
UNTIL_KILLED = """
n = int(sys.argv[3])
while True:
    say(["settled", f"m{n}", desk.admit(note(f"m{n}"))[0]])
    if n % 3 == 0:
        desk.ack(f"m{n}")
        say(["acknowledged", f"m{n}", None])
    n += 1
"""


@contextmanager
def children(root: str, act: str, *arguments: tuple[str, ...]) -> Iterator[list["subprocess.Popen[str]"]]:
    """Processes that are ready and wait for a line; ended at the latest with the block."""
    found = [
        subprocess.Popen(
            [sys.executable, "-c", IN_CHILD + GO + act, root, *one],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for one in arguments
    ]
    try:
        for child in found:
            assert child.stdout is not None and json.loads(child.stdout.readline()) == "ready"
        yield found
    finally:
        for child in found:
            child.kill()
            child.wait()
            for stream in (child.stdin, child.stdout):
                assert stream is not None
                stream.close()


def go(child: "subprocess.Popen[str]") -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def said(child: "subprocess.Popen[str]", between: Callable[[], None] = lambda: None) -> list[object]:
    """Every whole line that it printed until its end."""
    assert child.stdout is not None
    out = []
    for line in child.stdout:
        if line.endswith("\n"):
            out.append(json.loads(line))
        between()
    return out


@pytest.mark.req("M1", "M5", "M13")
def test_two_processes_at_one_mailbox_lose_nothing(state_root: str) -> None:
    count = 40
    reader = Desk(state_root)
    seen = 0

    def look() -> None:
        nonlocal seen
        ids = reader.ids()  # without a lock, and whole at every moment
        assert reader.mailbox.fault == ""
        seen = max(seen, len(ids))

    with children(state_root, ADMIT_AND_ACK, ("s1", "a", str(count)), ("s1", "b", str(count))) as pair:
        for child in pair:
            go(child)
        for child in pair:
            assert said(child, look) == [["stored", 1 if n % 2 else None] for n in range(count)]
    assert seen > 0
    left = {f"{name}{n}" for name in "ab" for n in range(0, count, 2)}
    desk = Desk(state_root)
    assert set(desk.ids()) == left and len(desk.ids()) == count
    for name in "ab":
        mine = [i for i in desk.ids() if i[0] == name]
        assert mine == [f"{name}{n}" for n in range(0, count, 2)], "in the order of their arrival"
    everything = [note(f"{name}{n}") for name in "ab" for n in range(count)]
    assert desk.admit(*everything) == ["repeat"] * 2 * count
    assert Desk(state_root, "s2").admit(*everything) == ["replay"] * 2 * count


def race(pair: list["subprocess.Popen[str]"], rounds: int) -> tuple[dict[str, str], dict[str, str]]:
    """Outcome by message of each, where both get a batch at the same time."""
    found: tuple[dict[str, str], dict[str, str]] = ({}, {})
    for _ in range(rounds):
        for child in pair:
            go(child)
        for child, outcomes in zip(pair, found, strict=True):
            assert child.stdout is not None
            outcomes.update(json.loads(child.stdout.readline()))
    return found


@pytest.mark.req("M1", "G5")
def test_two_servers_of_one_session_store_a_message_once(state_root: str) -> None:
    with children(state_root, ADMIT_ALL, ("s1", "60"), ("s1", "60")) as pair:
        first, second = race(pair, 12)
    assert len(first) == len(second) == 60
    for msg_id, outcome in first.items():
        assert sorted([outcome, second[msg_id]]) == ["repeat", "stored"], msg_id
    desk = Desk(state_root)
    assert desk.ids() == list(first)
    # one reservation for both of them
    assert desk.reserve("n1") is not None and desk.reopened().reserve("n2") is None


@pytest.mark.req("G5")
def test_two_sessions_that_get_the_same_captured_message_at_once(state_root: str) -> None:
    with children(state_root, ADMIT_ALL, ("s1", "60"), ("s2", "60")) as pair:
        found = race(pair, 12)
    for msg_id in found[0]:
        assert sorted(outcomes[msg_id] for outcomes in found) == ["replay", "stored"], msg_id
    for session, outcomes in zip(("s1", "s2"), found, strict=True):
        assert Desk(state_root, session).ids() == [m for m, outcome in outcomes.items() if outcome == "stored"]


@pytest.mark.req("M28", "M13", "G5")
def test_a_killed_process_loses_nothing_that_it_had_reported(state_root: str) -> None:
    settled: list[str] = []
    acknowledged: set[str] = set()
    start = 0
    for lines in (1, 4, 7, 12):
        with children(state_root, UNTIL_KILLED, ("s1", str(start))) as (child,):
            go(child)
            assert child.stdout is not None
            got = [json.loads(child.stdout.readline()) for _ in range(lines)]
            os.kill(child.pid, signal.SIGKILL)
            got += said(child)
        for what, msg_id, outcome in got:
            if what == "settled":
                assert outcome == "stored"
                settled.append(msg_id)
            else:
                acknowledged.add(msg_id)
        start = len(settled) + 1 + max(int(m[1:]) for m in settled)
        desk = Desk(state_root)
        unread = desk.ids()
        # the last of each life may have been stored or consumed without a word
        silent = set(unread) - set(settled)
        assert [m for m in unread if m not in silent] == [
            m for m in settled if m not in acknowledged and desk.state(m) != "receiver_acknowledged"
        ]
        assert not acknowledged & set(unread) and len(silent) <= 4
        assert sum(desk.state(m) == "receiver_acknowledged" for m in settled) - len(acknowledged) <= 4
        everything = [note(m) for m in settled]
        assert desk.admit(*everything) == ["repeat"] * len(settled)
        assert Desk(state_root, "s2").admit(*everything) == ["replay"] * len(settled)
