"""P4 from inside: admission alone, without poll and process, and its disk syncs counted.

The one measurement that imports the product, since from outside an admission cannot be told from its poll.
"""

import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from interlink.mailbox.store import Mailbox
from interlink.session.admission import Admission, Incoming
from interlink.settings import Settings
from interlink.state.files import ensure_root
from interlink.state.paths import Layout
from interlink.trust.identity import Identity
from interlink.trust.wire import Message, sign_message
from interlink_lab.bench.rig import median

ROUNDS = 5


def p4_inside(home: Path, sizes: list[int]) -> dict[str, float]:
    """Milliseconds a message for a batch of 64, and for a single one, at so many records of 1 KiB."""
    out: dict[str, float] = {}
    alice, bob = Identity.generate(), Identity.generate()
    for size in sizes:
        layout = Layout(ensure_root(str(home / f"inside-{size}")))
        mailbox = Mailbox(layout, bob.public, "bench", Settings())
        admission = Admission(layout, mailbox, Settings())
        admission.open(_now())

        def admit(count: int, admission: Admission = admission) -> float:
            batch = [_incoming(alice, bob) for _ in range(count)]
            began = time.perf_counter()
            results = admission.admit(batch, {alice.public: "alice"}, _now())
            took = (time.perf_counter() - began) * 1000
            if any(r.outcome != "stored" for r in results):
                raise RuntimeError("a message was not stored")
            return took

        # A mailbox bounds records at 4,096, so the batches at 4,000 are few.
        rounds = ROUNDS if size <= 1000 else 1
        for start in range(0, size, 64):
            admit(min(64, size - start))
        out[f"{size}_batch64_ms_per_message"] = median([admit(64) / 64 for _ in range(rounds)])
        out[f"{size}_single_ms"] = median([admit(1) for _ in range(ROUNDS)])
        if size == min(sizes):
            out[f"{size}_single_syncs"] = _count_syncs(lambda: admit(1))
    return out


def _count_syncs(action: Callable[[], object]) -> float:
    calls: list[int] = []
    real_fsync, real_fdatasync = os.fsync, os.fdatasync

    def fsync(fd: Any) -> None:
        calls.append(1)
        real_fsync(fd)

    def fdatasync(fd: Any) -> None:
        calls.append(1)
        real_fdatasync(fd)

    os.fsync, os.fdatasync = fsync, fdatasync
    try:
        action()
    finally:
        os.fsync, os.fdatasync = real_fsync, real_fdatasync
    return float(len(calls))


def _incoming(alice: Identity, bob: Identity) -> Incoming:
    msg = Message(sender=alice.public, to=bob.public, text="x" * 1024, ts=_now(), msg_id=secrets.token_hex(16))
    return Incoming(sign_message(msg, alice), 1400)


def _now() -> int:
    return time.time_ns() // 1_000_000
