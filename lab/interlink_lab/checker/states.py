"""Invariants of states and files: the table of transitions, supersession, files that parse, free locks."""

from collections import defaultdict
from collections.abc import Iterator

from interlink_lab.checker.model import Facts, Stored, Violation
from interlink_lab.checker.notices import QUIETING, notices

HANDED = ("inbox_queued", "notification_sent", "host_queued", "delivery_failed")
DONE = HANDED[:3]
SETTLED_S = 5.0  # a handoff is written down behind its log line, on a loaded machine too
EDGES: dict[str, set[str]] = {
    "receiver_stored": {*HANDED, "receiver_acknowledged"},
    **{state: {*HANDED, "receiver_acknowledged"} for state in HANDED},
    "receiver_acknowledged": set(),
    "undeliverable": set(),
    "expired": set(),
}
FINAL = ("result", "failed", "canceled")
CORRUPTING = ("corrupt", "truncate")
WRITERS = ("server", "second", "host")  # with its host a server ends too, unseen


def states_along_the_table(facts: Facts) -> Iterator[Violation]:
    """state-edges: a record's states, as files show them, go along the edges of S3, some unseen."""
    for entry in facts.stored:
        for before, after, event in zip(entry.states, entry.states[1:], entry.events[1:], strict=False):
            if before[1] != after[1] and after[1] not in EDGES.get(before[1], set()):
                yield Violation(
                    "state-edges",
                    f"{entry.token or entry.msg_id}: {before[1]} -> {after[1]}",
                    [entry.first, event],
                )


def progress_is_superseded(facts: Facts) -> Iterator[Violation]:
    """progress-superseded: no fetch shows progress that a newer update or its task's end replaced (M14)."""
    by_session: dict[tuple[str, str], list[Stored]] = defaultdict(list)
    for entry in facts.stored:
        if entry.task:
            by_session[entry.identity, entry.task].append(entry)
    known = {(s.identity, s.sender, s.receipt_id): s for s in facts.stored}
    for answer in facts.by_kind["fetch"]:
        identity = facts.keys.get(answer["party"].partition(".")[0], "")
        begin = facts.began(answer)
        began = begin["t"] if begin is not None else answer["t"]
        for message in answer["messages"]:
            shown = known.get((identity, message["sender"], message["msg_id"]))
            if shown is None or not shown.progress or not shown.task:
                continue
            for other in by_session[identity, shown.task]:
                same = all(getattr(other, k) == getattr(shown, k) for k in ("sender", "session", "reply_to"))
                if other is shown or not same:
                    continue
                newer = other.status in FINAL or (other.progress and (other.ts, other.seq) > (shown.ts, shown.seq))
                if newer and other.first["t"] < began:
                    yield Violation(
                        "progress-superseded",
                        f"{shown.token} is shown although {other.token} ({other.status}) replaced it",
                        [shown.first, other.first, answer],
                    )


def files_parse(facts: Facts) -> Iterator[Violation]:
    """files-parse: each state file, and each whole line of a log, parses at every look (T2).

    Unless the lab itself damaged it. A line of the outbox that a killed process cut is ended by the next one, and
    stays; inbox and replay memory have such a line removed.
    """
    for event in facts.by_kind["unparsable"]:
        host = event["party"].partition(".")[0]
        begin = event["t"] - event.get("late", 0.0) - 1
        if facts.faulty(begin, event["t"] + 1, host, kinds=CORRUPTING):
            continue
        if event["store"] == "outbox" and _killed_before(facts, host, event["t"]):
            continue
        yield Violation("files-parse", f"{event['file']}: {event['error']}", [event])


def _killed_before(facts: Facts, host: str, at: float) -> bool:
    """Whether a process that writes an outbox of the host's identity ended otherwise than in good order."""
    parties = {f"{mate}.{part}" for mate in facts.mates(host) for part in WRITERS}
    return any(e["party"] in parties and e["t"] <= at and e.get("code") != 0 for e in facts.by_kind["exit"])


def nothing_is_left(facts: Facts) -> Iterator[Violation]:
    """nothing-left-running and locks-free: after the end no process and no held lock is there (X6, C3)."""
    for event in facts.by_kind["leftovers"]:
        if event.get("processes"):
            argv = "; ".join(row["argv"] for row in event["processes"][:3])
            yield Violation("nothing-left-running", f"on {event['node']}: {argv}", [event])
        if event.get("locks"):
            yield Violation("locks-free", f"on {event['node']}: {', '.join(event['locks'][:3])}", [event])


def states_advance(facts: Facts) -> Iterator[Violation]:
    """state-advances: what a notice covers that a host was handed is `receiver_stored` no longer (S3)."""
    for session, rows in notices(facts).items():
        for row in rows:
            log, host = facts.told.get(row.ident), row.event["party"].partition(".")[0]
            if log is None or log["fields"].get("state") not in DONE or row.through is None:
                continue
            begin, end = log["t"], log["t"] + SETTLED_S
            if end > facts.ended or facts.restarted(host, begin, end):
                continue
            if facts.faulty(begin - 1, end, *facts.mates(host), kinds=QUIETING):
                continue
            for entry in facts.by_session[session]:
                at = [state for t, state, _superseded in entry.states if t <= end]
                known = entry.seq <= row.through and entry.first["t"] <= row.at and not entry.quiet
                stays = at and at[-1] == "receiver_stored" and (entry.consumed_at or end) >= end
                if known and stays and not facts.quarantined(entry, begin):
                    yield Violation(
                        "state-advances",
                        f"{entry.token or entry.msg_id} is receiver_stored {SETTLED_S:g} s after notice "
                        f"{row.ident} ended in {log['fields']['state']}",
                        [entry.first, row.event, log],
                    )


def consumed_by_the_agent_alone(facts: Facts) -> Iterator[Violation]:
    """consumed-when-acked: nobody but the agent consumes a message: a receipt was given back for it (M4, M5)."""
    given: dict[tuple[str, str, str], float] = {}
    for event in facts.of("ack.begin"):
        identity = facts.keys.get(event["party"].partition(".")[0], "")
        for receipt in event["receipts"]:
            given.setdefault((identity, receipt["sender"], receipt["msg_id"]), event["t"])
    readers = facts.of("history.begin", "consume")
    for entry in facts.stored:
        for (at, state, superseded), event in zip(entry.states, entry.events, strict=True):
            if state != "receiver_acknowledged" or superseded:
                continue
            began = given.get((entry.identity, entry.sender, entry.receipt_id))
            if (began is None or began > at) and not entry.local and not any(e["t"] <= at for e in readers):
                yield Violation(
                    "consumed-when-acked", f"{entry.token or entry.msg_id} is consumed and nobody asked", [event]
                )
            break


def damaged_files_stay(facts: Facts) -> Iterator[Violation]:
    """corrupt-untouched: a file that the lab damaged is still there as it was when it is mended (M17)."""
    for event in facts.by_kind["overwritten"]:
        yield Violation("corrupt-untouched", f"the damaged {event['file']} file was changed", [event])


CHECKS = (
    consumed_by_the_agent_alone,
    states_along_the_table,
    states_advance,
    progress_is_superseded,
    files_parse,
    nothing_is_left,
    damaged_files_stay,
)
