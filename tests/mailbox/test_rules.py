"""Which message supersedes which, in which order they are fetched, which receipt a collision gets."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.keys import ALICE, CAROL, NOW_MS
from support.mail import ME

from interlink.mailbox import rules, states
from interlink.mailbox.box import tombstone_of
from interlink.mailbox.record import EPHEMERAL, Local, Record, Tombstone, content_fingerprint, task_group
from interlink.trust.wire import Message

TERMINALS = ("result", "failed", "canceled")
A, B = f"{ALICE.public}#a", f"{ALICE.public}#b"


def record(
    msg_id: str,
    status: str | None = None,
    *,
    ts: int = 0,
    task: str | None = "t",
    sender: str = ALICE.public,
    hint: str | None = A,
    seq: int = 0,
    state: str = states.RECEIVER_STORED,
    local: Local | None = None,
) -> Record:
    msg = Message(
        sender=sender,
        to=ME,
        text=msg_id,
        ts=NOW_MS + ts,
        msg_id=msg_id,
        status=status,
        task_id=task,
        reply_to=hint,
    )
    return Record(message=msg, peer="alice", state=state, seq=seq, fp=content_fingerprint(msg), local=local)


def supersede(incoming: Record, records: Iterable[Record] = (), tombs: Iterable[Tombstone] = ()) -> list[str]:
    """Marked earlier ones."""
    return [r.message.msg_id for r in rules.supersede(incoming, records, tombs)]


# --- progress and terminal messages ---------------------------------------------------------------


@pytest.mark.req("M14")
def test_a_newer_update_supersedes_older_progress() -> None:
    old, older = record("old", "update", ts=5), record("older", "update", ts=3)
    new = record("new", "update", ts=9)
    assert supersede(new, [older, old]) == ["older", "old"]
    assert (old.superseded_by, older.superseded_by, new.superseded_by) == ("new", "new", None)
    assert new.unread and not old.unread


@pytest.mark.req("M14")
def test_of_two_updates_at_the_same_time_the_later_arrival_stays() -> None:
    first, second = record("first", "update"), record("second", "update")
    assert supersede(second, [first]) == ["first"]
    assert first.superseded_by == "second" and second.superseded_by is None


@pytest.mark.req("M14")
def test_an_update_that_arrives_late_is_superseded_by_a_newer_one() -> None:
    new, late = record("new", "update", ts=9), record("late", "update", ts=3)
    assert supersede(late, [new]) == []
    assert late.superseded_by == "new" and new.superseded_by is None


@pytest.mark.req("M14")
@pytest.mark.parametrize("end", TERMINALS)
def test_a_terminal_message_supersedes_progress_whenever_that_arrives(end: str) -> None:
    # Newer progress as well: the clock of a second process may be ahead of the one that ends the task.
    early, ahead = record("early", "update", ts=1), record("ahead", "update", ts=99)
    done = record("done", end, ts=50)
    assert supersede(done, [early, ahead]) == ["early", "ahead"]
    assert done.unread and done.superseded_by is None
    late, late_ahead = record("late", "update", ts=2), record("late-ahead", "update", ts=999)
    for one in (late, late_ahead):
        assert supersede(one, [done]) == []
        assert one.superseded_by == "done" and not one.unread
    assert done.unread


@pytest.mark.req("M14")
@pytest.mark.parametrize("end", TERMINALS)
def test_an_acknowledged_terminal_message_still_ends_the_task(end: str) -> None:
    done = record("done", end, state=states.RECEIVER_ACKNOWLEDGED)
    late = record("late", "update", ts=5)
    supersede(late, [done])
    assert late.superseded_by == "done"


@pytest.mark.req("M14", "M16")
@pytest.mark.parametrize("end", TERMINALS)
def test_a_terminal_tombstone_still_ends_the_task(end: str) -> None:
    tomb = tombstone_of(record("done", end, state=states.RECEIVER_ACKNOWLEDGED))
    late = record("late", "update", ts=5)
    supersede(late, (), [tomb])
    assert late.superseded_by == "done"
    other = record("other", "update", ts=5, task="t2")
    supersede(other, (), [tomb])
    assert other.unread


@pytest.mark.req("M14", "M16")
def test_a_tombstone_of_newer_progress_supersedes_what_comes_late_and_not_what_is_newer() -> None:
    tomb = tombstone_of(record("read", "update", ts=5, state=states.RECEIVER_ACKNOWLEDGED))
    late, new = record("late", "update", ts=3), record("new", "update", ts=9)
    for one in (late, new):
        supersede(one, (), [tomb])
    assert late.superseded_by == "read" and new.unread


@pytest.mark.req("M14")
def test_read_progress_is_not_marked_again() -> None:
    read = record("read", "update", ts=1, state=states.RECEIVER_ACKNOWLEDGED)
    marked = record("marked", "update", ts=1)
    marked.superseded_by = "before"
    assert supersede(record("new", "update", ts=9), [read, marked]) == []
    assert read.superseded_by is None and marked.superseded_by == "before"


@pytest.mark.req("M14")
@pytest.mark.parametrize(
    "other",
    [
        record("o", "update", task="other"),
        record("o", "update", hint=B),
        record("o", "update", hint=None),
        record("o", "update", sender=CAROL.public),
        record("o", "update", task=None),
    ],
    ids=["task", "session hint", "no hint", "sender", "no task"],
)
@pytest.mark.parametrize("status", ["update", *TERMINALS])
def test_only_the_same_sender_session_and_task_counts(other: Record, status: str) -> None:
    assert supersede(record("new", status, ts=9), [other]) == []
    assert other.unread
    # and the other way round: what comes late in another group is not superseded either
    late = record("late", "update", task=other.message.task_id, sender=other.message.sender, ts=-9)
    late.message.reply_to = other.message.reply_to
    supersede(late, [record("done", status, ts=9)], [tombstone_of(record("done", "result"))])
    assert late.unread


@pytest.mark.req("M14")
def test_without_a_task_nothing_is_superseded() -> None:
    first = record("first", "update", task=None)
    for status in ("update", *TERMINALS):
        assert supersede(record("next", status, ts=9, task=None), [first]) == []
    assert first.unread


@pytest.mark.req("M14")
@pytest.mark.parametrize("status", [None, "needs_input"])
def test_questions_and_plain_messages_are_kept_one_by_one(status: str | None) -> None:
    plain = record("plain", status)
    for incoming in ("update", *TERMINALS, "needs_input", None):
        assert supersede(record("next", incoming, ts=9), [plain]) == []
    assert plain.unread
    progress = record("progress", "update")
    assert supersede(record("ask", status, ts=9), [progress]) == []
    assert progress.unread
    # progress that is older than a question of the same task is still progress to read
    late = record("late", "update", ts=-9)
    supersede(late, [plain])
    assert late.unread


@pytest.mark.req("M14")
def test_a_terminal_message_supersedes_no_other_one() -> None:
    ends = [record(end, end) for end in TERMINALS]
    assert supersede(record("again", "result", ts=9), ends) == []
    assert all(r.unread for r in ends)


@pytest.mark.req("M14")
@given(
    st.lists(
        st.tuples(
            st.sampled_from([None, "needs_input", "update", "result", "failed"]),
            st.integers(0, 4),
            st.sampled_from(["t", "u", None]),
        ),
        max_size=12,
    )
)
def test_in_any_order_of_arrival_the_same_progress_stays_unread(
    arrivals: list[tuple[str | None, int, str | None]],
) -> None:
    """The newest update of each open task, and none of an ended one; everything else is untouched."""
    got: list[Record] = []
    for at, (status, ts, task) in enumerate(arrivals):
        incoming = record(f"m{at}", status, ts=ts, task=task)
        rules.supersede(incoming, got, ())
        got.append(incoming)
    for task in ("t", "u"):
        mine = [r for r in got if r.message.task_id == task]
        ended = any(r.is_terminal for r in mine)
        updates = [r for r in mine if r.is_update]
        newest = max((r.message.ts for r in updates), default=0)
        open_ = [r for r in updates if r.unread]
        expected = [] if ended or not updates else [[r for r in updates if r.message.ts == newest][-1]]
        assert open_ == expected
    assert all(r.unread for r in got if not r.is_update or r.message.task_id is None)


# --- ephemeral ------------------------------------------------------------------------------------


def local(msg_id: str, supersedes: str | None, *, sender: str = "local:ci", klass: str = EPHEMERAL) -> Record:
    return record(
        msg_id, None, task=None, sender=sender, hint=None, local=Local(klass=klass, supersedes=supersedes)
    )


@pytest.mark.req("M23")
def test_a_later_ephemeral_message_with_the_same_key_retires_the_earlier() -> None:
    started, other = local("started", "turn"), local("other", "connection")
    assert supersede(local("ended", "turn"), [started, other]) == ["started"]
    assert started.superseded_by == "ended" and other.unread


@pytest.mark.req("M23")
def test_ephemeral_messages_retire_nothing_else() -> None:
    actionable = local("act", "turn", klass="actionable")
    foreign = local("foreign", "turn", sender="local:other")
    unnamed = local("unnamed", None)
    peer = record("peer", "update")
    assert supersede(local("new", "turn"), [actionable, foreign, unnamed, peer]) == []
    assert supersede(local("new", None), [actionable, foreign, unnamed, peer]) == []
    # and no actionable one is superseded because it names a key
    assert supersede(local("act2", "turn", klass="actionable"), [local("e", "turn")]) == []


# --- order, pages, ids ----------------------------------------------------------------------------


@pytest.mark.req("M4")
def test_a_fetch_is_ordered_non_progress_first_then_by_arrival() -> None:
    got = [
        record("u1", "update", seq=1, task="x"),
        record("q", None, seq=2, ts=99),
        record("u2", "update", seq=3, task="y"),
        record("r", "result", seq=4, ts=-99),
        record("seen", None, seq=5, state=states.RECEIVER_ACKNOWLEDGED),
        record("aside", None, seq=6, state=states.UNDELIVERABLE),
    ]
    assert [r.message.msg_id for r in rules.fetch_order(reversed(got))] == ["q", "r", "u1", "u2"]


@pytest.mark.req("M4")
@given(st.lists(st.booleans(), max_size=12), st.integers(1, 5))
def test_pages_by_the_last_receipt_cover_each_message_once(updates: list[bool], limit: int) -> None:
    got = [record(f"m{n}", "update" if u else None, seq=n, task=None) for n, u in enumerate(updates, 1)]
    ordered = rules.fetch_order(got)
    seen: list[Record] = []
    place = None
    while page := rules.page_after(ordered, place)[:limit]:
        seen += page
        place = (page[-1].is_update, page[-1].seq)
    assert seen == ordered


@pytest.mark.req("M20")
def test_the_alias_of_a_collision_depends_on_id_and_content_alone() -> None:
    one, two = record("m", "update"), record("m", "result")
    assert rules.collision_alias("m", one.fp) == rules.collision_alias("m", record("m", "update", ts=77).fp)
    assert len({rules.collision_alias("m", r.fp) for r in (one, two)} | {"m"}) == 3


@pytest.mark.req("M20")
@pytest.mark.parametrize("field", ["kind", "text", "status", "task_id", "in_reply_to"])
def test_body_and_task_fields_make_the_fingerprint_and_time_does_not(field: str) -> None:
    base = record("m", "update").message
    changed = record("m", "update", ts=1234).message
    changed.sig, changed.reply_to = "another", B
    assert content_fingerprint(base) == content_fingerprint(changed)
    setattr(changed, field, "other")
    assert content_fingerprint(base) != content_fingerprint(changed)
    # the border between two fields is part of it
    left, right = record("m").message, record("m").message
    left.task_id, left.in_reply_to, right.task_id, right.in_reply_to = "ab", "c", "a", "bc"
    assert content_fingerprint(left) != content_fingerprint(right)


@pytest.mark.req("M14")
def test_task_groups_differ_in_each_part() -> None:
    base = record("m", "update")
    others = [
        record("m", "update", task="u"),
        record("m", "update", hint=B),
        record("m", "update", sender=CAROL.public),
    ]
    assert len({task_group(r.message) for r in (base, *others)}) == 4
    assert task_group(record("m", task=None).message) is None
