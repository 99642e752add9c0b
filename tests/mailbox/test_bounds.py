"""A full mailbox: nothing unread is given up, acknowledging works and frees room at once (M15 to M17, F12)."""

import pytest
from support.keys import NOW_MS
from support.mail import DAY_MS, PEER, WINDOW_MS, Desk, note, settings

from interlink.mailbox import states
from interlink.mailbox.box import Box
from interlink.settings import Settings


def fill(desk: Desk, count: int, text: str = "hello", start: int = 0) -> list[str]:
    """Admit this many in batches; the outcomes."""
    out: list[str] = []
    for at in range(start, start + count, 256):
        out += desk.admit(*(note(f"m{n}", text) for n in range(at, min(at + 256, start + count))))
    return out


# --- the number of records ------------------------------------------------------------------------


@pytest.mark.req("M15", "M16", "M17")
def test_the_default_number_of_records_then_one_more_then_one_acknowledgement(
    state_root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = Desk(state_root)
    assert Settings.mailbox_max_records == 4096
    assert fill(desk, 4096) == ["stored"] * 4096
    extra = note("extra")
    for _ in range(2):
        (result,) = desk.admitted(extra)
        assert result.outcome == "kept" and not result.settled
    assert desk.admission.full
    assert capsys.readouterr().err.count("event=mailbox_full") == 1, "said when it changes, not at each poll"
    assert len(desk.unread()) == 4096
    # what needs no room is settled all the same
    assert desk.admit(note("m7"), note("old", ts=NOW_MS - 2 * DAY_MS)) == ["repeat", "expired"]
    assert desk.admission.full, "a refusal does not say that there is room"
    assert desk.reserve() is not None and desk.settle("n1", states.INBOX_QUEUED)
    assert desk.ack("m100").newly == 1
    assert desk.admit(extra, note("more")) == ["stored", "kept"]
    unread = desk.reopened().unread()
    assert len(unread) == 4096 and unread[-1].receipt_id == "extra"
    box = desk.mailbox.read()
    assert list(box.tombstones) == [(PEER, "m100")]
    desk.ack("m101")
    assert desk.admit(note("more")) == ["stored"]
    assert not desk.admission.full and "event=mailbox_has_room" in capsys.readouterr().err


@pytest.mark.req("M16")
def test_consumed_bodies_go_oldest_first_and_only_as_many_as_needed(state_root: str) -> None:
    desk = Desk(state_root, set_to=settings(mailbox_max_records=6))
    fill(desk, 6)
    for n in (3, 1, 5):
        desk.now += 1000
        desk.ack(f"m{n}")
    desk = desk.reopened()  # the order is that of consumption, after a restart as well
    for arrival, buried in (("a", [3]), ("b", [3, 1]), ("c", [3, 1, 5])):
        assert desk.admit(note(arrival)) == ["stored"]
        assert list(desk.mailbox.read().tombstones) == [(PEER, f"m{n}") for n in buried]
    assert desk.admit(note("d")) == ["kept"]
    assert desk.ids() == ["m0", "m2", "m4", "a", "b", "c"]


@pytest.mark.req("M16", "G5")
def test_a_tombstone_keeps_what_receipts_and_repeats_need(state_root: str) -> None:
    desk = Desk(state_root, set_to=settings(mailbox_max_records=1))
    desk.admit(note("m1", "one"))
    (record,) = desk.unread()
    desk.ack("m1")
    assert desk.admit(note("m1", "two")) == ["stored"]  # a collision; the first one is buried for it
    tomb = desk.reopened().mailbox.read().tombstones[(PEER, "m1")]
    assert (tomb.delivery_id, tomb.fp, tomb.seq) == (record.delivery_id, record.fp, record.seq)
    assert (tomb.state, tomb.arrived_ms, tomb.done_ms) == (states.RECEIVER_ACKNOWLEDGED, NOW_MS, NOW_MS)
    assert desk.admit(note("m1", "one"), note("m1", "two")) == ["repeat", "repeat"]
    assert (desk.ack("m1").already, desk.ack("unknown").unknown) == (1, 1)
    alias = desk.unread()[0].receipt_id
    desk.ack(alias)
    desk.admit(note("m3"))
    assert {f.key[1] for f in desk.mailbox.find("m1", PEER)} == {"m1", alias}, "by its own id too"
    assert desk.reopened("s2").admit(note("m1", "one"), note("m1", "two")) == ["replay", "replay"]


@pytest.mark.req("M16")
def test_tombstones_have_a_cap_and_the_memory_stays_whole(state_root: str) -> None:
    desk = Desk(state_root, set_to=settings(mailbox_max_records=2, tombstone_max=16, message_max_bytes=1024))
    for n in range(40):
        desk.admit(note(f"m{n}"))
        desk.ack(f"m{n}")
    assert list(desk.mailbox.read().tombstones) == [(PEER, f"m{n}") for n in range(22, 38)]
    for n in range(20):  # what is set aside counts as well
        desk.admit(note(f"big{n}", "x" * 2000))
    assert len(desk.reopened().mailbox.read().tombstones) == 16
    everything = [note(f"m{n}") for n in range(40)] + [note(f"big{n}", "x" * 2000) for n in range(20)]
    assert desk.reopened().admit(*everything) == ["repeat"] * 60
    assert desk.reopened("s2").admit(*everything) == ["replay"] * 60


@pytest.mark.req("M16")
def test_superseded_progress_makes_room_too(state_root: str) -> None:
    desk = Desk(state_root, set_to=settings(mailbox_max_records=2))
    updates = [note(f"u{n}", status="update", task_id="t", ts=NOW_MS + n) for n in range(5)]
    assert desk.admit(*updates) == ["stored"] * 5
    assert desk.ids() == ["u4"]
    assert desk.admit(note("m")) == ["stored"]
    assert desk.admit(note("n")) == ["kept"]


@pytest.mark.req("M16", "M17")
def test_nothing_overtakes_the_first_that_had_no_room(state_root: str) -> None:
    desk = Desk(state_root, set_to=settings(mailbox_max_bytes=4096))
    assert desk.admit(note("a", "x" * 2000), note("b", "x" * 2000), note("c"), note("a", "x" * 2000)) == [
        "stored",
        "kept",
        "kept",
        "repeat",
    ]
    desk.ack("a")
    assert desk.admit(note("b", "x" * 2000), note("c")) == ["stored", "stored"]
    assert desk.ids() == ["b", "c"]


# --- bytes ----------------------------------------------------------------------------------------


@pytest.mark.req("M15", "M16", "M17")
def test_the_default_number_of_bytes_then_one_more_then_one_acknowledgement(state_root: str) -> None:
    desk = Desk(state_root)
    assert Settings.mailbox_max_bytes == 32 << 20
    text = "x" * ((1 << 20) - 1000)
    outcomes = desk.admit(*(note(f"m{n}", text) for n in range(33)))
    assert outcomes == ["stored"] * 32 + ["kept"]
    assert 32 << 20 > desk.mailbox.read().bytes > 31 << 20
    assert desk.admit(note("m32", text)) == ["kept"]
    assert desk.ack("m5").newly == 1
    assert desk.admit(note("m32", text)) == ["stored"]
    assert len(desk.reopened().unread()) == 32


@pytest.mark.req("M15")
def test_notices_and_acknowledgements_may_pass_the_byte_bound(state_root: str) -> None:
    desk = Desk(state_root)
    fill(desk, 50)
    tight = Desk(state_root, set_to=settings(mailbox_max_bytes=desk.mailbox.read().bytes))
    assert tight.admit(note("extra")) == ["kept"]
    assert tight.reserve() is not None
    assert tight.settle("n1", states.NOTIFICATION_SENT)  # each record grows by its new state
    assert tight.mailbox.read().bytes > tight.settings.mailbox_max_bytes
    assert tight.ack("m0").newly == 1
    # now that all of them are longer than the bound, one place less is not enough: but acknowledging goes on
    freed = next(n for n in range(1, 50) if tight.ack(f"m{n}").newly and tight.admit(note("extra")) == ["stored"])
    assert freed < 10
    assert len(tight.reopened().unread()) == 50 - freed


@pytest.mark.req("M16")
def test_nothing_is_buried_where_it_would_not_do(state_root: str) -> None:
    desk = Desk(state_root, set_to=settings(mailbox_max_bytes=6000))
    desk.admit(note("read", "x" * 1000), note("unread", "x" * 1000))
    desk.ack("read")
    assert desk.admit(note("big", "x" * 4800)) == ["kept"]
    assert [r.message.text for r in desk.mailbox.read().records.values()] == ["x" * 1000] * 2


# --- time -----------------------------------------------------------------------------------------


@pytest.mark.req("M16")
def test_consumed_records_and_tombstones_are_pruned_on_arrival_after_the_window(state_root: str) -> None:
    desk = Desk(state_root, set_to=settings(mailbox_max_records=4, prune_every_s=0))
    fill(desk, 4)
    desk.ack("m0")
    desk.admit(note("m4"))  # m0 is a tombstone
    desk.ack("m1", "m2")
    for after, records, tombs in (
        (0, ["m2", "m3", "m4", "new0"], ["m0", "m1"]),
        (1, ["m3", "m4", "new0", "new1"], []),
    ):
        desk.now = NOW_MS + WINDOW_MS + after
        assert desk.admit(note(f"new{after}", ts=desk.now)) == ["stored"]
        box = desk.mailbox.read()
        assert [r.receipt_id for r in box.records.values()] == records
        assert [t.msg_id for t in box.tombstones.values()] == tombs
    assert desk.reopened().ids() == ["m3", "m4", "new0", "new1"], "the unread ones stay for ever"
    desk.now += 400 * DAY_MS
    assert desk.reopened().admit(note("later", ts=desk.now)) == ["kept"]
    assert desk.reopened().ids() == ["m3", "m4", "new0", "new1"]


@pytest.mark.req("M16")
def test_the_search_for_old_records_is_bounded_in_rate(state_root: str) -> None:
    desk = Desk(state_root, set_to=settings(prune_every_s=5.0))
    desk.admit(note("m0"), note("m1"))
    desk.ack("m0")
    desk.now = NOW_MS + WINDOW_MS - 1000
    desk.admit(note("a", ts=desk.now))
    desk.now = NOW_MS + WINDOW_MS + 1000
    desk.admit(note("b", ts=desk.now))
    assert (PEER, "m0") in desk.mailbox.read().records
    desk.now = NOW_MS + WINDOW_MS + 4000
    desk.admit(note("c", ts=desk.now))
    assert (PEER, "m0") not in desk.reopened().mailbox.read().records


# --- the accounts of the box ----------------------------------------------------------------------


def check_accounts(box: Box) -> None:
    """What the box counts along is what a count from nothing gives."""
    again = Box.decode(box.encode(), box.head.identity, box.head.session, "test")
    assert (box.bytes, box.done_bytes, box.consumed_count) == (again.bytes, again.done_bytes, again.consumed_count)
    assert {r.key for r in box.consumed()} == {r.key for r in box.records.values() if not r.unread}
    for record in box.records.values():
        if record.group is not None:
            assert record in box.of_task(record.group)[0]
    for tomb in box.tombstones.values():
        if tomb.group is not None:
            assert tomb in box.of_task(tomb.group)[1]


@pytest.mark.req("M15", "M14")
def test_the_accounts_stay_true(state_root: str) -> None:
    desk = Desk(state_root, set_to=settings(mailbox_max_records=5, tombstone_max=16))
    for n in range(60):
        status = ("update", "result", None, "update")[n % 4]
        task = None if status is None else f"t{n // 8}"
        desk.admit(note(f"m{n}", "x" * (n % 7) * 10, status=status, task_id=task, ts=NOW_MS + n % 5))
        if n % 3 == 0:
            desk.ack(*desk.ids()[:2])
        desk.now += 1000
        check_accounts(desk.mailbox.read())
    assert len(desk.mailbox.read().tombstones) == 16
    desk.now += WINDOW_MS
    desk.admit(note("last", ts=desk.now))
    check_accounts(desk.mailbox.read())
