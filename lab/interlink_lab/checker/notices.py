"""Invariants of waking: an idle host is woken in time, and no more often than the schedule allows."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from interlink_lab.checker.model import Facts, Stored, Violation
from interlink_lab.history import Event
from interlink_lab.tokens import NOTICE_ID, TOKEN

SLACK_S = 8.0  # a loaded machine; a wake that never comes is later than that
START_LATE_S = 5.0  # `codex queue` starts that much later than its notice is decided on, at the most
SEEN_LATE_S = 1.0  # the watcher sees a change a little later than it is made
TOLERANCE = 0.15  # of an interval of the schedule, for clocks that are read at two places
CRASH_WINDOW_S = 2.0  # a notice before a crash may be handed off again (M9)
CLOCK = ("clock",)
STORAGE = ("corrupt", "truncate", "in-the-way", "disk-full", "read-only", "unreadable")
QUIETING = ("pause", "slow-sync", "clock", *STORAGE)
HEADINGS = ("[Interlink inbox notice]", "[Interlink pairing notice]", "interlink listener renewal", "[interlink")


class Notice(NamedTuple):
    """One handoff to a host: an inbox line, a push through the channel, or a call of the queue program."""

    at: float
    session: str
    ident: str
    through: int | None
    event: Event


def no_body_in_a_notice(facts: Facts) -> Iterator[Violation]:
    """no-body-in-notice: nothing that wakes a host has a token of a message in it (M3)."""
    for event in facts.of("inbox", "failed", "queue"):
        if event.get("token"):
            yield Violation("no-body-in-notice", f"{event['kind']} holds {event['token']}", [event])
    for event in facts.of("exit", "wake", "push"):
        found = TOKEN.search(event.get("text", ""))
        if found:
            yield Violation("no-body-in-notice", f"what woke the host holds {found[1]}", [event])


def exit_2_is_a_wake(facts: Facts) -> Iterator[Violation]:
    """exit-2-is-a-wake: a listener that exits 2 says why in one of the product's own notices (H1, C2)."""
    for event in facts.by_kind["exit"]:
        if event["party"].endswith(".listener") and event["code"] == 2:
            text = event.get("text", "")
            if not any(heading.lower() in text.lower() for heading in HEADINGS):
                yield Violation("exit-2-is-a-wake", f"exit 2 with {text[:80]!r}", [event])


def notices(facts: Facts) -> dict[str, list[Notice]]:
    """By session: what was handed to its host, by time."""
    found: dict[str, list[Notice]] = defaultdict(list)
    reserved: dict[str, float] = {}
    # The server's line and the look at the file come a little after the deed, each by its own delay.
    through = {e["id"]: e["through"] for e in facts.by_kind["reservation"] if e.get("id")}
    for event in facts.of("inbox", "push", "queue"):
        if event["kind"] != "queue" and (event["what"] != "notice" or not event["notice"]):
            continue
        at = event["t"]
        if event["kind"] != "queue":
            at = min(at, facts.told.get(event["notice"], event)["t"])
        else:
            # Tries of one handoff have one reservation, which began with the first; one that succeeded ends it.
            at = reserved.setdefault(event["notice"], at)
            if not event["notice"] or event["outcome"] not in ("ok", "timeout"):
                continue  # a definite failure costs no step (M25)
            del reserved[event["notice"]]
        covers = event.get("through", through.get(event["notice"]))
        found[event["session"]].append(Notice(at, event["session"], event["notice"], covers, event))
    return found


def _unread(entries: list[Stored], at: float, margin: float, progress: bool = False) -> list[Stored]:
    """Records that were unread at a time, or within `margin` s of it."""
    found = []
    for entry in entries:
        consumed = entry.consumed_at
        if entry.quiet is not progress or entry.states[-1][1] == "undeliverable":
            continue
        if entry.stored_from <= at + margin and (consumed is None or consumed >= at - margin):
            found.append(entry)
    return found


def _waited(entry: Stored, until: float) -> bool:
    """Whether it was surely unread all the time to `until`."""
    if entry.asked_at is not None and entry.asked_at <= until:
        return False
    return entry.consumed_from is None or entry.consumed_from > until


def notices_follow_the_schedule(facts: Facts) -> Iterator[Violation]:
    """duplicate-notice: while what a notice covers is unread, the next one keeps to the schedule (M7, M18)."""
    schedule = facts.schedule_s
    decided = _decided(facts)
    for session, rows in notices(facts).items():
        attempt = 0
        for before, after in pairwise(rows):
            through = before.through if before.through is not None else None
            covered = [
                e for e in facts.by_session[session]
                if (e.seq <= through if through is not None else e.first["t"] <= before.at) and not e.quiet
            ]  # fmt: skip
            waiting = [e for e in covered if _waited(e, after.at)]
            if not waiting:
                attempt = 0
                continue
            gap, least = _gap(decided, before, after), schedule[min(attempt, len(schedule) - 1)] * (1 - TOLERANCE)
            attempt += before.ident != after.ident  # a handoff that a crash broke off is made again
            if gap >= least or _asked(facts, after) or _explained(facts, before, after):
                continue
            yield Violation(
                "duplicate-notice",
                f"two notices {gap:.2f} s apart, {least:.2f} s at least are due; {waiting[0].token} was unread",
                [before.event, after.event, waiting[0].first],
            )


def _decided(facts: Facts) -> list[dict[str, float]]:
    """By notice, when it was decided on, s, by two witnesses: its reservation in the file, and the server's line
    behind the handoff, which says how long that took. Each may be missed."""
    made = {e["id"]: e["made_ms"] / 1000 for e in facts.by_kind["reservation"] if e.get("made_ms")}
    told = {k: e["t"] - float(e["fields"]["ms"]) / 1000 for k, e in facts.told.items() if "ms" in e["fields"]}
    return [made, told]


def _gap(decided: list[dict[str, float]], before: Notice, after: Notice) -> float:
    """Seconds between two notices: as they were seen, or as they were decided on where they were seen late."""
    known = [d[after.ident] - d[before.ident] for d in decided if before.ident in d and after.ident in d]
    return max(after.at - before.at, *known) if known else after.at - before.at


def _explained(facts: Facts, before: Notice, after: Notice) -> bool:
    """Whether something allows a notice to be repeated: the clock, the storage, a crash amid a handoff, a message
    that its sender made anew (M24), whose mark in the file may be seen after the notice that it brought."""
    host, session, begin, end = before.event["party"].partition(".")[0], before.session, before.at, after.at
    if facts.faulty(begin - SEEN_LATE_S, end, host, kinds=(*CLOCK, *STORAGE)):
        return True
    if any(
        e["session"] == session and begin - SEEN_LATE_S <= e["t"] and e["t"] - e.get("late", 0.0) <= end
        for e in facts.by_kind["remade"]
    ):
        return True
    return any(
        begin - CRASH_WINDOW_S <= e["t"] <= min(begin + CRASH_WINDOW_S, end)
        and e["party"] == f"{host}.server"
        and e.get("code") not in (0, None)
        for e in facts.by_kind["exit"]
    )


def _asked(facts: Facts, row: Notice) -> bool:
    """Whether somebody asked for this handoff by `failed_deliveries` (`asked` events)."""
    return any(e["t"] <= row.at and e["notice"] == row.ident for e in facts.by_kind["asked"])


def _woken(facts: Facts) -> Iterator[tuple[str, str, Event]]:
    """(session, notice id, event) of each listener's exit 2 with an inbox notice."""
    started = {(e["party"], e["pid"]): e for e in facts.by_kind["start"] if e["party"].endswith(".listener")}
    for event in facts.by_kind["exit"]:
        if not event["party"].endswith(".listener") or event["code"] != 2:
            continue
        idents = NOTICE_ID.findall(event.get("text", ""))
        begun = started.get((event["party"], event["pid"]))
        host = event["party"].partition(".")[0]
        session = facts.serves(host, event["t"]) or (begun["session"] if begun else "")
        for ident in idents:
            yield session, ident, event


def one_wake_a_notice(facts: Facts) -> Iterator[Violation]:
    """one-wake-a-notice: no two listeners wake their host with the same notice (C3, C7)."""
    seen: dict[tuple[str, str], Event] = {}
    lines = Counter(
        (e["session"], e["notice"]) for e in facts.by_kind["inbox"]
    )  # a crash may repeat a handoff (M9)
    wakes = Counter((session, ident) for session, ident, _event in _woken(facts))
    for session, ident, event in _woken(facts):
        other = seen.setdefault((session, ident), event)
        host = event["party"].partition(".")[0]
        if wakes[session, ident] <= lines[session, ident]:
            continue
        if other is not event and not facts.faulty(other["t"] - 1, event["t"] + 1, host, kinds=STORAGE):
            yield Violation("one-wake-a-notice", f"notice {ident} woke the host twice", [other, event])


def wakes_are_for_something(facts: Facts) -> Iterator[Violation]:
    """consumed-wakes-nobody, progress-wakes-nobody: a wake has something unread that deserves it (C11, M14)."""
    for session, _ident, event in _woken(facts):
        host = event["party"].partition(".")[0]
        if facts.faulty(event["t"] - 2, event["t"] + 1, host, kinds=STORAGE):
            continue
        entries = facts.by_session[session]
        if _unread(entries, event["t"], SEEN_LATE_S):
            continue
        if _unread(entries, event["t"], SEEN_LATE_S, progress=True):
            name, why = "progress-wakes-nobody", "only progress was unread"
        else:
            name, why = "consumed-wakes-nobody", "nothing was unread"
        yield Violation(name, f"{host} was woken at {event['t']:.3f} s and {why}", [event])
    for session, rows in notices(facts).items():
        for row in rows:
            margin = START_LATE_S if row.event["kind"] == "queue" else SEEN_LATE_S
            worthy = _unread(facts.by_session[session], row.at, margin)
            progress = _unread(facts.by_session[session], row.at, margin, progress=True)
            if progress and not worthy:
                yield Violation("progress-wakes-nobody", "a notice for progress alone", [row.event])
            host = row.event["party"].partition(".")[0]
            excused = _asked(facts, row) or facts.faulty(row.at - 2, row.at + 1, host, kinds=STORAGE)
            if row.event["kind"] != "inbox" and not worthy and not progress and not excused:
                yield Violation(
                    "consumed-wakes-nobody", "a notice for the host, and nothing was unread", [row.event]
                )


def idle_hosts_are_woken(facts: Facts) -> Iterator[Violation]:
    """idle-wake: no listener stays armed beside unread mail for longer than the schedule and a margin (M7, M9)."""
    bound = max(facts.schedule_s) + SLACK_S
    wakes: dict[str, list[float]] = defaultdict(list)
    for gone in facts.by_kind["exit"]:
        if gone["party"].endswith(".listener") and gone["code"] == 2:
            wakes[gone["party"].partition(".")[0]].append(gone["t"])
    for session, host, begin, end, event in _spans(facts, "armed", "unarmed"):
        for up, down in _server_up(facts, host):
            entries = [e for e in facts.by_session[session] if not e.quiet and e.states[-1][1] != "undeliverable"]
            for entry in entries:
                last = entry.consumed_at if entry.consumed_at is not None else facts.ended
                a, b = max(begin, up, entry.first["t"]), min(end, down, last, facts.ended)
                a = max([a, *(f[1] for f in _quieted(facts, host) if f[0] <= b and f[1] >= a)])
                # Between two looks at the locks a listener may have woken the host, and the next one have armed.
                a, b = max(pairwise([a, *(t for t in wakes[host] if a < t < b), b]), key=lambda s: s[1] - s[0])
                if b - a > bound and not facts.quarantined(entry, a):
                    yield Violation(
                        "idle-wake",
                        f"{host} listened for {b - a:.1f} s beside unread {entry.token or entry.msg_id} and was "
                        f"not woken; {bound:g} s are allowed",
                        [entry.first, event],
                    )
                    break


def _quieted(facts: Facts, host: str) -> list[tuple[float, float, Event]]:
    return [f for f in facts.faults if f[2]["target"].partition(".")[0] == host and f[2]["fault"] in QUIETING]


def _spans(facts: Facts, opens: str, closes: str) -> Iterator[tuple[str, str, float, float, Event]]:
    """(session, host, begin, end, event) between two kinds of events of a session."""
    begun: dict[str, Event] = {}
    for event in facts.of(opens, closes):
        session = event["session"]
        if event["kind"] == opens:
            begun.setdefault(session, event)
        elif session in begun:
            start = begun.pop(session)
            yield session, start["party"].partition(".")[0], start["t"], event["t"], start
    for session, start in begun.items():
        yield session, start["party"].partition(".")[0], start["t"], facts.ended, start


def _server_up(facts: Facts, host: str) -> Iterator[tuple[float, float]]:
    """Spans in which a server of the host ran."""
    begun: float | None = None
    for event in facts.of("start", "exit"):
        if event["party"] != f"{host}.server":
            continue
        if event["kind"] == "start":
            begun = event["t"]
        elif begun is not None:
            yield begun, event["t"]
            begun = None
    if begun is not None:
        yield begun, facts.ended


CHECKS = (
    no_body_in_a_notice,
    exit_2_is_a_wake,
    notices_follow_the_schedule,
    one_wake_a_notice,
    wakes_are_for_something,
    idle_hosts_are_woken,
)
