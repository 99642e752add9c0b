"""The notice reservation: a small pure state machine (M7 to M11, M24, M25).

            nothing unread                     covered all consumed
    NONE <------------------- RESERVED(id) ---------------------------> NONE
     |  something unread          |  settle(ok)       -> SENT, retry after schedule[attempt]
     '--------------------------> |  settle(uncertain)-> as ok: it counts as an attempt
                                  |  settle(failed)   -> FAILED, same attempt, own doubling
    SENT/FAILED -- retry time reached, or the clock went back --> RESERVED(new id), covers all unread
    RESERVED that no living process settles (crash) -- at take-over --> RESERVED(same id), handed off again now,
                                  so that its time runs anew

Arrivals during a reservation neither send nor shorten it. There is no last attempt.
"""

from typing import NamedTuple

from interlink.mailbox.record import Notice

RESERVED = "reserved"
FAILED = "delivery_failed"


class Step(NamedTuple):
    """What to do now: keep the notice as it is, release it (notice None) or hand off `notice`."""

    notice: Notice | None
    handoff: bool
    changed: bool


def wait_ms(attempt: int, schedule_s: tuple[float, ...]) -> int:
    """Milliseconds until the next reservation after this attempt; the last entry repeats for ever."""
    return int(schedule_s[min(attempt, len(schedule_s) - 1)] * 1000)


def failure_wait_ms(failures: int, schedule_s: tuple[float, ...]) -> int:
    """The doubling of definite failures: first entry of the schedule, doubled, up to its longest (M25)."""
    return int(min(schedule_s[0] * 2 ** min(failures - 1, 30), max(schedule_s)) * 1000)


def step(
    notice: Notice | None,
    unread: list[int],
    now_ms: int,
    schedule_s: tuple[float, ...],
    new_id: str,
    *,
    taking_over: bool = False,
) -> Step:
    """The next step for `unread`, the ascending admission sequences of attention-worthy messages.

    `taking_over`: this process has just become the notifier, so that a reservation which nobody settled
    belongs to a process that is gone (M9).
    """
    if not unread:
        return Step(None, False, notice is not None)
    if notice is not None and unread[0] > notice.through:
        notice = None  # all that it covered is consumed: released (M8)
        fresh = _reserve(new_id, unread, 0, 0, now_ms, schedule_s)
        return Step(fresh, True, True)
    if notice is None:
        return Step(_reserve(new_id, unread, 0, 0, now_ms, schedule_s), True, True)
    if notice.state == RESERVED and taking_over:
        again = _reserve(notice.id, unread, notice.attempt, notice.failures, now_ms, schedule_s)
        return Step(again, True, True)
    if not due(notice, now_ms, schedule_s):
        return Step(notice, False, False)
    if notice.state == FAILED and notice.failures:
        attempt, failures = notice.attempt, notice.failures
    else:
        attempt, failures = min(notice.attempt + 1, len(schedule_s) - 1), 0
    return Step(_reserve(new_id, unread, attempt, failures, now_ms, schedule_s), True, True)


def due(notice: Notice, now_ms: int, schedule_s: tuple[float, ...]) -> bool:
    """True when the reservation has expired, or its times lie so far ahead that the clock went back (M7)."""
    longest = int(max(schedule_s) * 1000)
    return now_ms >= notice.retry_at or notice.retry_at - now_ms > longest or now_ms < notice.made_ms


def settle(
    notice: Notice, state: str, now_ms: int, schedule_s: tuple[float, ...], *, definite_failure: bool
) -> Notice:
    """The reservation after its handoff. A definite failure costs no step of the schedule (M25)."""
    failures = notice.failures + 1 if definite_failure else 0
    if definite_failure:
        retry_at = now_ms + failure_wait_ms(failures, schedule_s)
    else:
        retry_at = notice.made_ms + wait_ms(notice.attempt, schedule_s)
        if notice.state == RESERVED:  # a repeat may have brought it forward during the handoff (M24)
            retry_at = min(retry_at, notice.retry_at)
    return Notice(
        id=notice.id,
        state=state,
        through=notice.through,
        made_ms=notice.made_ms,
        retry_at=retry_at,
        attempt=notice.attempt,
        failures=failures,
    )


def bring_forward(notice: Notice, now_ms: int, least_s: float) -> Notice | None:
    """The reservation with its retry moved up for a sender's repeat, no sooner than `least_s` after it was
    made (M24). None where that changes nothing."""
    at = max(now_ms, notice.made_ms + int(least_s * 1000))
    if at >= notice.retry_at:
        return None
    return Notice(
        id=notice.id,
        state=notice.state,
        through=notice.through,
        made_ms=notice.made_ms,
        retry_at=at,
        attempt=notice.attempt,
        failures=notice.failures,
    )


def _reserve(
    new_id: str, unread: list[int], attempt: int, failures: int, now_ms: int, schedule_s: tuple[float, ...]
) -> Notice:
    return Notice(
        id=new_id,
        state=RESERVED,
        through=unread[-1],
        made_ms=now_ms,
        retry_at=now_ms + wait_ms(attempt, schedule_s),
        attempt=attempt,
        failures=failures,
    )
