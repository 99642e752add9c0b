"""Delivery states: every edge through the real store and over restarts, and no other (S1 to S3)."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.keys import NOW_MS
from support.mail import ME, Desk, note, settings
from support.programs import pythonpath

from interlink.mailbox import states
from interlink.state.paths import Layout

STORED, ACKED, ASIDE = states.RECEIVER_STORED, states.RECEIVER_ACKNOWLEDGED, states.UNDELIVERABLE
HANDOFFS = ("inbox_queued", "notification_sent", "host_queued", "delivery_failed")
INBOUND = (STORED, *HANDOFFS, ACKED, ASIDE)
# As the requirement has it, written out once more: the table under test must say the same.
EDGES = (
    {("pending", "bus_accepted"), ("pending", "expired"), ("arrival", STORED), ("arrival", ASIDE)}
    | {(STORED, h) for h in HANDOFFS}
    | set(itertools.permutations(HANDOFFS, 2))
    | {(s, ACKED) for s in (STORED, *HANDOFFS)}
)


def on_disk(root: str) -> dict[str, str]:
    """State by message id, read from the file itself."""
    data = json.loads(Path(Layout(root).mailbox(ME, "s1")).read_bytes())
    found = {r["message"]["msg_id"]: r["state"] for r in data["records"]}
    return found | {t["msg_id"]: t["state"] for t in data["tombstones"]}


def hand_off(desk: Desk, state: str) -> None:
    """One more reservation, settled with `state`."""
    desk.now += 301_000
    handoff = desk.reserve(f"n{desk.now}")
    assert handoff is not None
    assert desk.settle(handoff.notice.id, state, failed=state == states.DELIVERY_FAILED)


@pytest.mark.req("S3")
def test_the_table_has_exactly_these_edges() -> None:
    every = {*states.EDGES, *itertools.chain(*states.EDGES.values())}
    assert every == {"pending", "bus_accepted", "expired", "arrival", *INBOUND}
    for old, new in itertools.product(every, every):
        is_edge = (old, new) in EDGES or (old == new and old in HANDOFFS)
        assert states.allowed(old, new) == is_edge, (old, new)
        assert states.advance(old, new) == (new if is_edge else old)


@pytest.mark.req("S1", "S2")
def test_every_state_says_what_it_does_not_prove() -> None:
    every = (states.PENDING, states.BUS_ACCEPTED, states.EXPIRED, *INBOUND)
    assert set(states.MEANING) == set(every)
    for name in (states.BUS_ACCEPTED, *HANDOFFS[:3], ACKED):
        assert "does not prove" in states.MEANING[name]


@pytest.mark.req("S3")
@pytest.mark.parametrize("first", HANDOFFS)
def test_a_stored_message_takes_each_handoff_and_can_be_acknowledged_from_there(
    state_root: str, first: str
) -> None:
    desk = Desk(state_root)
    desk.admit(note("m1"), note("m2"))
    assert on_disk(state_root) == {"m1": STORED, "m2": STORED}
    hand_off(desk.reopened(), first)
    assert on_disk(state_root) == {"m1": first, "m2": first}
    desk.reopened().ack("m1")
    assert on_disk(state_root) == {"m1": ACKED, "m2": first}


@pytest.mark.req("S3")
@pytest.mark.parametrize(
    ("first", "second"), [*itertools.permutations(HANDOFFS, 2), *zip(HANDOFFS, HANDOFFS, strict=True)]
)
def test_each_handoff_may_be_followed_by_any(state_root: str, first: str, second: str) -> None:
    desk = Desk(state_root)
    desk.admit(note("m1"))
    hand_off(desk, first)
    desk = desk.reopened()
    desk.now += 301_000
    hand_off(desk, second)
    assert on_disk(state_root) == {"m1": second}


@pytest.mark.req("S3", "M22")
def test_nothing_leaves_the_last_states(state_root: str) -> None:
    desk = Desk(state_root, set_to=settings(message_max_bytes=1024))
    assert desk.admit(note("m1"), note("m2"), note("big", "x" * 2000)) == ["stored", "stored", "undeliverable"]
    desk.ack("m1")
    for state in HANDOFFS:
        hand_off(desk, state)
        desk = desk.reopened()
        desk.ack("m1", "big")
        assert on_disk(state_root) == {"m1": ACKED, "m2": state, "big": ASIDE}
    desk.ack("m2")
    assert desk.reserve("x") is None
    for notice_id in ("x", f"n{desk.now}"):
        assert not desk.settle(notice_id, "host_queued")
    assert on_disk(state_root) == {"m1": ACKED, "m2": ACKED, "big": ASIDE}


@pytest.mark.req("S3", "M14")
def test_superseded_is_a_mark_beside_the_state(state_root: str) -> None:
    desk = Desk(state_root)
    desk.admit(note("u1", status="update", task_id="t"), note("u2", status="update", task_id="t", ts=desk.now + 1))
    assert on_disk(state_root) == {"u1": STORED, "u2": STORED}
    assert desk.record("u1").superseded_by == "u2"
    assert desk.ack("u1").newly == 1  # a receipt that was fetched before it was superseded
    assert (desk.state("u1"), desk.record("u1").superseded_by) == (ACKED, "u2")


@pytest.mark.req("S3")
@pytest.mark.parametrize("state", ["pending", "bus_accepted", "expired", STORED, ACKED, ASIDE, "other"])
def test_no_handoff_ends_in_another_state(state_root: str, state: str) -> None:
    desk = Desk(state_root)
    desk.admit(note("m1"))
    assert desk.reserve("n1") is not None
    with pytest.raises(ValueError, match="a handoff does not end in"):
        desk.settle("n1", state)
    assert on_disk(state_root) == {"m1": STORED}


STEP = """
import sys
from support.mail import Desk, note
root, now, what, arg = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
desk = Desk(root, now=now)
if what == "admit":
    print(desk.admit(note(arg)))
elif what == "ack":
    print(desk.ack(arg).newly)
else:
    handoff = desk.reserve("n" + str(now))
    print(handoff is not None and desk.settle(handoff.notice.id, arg))
"""


def in_a_process(root: str, now: int, what: str, arg: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", STEP, root, str(now), what, arg],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((pythonpath(), str(Path(__file__).parents[1])))},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.req("S3", "M13", "M28")
def test_a_walk_along_the_edges_with_a_process_for_every_step(state_root: str) -> None:
    now = NOW_MS
    assert in_a_process(state_root, now, "admit", "m1") == "['stored']"
    assert on_disk(state_root) == {"m1": STORED}
    for state in HANDOFFS:
        now += 301_000
        assert in_a_process(state_root, now, "hand off", state) == "True"
        assert on_disk(state_root) == {"m1": state}
    assert in_a_process(state_root, now, "admit", "m1") == "['repeat']"
    assert in_a_process(state_root, now, "ack", "m1") == "1"
    assert in_a_process(state_root, now, "ack", "m1") == "0"
    assert on_disk(state_root) == {"m1": ACKED}
