"""The time axis: true to time where things happen, cut where nothing does, narrow outside the run proper."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

LEAST_CUT_S = 0.25
CUTS = 30  # a gap of more than this part of what is drawn is cut
OUTSIDE = 0.25  # of the width of the run proper, at most, for all that goes before and after it
STEP = 1 / 400  # of a cut: two moments are at least this far apart

Knot = tuple[float, float]  # (time, s; place, any unit)


def cut_s(times: Sequence[float]) -> float:
    """The gap that is cut: from the sum of the gaps themselves. s."""
    gaps = [b - a for a, b in pairwise(times)]
    limit = LEAST_CUT_S
    for _ in range(8):
        limit = max(LEAST_CUT_S, sum(min(gap, limit) for gap in gaps) / CUTS)
    return limit


def knots(moments: Iterable[float], begin: float, end: float) -> tuple[list[Knot], list[tuple[float, float]]]:
    """(knots, cuts): times to places, linear in between; the gaps that are drawn shorter than they were.

    `begin` and `end`: the run proper, s.
    """
    times = sorted({round(t, 4) for t in moments})
    if not times:
        return [(0.0, 0.0), (1.0, 1.0)], []
    limit = cut_s([t for t in times if begin <= t <= end])
    steps, cuts = [], []
    for a, b in pairwise(times):
        steps.append((max(min(b - a, limit), limit * STEP), begin <= a and b <= end))
        if b - a > limit:
            cuts.append((a, b))
    inside = sum(step for step, is_in in steps if is_in)
    outside = sum(step for step, is_in in steps if not is_in)
    narrow = min(1.0, OUTSIDE * inside / outside) if inside and outside else 1.0
    place, found = 0.0, [(times[0], 0.0)]
    for (step, is_in), time in zip(steps, times[1:], strict=True):
        place += step if is_in else step * narrow
        found.append((time, round(place, 6)))
    if len(found) == 1:
        found.append((times[0] + 1, 1.0))
    return found, cuts


def place(of: Sequence[Knot], time: float) -> float:
    """Where a time is."""
    index = min(max(bisect_right(of, time, key=lambda k: k[0]), 1), len(of) - 1)
    (t0, u0), (t1, u1) = of[index - 1], of[index]
    part = (time - t0) / (t1 - t0) if t1 > t0 else 0.0
    return u0 + min(max(part, 0.0), 1.0) * (u1 - u0)
