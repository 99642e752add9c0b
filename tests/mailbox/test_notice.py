"""The reservation: when the host is told, when again, and when not (M7 to M11, M24, M25)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.keys import NOW_MS
from support.mail import DAY_MS, SECOND_MS, Desk, note, settings

from interlink.mailbox import notice as notices
from interlink.mailbox import states
from interlink.mailbox.record import Notice
from interlink.settings import Settings

SCHEDULE = Settings.notice_schedule_s
SENT = states.INBOX_QUEUED
FAILED = states.DELIVERY_FAILED
WAITS = (30, 60, 120, 240, 300, 300, 300)


def reserved(**about: int | str) -> Notice:
    given = {
        "id": "n",
        "state": SENT,
        "through": 5,
        "made_ms": NOW_MS,
        "retry_at": NOW_MS + 30_000,
        "attempt": 0,
        "failures": 0,
        **about,
    }
    return Notice(**given)  # type: ignore[arg-type]


# --- the machine alone ----------------------------------------------------------------------------


@pytest.mark.req("M7", "M25")
def test_the_schedule_repeats_its_last_wait_for_ever() -> None:
    assert SCHEDULE == (30, 60, 120, 240, 300)
    now, gaps, made = NOW_MS, [], NOW_MS
    step = notices.step(None, [1], now, SCHEDULE, "n0")
    for number in range(1, 40):
        assert step.handoff and step.notice is not None
        sent = notices.settle(step.notice, SENT, now + 7, SCHEDULE, definite_failure=False)
        assert not notices.step(sent, [1], sent.retry_at - 1, SCHEDULE, "x").handoff
        now = sent.retry_at
        step = notices.step(sent, [1], now, SCHEDULE, f"n{number}")
        gaps.append(now - made)
        made = now
    assert gaps == [w * 1000 for w in WAITS] + [300_000] * (len(gaps) - len(WAITS))


@pytest.mark.req("M7")
@pytest.mark.parametrize("back_ms", [1, 1000, DAY_MS])
def test_a_clock_that_went_back_counts_as_expired(back_ms: int) -> None:
    sent = reserved()
    assert notices.due(sent, NOW_MS - back_ms, SCHEDULE)
    step = notices.step(sent, [1], NOW_MS - back_ms, SCHEDULE, "new")
    assert step.handoff and step.notice is not None and step.notice.id == "new"
    assert step.notice.retry_at > NOW_MS - back_ms


@pytest.mark.req("M7")
def test_a_retry_time_beyond_the_longest_wait_counts_as_expired() -> None:
    assert notices.due(reserved(made_ms=0, retry_at=NOW_MS + 300_001), NOW_MS, SCHEDULE)
    assert not notices.due(reserved(made_ms=0, retry_at=NOW_MS + 300_000), NOW_MS, SCHEDULE)


@pytest.mark.req("M7", "M8")
def test_arrivals_during_a_reservation_wait_and_are_in_the_next_one() -> None:
    sent = reserved(through=5)
    for now in (NOW_MS, NOW_MS + 29_999):
        assert notices.step(sent, [3, 6, 7], now, SCHEDULE, "x") == notices.Step(sent, False, False)
    step = notices.step(sent, [3, 6, 7], NOW_MS + 30_000, SCHEDULE, "next")
    assert step.notice is not None and (step.notice.id, step.notice.through) == ("next", 7)


@pytest.mark.req("M8")
def test_a_reservation_ends_with_the_last_message_that_it_covers() -> None:
    assert notices.step(reserved(through=5), [], NOW_MS, SCHEDULE, "x") == notices.Step(None, False, True)
    assert notices.step(None, [], NOW_MS, SCHEDULE, "x") == notices.Step(None, False, False)
    # what came meanwhile gets a schedule of its own, at once
    step = notices.step(reserved(through=5, attempt=4), [6], NOW_MS + 1, SCHEDULE, "new")
    assert step.handoff and step.notice is not None
    assert (step.notice.attempt, step.notice.made_ms, step.notice.through) == (0, NOW_MS + 1, 6)


@pytest.mark.req("M25")
def test_definite_failures_double_on_their_own_and_cost_no_step() -> None:
    now, waits = NOW_MS, []
    step = notices.step(reserved(attempt=1, retry_at=now), [1], now, SCHEDULE, "n")
    assert step.notice is not None and step.notice.attempt == 2
    current = step.notice
    for _ in range(7):
        now += 11  # the handoff takes its time; the wait runs from its end
        current = notices.settle(current, FAILED, now, SCHEDULE, definite_failure=True)
        waits.append(current.retry_at - now)
        assert not notices.step(current, [1], current.retry_at - 1, SCHEDULE, "x").handoff
        now = current.retry_at
        step = notices.step(current, [1], now, SCHEDULE, "n")
        assert step.handoff and step.notice is not None and step.notice.attempt == 2
        current = step.notice
    assert waits == [w * 1000 for w in (30, 60, 120, 240, 300, 300, 300)]
    # a success goes on where the schedule stood, and the next failure starts its doubling anew
    sent = notices.settle(current, SENT, now, SCHEDULE, definite_failure=False)
    assert (sent.retry_at - now, sent.failures) == (120_000, 0)
    step = notices.step(sent, [1], sent.retry_at, SCHEDULE, "n")
    assert step.notice is not None and step.notice.attempt == 3
    again = notices.settle(step.notice, FAILED, now, SCHEDULE, definite_failure=True)
    assert again.retry_at - now == 30_000


@pytest.mark.req("M25")
def test_an_uncertain_failure_counts_as_an_attempt() -> None:
    step = notices.step(None, [1], NOW_MS, SCHEDULE, "n")
    assert step.notice is not None
    unsure = notices.settle(step.notice, FAILED, NOW_MS + 30_000, SCHEDULE, definite_failure=False)
    assert (unsure.state, unsure.retry_at) == (FAILED, NOW_MS + 30_000)
    step = notices.step(unsure, [1], NOW_MS + 30_000, SCHEDULE, "n")
    assert step.notice is not None and step.notice.attempt == 1


@pytest.mark.req("M9")
def test_who_takes_over_hands_off_what_nobody_settled_and_its_time_runs_anew() -> None:
    step = notices.step(None, [1], NOW_MS, SCHEDULE, "n")
    left = step.notice
    assert left is not None and left.state == notices.RESERVED
    # its own process does nothing twice while it may still be handing off
    assert not notices.step(left, [1], NOW_MS + 29_999, SCHEDULE, "x").handoff
    for later in (1, 29_000, 10 * 60_000):
        now = NOW_MS + later
        again = notices.step(left, [1, 2], now, SCHEDULE, "x", taking_over=True)
        assert again.handoff and again.notice is not None
        assert (again.notice.id, again.notice.through, again.notice.attempt) == ("n", 2, 0)
        sent = notices.settle(again.notice, SENT, now, SCHEDULE, definite_failure=False)
        assert sent.retry_at == now + 30_000  # no second notice a moment later
    settled = reserved()
    assert not notices.step(settled, [1], NOW_MS + 1, SCHEDULE, "x", taking_over=True).handoff


@pytest.mark.req("M24")
def test_a_repeat_brings_the_retry_forward_but_never_within_thirty_seconds() -> None:
    sent = reserved(attempt=3, retry_at=NOW_MS + 240_000)
    for later, expected in ((0, 30_000), (10_000, 30_000), (30_000, 30_000), (100_000, 100_000)):
        sooner = notices.bring_forward(sent, NOW_MS + later, 30)
        assert sooner is not None and sooner.retry_at == NOW_MS + expected
        assert (sooner.id, sooner.attempt, sooner.through) == (sent.id, sent.attempt, sent.through)
    assert notices.bring_forward(sent, NOW_MS + 240_000, 30) is None
    assert notices.bring_forward(reserved(attempt=0), NOW_MS + 5, 30) is None


@pytest.mark.req("M24")
def test_a_repeat_during_the_handoff_is_not_undone_by_its_end() -> None:
    out = reserved(state=notices.RESERVED, attempt=3, retry_at=NOW_MS + 240_000)
    sooner = notices.bring_forward(out, NOW_MS + 5_000, 30)
    assert sooner is not None
    sent = notices.settle(sooner, SENT, NOW_MS + 6_000, SCHEDULE, definite_failure=False)
    assert sent.retry_at == NOW_MS + 30_000
    # one that was settled before is not held at an old failure's time
    failed = reserved(state=FAILED, attempt=3, failures=1, retry_at=NOW_MS + 40_000)
    late = notices.settle(failed, SENT, NOW_MS + 10_000, SCHEDULE, definite_failure=False)
    assert late.retry_at == NOW_MS + 240_000


@pytest.mark.req("M7", "M25")
@given(
    st.lists(st.tuples(st.sampled_from(["ok", "failed", "unsure", "lost"]), st.integers(0, 20_000)), max_size=15)
)
def test_whatever_happens_the_next_notice_is_never_far_nor_too_near(events: list[tuple[str, int]]) -> None:
    """Between two handoffs lie 30 to 300 s (and the time that the handoff itself took); there is always a next."""
    now, current = NOW_MS, None
    for outcome, took in events:
        step = notices.step(current, [1], now, SCHEDULE, "n")
        assert step.handoff and step.notice is not None
        started, current = now, step.notice
        now += took
        if outcome != "lost":
            state = SENT if outcome == "ok" else FAILED
            current = notices.settle(current, state, now, SCHEDULE, definite_failure=outcome == "failed")
        assert 30_000 <= current.retry_at - started <= 300_000 + took
        assert not notices.due(current, max(now, current.retry_at - 1), SCHEDULE) or now >= current.retry_at
        now = max(now, current.retry_at)


@pytest.mark.req("M7")
def test_a_schedule_of_one_entry_works() -> None:
    assert [notices.wait_ms(a, (0.5,)) for a in (0, 1, 9)] == [500, 500, 500]
    assert [notices.failure_wait_ms(f, (0.5,)) for f in (1, 2, 99)] == [500, 500, 500]
    assert notices.failure_wait_ms(2, SCHEDULE) == 60_000


# --- on the file ----------------------------------------------------------------------------------


@pytest.mark.req("M7", "M13")
def test_notices_of_an_ignored_message_over_restarts(state_root: str) -> None:
    desk = Desk(state_root)
    desk.admit(note("m1"))
    at = []
    for second in range(0, 1100):
        desk.now = NOW_MS + second * SECOND_MS
        if second % 50 == 49:
            desk = desk.reopened()
            assert desk.reserve("over", taking_over=True) is None, "a settled one is not repeated by a restart"
        if handoff := desk.reserve(f"n{second}"):
            assert [r.receipt_id for r in handoff.waiting] == ["m1"]
            assert desk.settle(handoff.notice.id, states.INBOX_QUEUED)
            at.append(second)
    assert at == [0, 30, 90, 210, 450, 750, 1050]


@pytest.mark.req("M8", "M14")
def test_what_comes_during_a_reservation_stays_stored_and_progress_wakes_nobody(state_root: str) -> None:
    desk = Desk(state_root)
    desk.admit(note("u0", status="update", task_id="t"))
    assert desk.reserve() is None
    desk.admit(note("m1"))
    first = desk.reserve("n1")
    assert first is not None and first.progress == 1
    desk.admit(note("m2"))
    assert desk.reserve("x") is None
    assert desk.settle("n1", states.NOTIFICATION_SENT)
    assert desk.reserve("x") is None
    assert [desk.state(m) for m in ("u0", "m1", "m2")] == [
        states.RECEIVER_STORED,
        states.NOTIFICATION_SENT,
        states.RECEIVER_STORED,
    ]
    desk.now += 30_000
    second = desk.reserve("n2")
    assert second is not None and [r.receipt_id for r in second.waiting] == ["m1", "m2"]
    desk.settle("n2", states.HOST_QUEUED)
    assert {desk.state(m) for m in ("m1", "m2")} == {states.HOST_QUEUED}


@pytest.mark.req("M8", "M10")
def test_consuming_all_that_is_covered_frees_the_next_notice(state_root: str) -> None:
    desk = Desk(state_root)
    desk.admit(note("m1"), note("m2"))
    assert desk.reserve("n1") is not None
    desk.settle("n1", states.INBOX_QUEUED)
    desk.admit(note("m3"))
    desk.ack("m1")
    notice = desk.notice()
    assert notice is not None and desk.reserve("x") is None, "m2 is still covered"
    desk.ack("m2")  # by its receipt; the notice id plays no part
    assert desk.notice() is None
    handoff = desk.reserve("n2")
    assert handoff is not None and handoff.notice.attempt == 0
    assert [r.receipt_id for r in handoff.waiting] == ["m3"]
    # the answer of the first handoff comes late: it says nothing about the second
    assert not desk.settle("n1", states.DELIVERY_FAILED, failed=True)
    assert desk.state("m3") == states.RECEIVER_STORED


@pytest.mark.req("M8", "M9")
def test_a_notice_for_nothing_is_released_and_an_idle_look_writes_nothing(state_root: str) -> None:
    desk = Desk(state_root)
    desk.admit(note("m1"))
    desk.reserve("n1")
    desk.settle("n1", states.INBOX_QUEUED)
    sig = desk.mailbox.signature()
    for second in range(29):
        desk.now += SECOND_MS
        assert desk.reserve(f"x{second}") is None
    assert desk.mailbox.signature() == sig
    desk.names.clear()  # its sender is removed: nothing is left to tell about
    assert desk.reserve("y") is None and desk.notice() is None
    sig = desk.mailbox.signature()
    assert desk.reserve("z") is None and desk.mailbox.signature() == sig


@pytest.mark.req("M9")
def test_an_interrupted_handoff_is_done_again_by_the_next_process(state_root: str) -> None:
    desk = Desk(state_root)
    desk.admit(note("m1"))
    assert desk.reserve("n1") is not None  # and the process ends here
    after = desk.reopened()
    after.now += 2_000
    assert after.reserve("x") is None, "without the lock's word another process may still be at it"
    again = after.reserve("x", taking_over=True)
    assert again is not None and again.notice.id == "n1"
    assert after.settle("n1", states.INBOX_QUEUED)
    after.now += 29_999
    assert after.reserve("y") is None
    after.now += 1
    assert after.reserve("y") is not None


@pytest.mark.req("M24")
def test_a_repeat_that_was_signed_anew_brings_the_notice_forward_once(state_root: str) -> None:
    desk = Desk(state_root, set_to=settings(notice_schedule_s=(240.0,)))
    first = note("m1")
    desk.admit(first)
    desk.reserve("n1")
    desk.settle("n1", states.INBOX_QUEUED)
    desk.now += 5_000
    sig = desk.mailbox.signature()
    assert desk.admit(first) == ["repeat"]
    assert desk.mailbox.signature() == sig, "a byte-identical copy is only acknowledged"
    assert desk.admit(note("m1", ts=NOW_MS - 5_000)) == ["repeat"]
    assert desk.mailbox.signature() == sig, "an older copy as well"
    assert desk.admit(note("m1", ts=NOW_MS + 5_000)) == ["repeat"]
    notice = desk.notice()
    assert notice is not None and notice.retry_at == NOW_MS + 30_000
    assert len(desk.unread()) == 1 and desk.record("m1").message.sig == first.sig
    desk.now = NOW_MS + 30_000
    assert desk.reserve("n2") is not None
    desk.settle("n2", states.INBOX_QUEUED)
    desk = desk.reopened()
    desk.now += 6_000
    assert desk.admit(note("m1", ts=NOW_MS + 36_000)) == ["repeat"]
    notice = desk.notice()
    assert notice is not None and notice.retry_at == NOW_MS + 270_000, "once a message"


@pytest.mark.req("M24")
@pytest.mark.parametrize("status", ["update", None])
def test_a_repeat_of_progress_or_of_a_consumed_message_moves_no_notice(
    state_root: str, status: str | None
) -> None:
    desk = Desk(state_root, set_to=settings(notice_schedule_s=(240.0,)))
    desk.admit(note("m1"), note("m2", status=status, task_id="t"))
    desk.reserve("n1")
    desk.settle("n1", states.INBOX_QUEUED)
    if status is None:
        desk.ack("m2")
    before = desk.notice()
    desk.now += 40_000
    assert desk.admit(note("m2", status=status, task_id="t", ts=NOW_MS + 40_000)) == ["repeat"]
    assert desk.notice() == before
