"""What a run of the host tests ran with: one line for each program, and at the end how its tests went.

A test is counted under each program that it asked for (`host`, `need`); the rest under `no other program`.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from interlink_lab.tools import hosts

PROPERTY = "program"
MEASURED = "measured"
NONE = "no other program"


def programs(base: Path) -> list[str]:
    """One line for each pinned version: where it is, as seen from `base`, or that it is missing."""
    lines = []
    for row in hosts.rows():
        folder = hosts.peer() if row.name == hosts.PEER else row.program if row.program.is_file() else None
        place = os.path.relpath(folder, base) if folder else "missing: ./dev hosts-install"
        lines.append(f"host-test: {row.name} {row.version}: {place}")
    return lines


def used(report: pytest.TestReport) -> list[str]:
    """The programs that this test asked for."""
    return list(dict.fromkeys(str(value) for name, value in report.user_properties if name == PROPERTY)) or [NONE]


def measures(reports: Iterable[tuple[str, pytest.TestReport]]) -> list[str]:
    """What tests measured, with the programs that they used. `reports`: (outcome, report)."""
    return sorted(
        f"host-test: {', '.join(used(report))}: {value}"
        for _outcome, report in reports
        for name, value in report.user_properties
        if name == MEASURED
    )


def table(reports: Iterable[tuple[str, pytest.TestReport]]) -> list[str]:
    """Program, and its tests that passed, failed, were skipped. `reports`: (outcome, report)."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome, report in reports:
        for name in used(report):
            rows[name][outcome] += 1
    order = [f"{row.name} {row.version}" for row in hosts.rows()]
    names = sorted(rows, key=lambda name: (order.index(name) if name in order else len(order), name))
    width = max([len(name) for name in names], default=0)
    return [
        f"host-test: {name:{width}}  "
        + ", ".join(f"{rows[name][outcome]} {outcome}" for outcome in ("passed", "failed", "skipped"))
        for name in names
    ]
