"""The lab's scenarios with the programs of the public Rust system in place of ours: what was recorded of them.

docs/interop.md says what each row means. A row that does not hold any more, for better or worse, is news.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from host_tests.lab import run

PATIENCE_S = "20"  # where something is waited for that does not come; all others get the lab's own guard time


class Row(NamedTuple):
    """What breaks in a scenario: each time (`broken`), or in some runs (`may`). `cut`: it stops before its end."""

    broken: frozenset[str] = frozenset()
    may: frozenset[str] = frozenset()
    cut: bool = False


OUTLIVES = {"nothing-left-running", "locks-free"}  # the listener stays when its host was killed
RECORDED = {
    "cross-host": Row(),
    "small-batches": Row(),
    "pile-up": Row(),
    "relay-restart": Row(),
    "federated": Row(),
    "exact-acks": Row(),
    "delegation": Row(may=frozenset({"consumed-wakes-nobody"})),
    "orphan-listener": Row(frozenset(OUTLIVES)),
    # Cut short, since that listener does not end: the message is still on the relay.
    "host-killed": Row(frozenset({*OUTLIVES, "accepted-stored-once"})),
    "sender-killed": Row(frozenset({"accepted-stored-once"})),  # the outbox is in memory
    # Killed between fetch and acknowledgement, where the kill is in time: no notice before the next message. Cut
    # short at a step that is known from a line of our server's log.
    "restart-each-step": Row(may=frozenset({"idle-wake"}), cut=True),
    # A copy for another session of the key: it is stored there too; a signed text under a known id is dropped.
    "gate": Row(frozenset({"acked-never-again", "accepted-stored-once"})),
}


@pytest.mark.timeout(400)
@pytest.mark.req("B7", "V1")
@pytest.mark.parametrize("name", RECORDED)
def test_what_was_recorded_holds(name: str, peer: Callable[[], Path], tmp_path: Path) -> None:
    row = RECORDED[name]
    patience = ["--patience", PATIENCE_S] if row.broken or row.cut else []
    verdict = run(name, tmp_path, *patience, INTERLINK_LAB_BIN=str(peer()))
    found = {violation["invariant"] for violation in verdict["violations"]}
    assert row.broken <= found <= row.broken | row.may, verdict
    assert verdict["result"] == ("failed" if found else "broken" if row.cut else "passed"), verdict["error"]
