"""From a batch of messages to durable records: stored once, in order, and what the relay may forget (G5, G6)."""

from pathlib import Path

import pytest
from support.crash import crashes, unsynced
from support.keys import ALICE, BOB, CAROL, NOW_MS, identity, message
from support.mail import (
    DAY_MS,
    HOUR_MS,
    IN_CHILD,
    ME,
    PEER,
    WINDOW_MS,
    Desk,
    arrival,
    note,
    settings,
)

from interlink.mailbox import states
from interlink.mailbox.record import content_fingerprint
from interlink.mailbox.rules import collision_alias
from interlink.mailbox.staging import Acknowledged, Receipt
from interlink.trust.wire import Message

STRANGER = identity(9)


def forged() -> Message:
    msg = note("forged")
    msg.text = "another text"
    return msg


REFUSED = {
    "bad_signature": forged(),
    "not_for_us": message(ALICE, CAROL, msg_id="elsewhere"),
    "stranger": note("knock", sender=STRANGER),
    "expired": note("old", ts=NOW_MS - DAY_MS - 1),
    "from_future": note("ahead", ts=NOW_MS + 60_001),
}


# --- what is stored, repeated, refused ------------------------------------------------------------


@pytest.mark.req("G5", "M1")
def test_a_message_is_stored_once_whatever_repeats_it(state_root: str) -> None:
    desk = Desk(state_root)
    first = note("m1")
    assert desk.admit(first, first, note("m1", ts=NOW_MS + 1)) == ["stored", "repeat", "repeat"]
    for again in (desk, desk.reopened()):
        assert again.admit(first) == ["repeat"]
        assert again.ids() == ["m1"]
    desk.ack("m1")
    for again in (desk, desk.reopened()):
        assert again.admit(first, note("m1", ts=NOW_MS + 2)) == ["repeat", "repeat"]
        assert again.ids() == []


@pytest.mark.req("G6", "G3")
def test_one_bad_message_holds_up_nothing_and_all_but_the_unstored_is_settled(state_root: str) -> None:
    desk = Desk(state_root, set_to=settings(message_max_bytes=1200))
    batch = [note("a"), *REFUSED.values(), note("big", "x" * 2000), note("a"), note("b")]
    results = desk.admitted(*batch)
    assert [r.outcome for r in results] == ["stored", *REFUSED, "undeliverable", "repeat", "stored"]
    assert all(r.settled for r in results)
    assert desk.ids() == ["a", "b"]
    assert desk.admission.counts == {**dict.fromkeys(REFUSED, 1), "stored": 2, "undeliverable": 1, "repeat": 1}


@pytest.mark.req("G3", "G5")
def test_a_refused_message_takes_no_place_in_the_memory(state_root: str) -> None:
    desk = Desk(state_root, names={})
    msg = note("m1")
    assert desk.admit(msg) == ["stranger"]
    desk.names = {PEER: "alice"}
    assert desk.admit(msg) == ["stored"]
    # neither does one of another session's: it is refused as long as it could come, and no longer
    other = desk.reopened("s2")
    log = desk.layout.replay(ME)
    before = open(log, "rb").read()
    assert other.admit(msg) == ["replay"]
    assert open(log, "rb").read() == before


@pytest.mark.req("G6")
def test_what_a_petname_says_is_kept_with_each_result(state_root: str) -> None:
    desk = Desk(state_root)
    to_self = message(BOB, BOB, msg_id="mine")
    results = desk.admitted(note("a"), note("c", sender=CAROL), to_self)
    assert [(r.outcome, r.petname) for r in results] == [
        ("stored", "alice"),
        ("stored", "carol"),
        ("stored", "self"),
    ]


@pytest.mark.req("M1")
def test_a_stored_batch_survives_a_power_cut(tmp_path: Path) -> None:
    done = list(crashes(tmp_path, "Desk(root).admit(note('m1'), note('m2'))", setup=IN_CHILD, how=()))[-1]
    # the pending mark need not outlive the boot: after a power cut all mailboxes are merged
    assert unsynced(done.steps, ignore=(".lock", ".pending")) == []
    names = [(s.name, s.paths[-1].rpartition(".")[2]) for s in done.steps]
    assert names.index(("replace", "json")) < names.index(("fdatasync", "log")), "mailbox first, memory second"


@pytest.mark.req("M1")
@pytest.mark.parametrize("count", [1, 64])
def test_a_batch_costs_three_syncs(tmp_path: Path, count: int) -> None:
    def prepare(root: str) -> None:
        Desk(root).admit(note("before"))

    setup = IN_CHILD + f"batch = [note(f'm{{n}}') for n in range({count})]"
    done = list(crashes(tmp_path, "Desk(root).admit(*batch)", setup=setup, how=(), prepare=prepare))[-1]
    assert sum(s.name in ("fsync", "fdatasync") for s in done.steps) == 3


# --- other sessions -------------------------------------------------------------------------------


@pytest.mark.req("G5")
def test_a_captured_message_is_refused_in_another_session(state_root: str) -> None:
    desk, other = Desk(state_root, "s1"), Desk(state_root, "s2")
    msg = note("m1")
    assert desk.admit(msg) == ["stored"]
    for attempt in (other, other.reopened(), desk.reopened("s3")):
        assert attempt.admit(msg) == ["replay"]
        assert attempt.ids() == []
    desk.ack("m1")
    desk.now += 23 * HOUR_MS
    assert desk.reopened("s2").admit(msg) == ["replay"]
    assert desk.reopened().admit(msg) == ["repeat"]


@pytest.mark.req("G5")
def test_a_copy_signed_later_is_known_for_as_long_as_it_could_come_again(state_root: str) -> None:
    """The sender sends anew what it does not know to be taken: the later copy is admissible for longer than
    the first one is remembered."""
    desk = Desk(state_root, set_to=settings(prune_every_s=0))
    desk.admit(note("m1"))
    desk.ack("m1")
    desk.now = NOW_MS + 20 * HOUR_MS
    later = note("m1", ts=desk.now)
    assert desk.admit(later) == ["repeat"]
    desk.now = NOW_MS + WINDOW_MS + 1  # the first copy is forgotten
    assert desk.admit(later) == ["repeat"], "acknowledged, and back again"
    assert desk.reopened("s2").admit(later) == ["replay"]
    desk.now = NOW_MS + 44 * HOUR_MS
    assert desk.admit(later) == ["repeat"] and desk.reopened("s2").admit(later) == ["replay"]
    assert desk.ids() == []


@pytest.mark.req("G5")
def test_a_copy_refused_in_another_session_stays_refused(state_root: str) -> None:
    desk = Desk(state_root, set_to=settings(prune_every_s=0))
    desk.admit(note("m1"))
    other = desk.reopened("s2")
    other.now = NOW_MS + 20 * HOUR_MS
    later = note("m1", ts=other.now)
    assert other.admit(later) == ["replay"]
    other.now = NOW_MS + WINDOW_MS + 1
    assert other.admit(later) == ["replay"] and other.reopened().admit(later) == ["replay"]


# --- collisions, generations ----------------------------------------------------------------------


@pytest.mark.req("M20")
def test_another_content_under_a_known_id_is_kept_under_an_alias(
    state_root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = Desk(state_root)
    one, two = note("m1", "one"), note("m1", "two")
    first, second = desk.admitted(one, two)
    assert first.record is not None and second.record is not None
    alias = second.record.receipt_id
    assert alias == collision_alias("m1", second.record.fp) != "m1"
    assert "event=collision" in capsys.readouterr().err
    assert [(r.receipt_id, r.message.text) for r in desk.unread()] == [("m1", "one"), (alias, "two")]
    assert desk.admit(two, one, note("m1", "two", ts=NOW_MS + 1)) == ["repeat"] * 3
    assert desk.reopened("s2").admit(two) == ["replay"]
    # each has a receipt of its own
    assert desk.ack("m1") == Acknowledged(1, 0, 0)
    assert desk.ids() == [alias]
    assert desk.ack(alias) == Acknowledged(1, 0, 0)
    assert desk.admit(one, two) == ["repeat", "repeat"]
    assert desk.mailbox.read().head.counts == {"collisions": 1}


@pytest.mark.req("M20")
def test_the_order_of_arrival_decides_who_gets_the_id_not_which_alias_there_is(
    state_root: str, tmp_path: Path
) -> None:
    one, two = note("m1", "one"), note("m1", "two")
    left, right = Desk(state_root), Desk(str(tmp_path))
    left.admit(one, two)
    right.admit(two, one)
    assert left.unread()[1].receipt_id == collision_alias("m1", left.unread()[1].fp)
    assert {r.receipt_id for r in left.unread()} != {r.receipt_id for r in right.unread()}
    assert right.unread()[1].fp == left.unread()[0].fp


@pytest.mark.req("M20")
def test_a_live_message_is_known_though_memory_and_the_first_one_are_gone(state_root: str) -> None:
    desk = Desk(state_root, set_to=settings(prune_every_s=0))
    desk.admit(note("m1", "one"), note("m1", "two"))
    desk.ack("m1")
    desk.now = NOW_MS + WINDOW_MS + 1
    assert desk.admit(note("other", ts=desk.now)) == ["stored"]  # prunes: the id m1 is free now
    assert (PEER, "m1") not in desk.mailbox.read().records
    (live, _other) = desk.unread()
    assert live.message.text == "two"
    assert desk.admit(note("m1", "two", ts=desk.now)) == ["repeat"], "still unread, under its alias"
    assert len(desk.unread()) == 2


@pytest.mark.req("M20")
def test_a_message_whose_own_id_is_an_alias_takes_nobodys_place(state_root: str) -> None:
    desk = Desk(state_root)
    taken = collision_alias("m1", content_fingerprint(note("m1", "two")))
    assert desk.admit(note("m1", "one"), note(taken, "in the way"), note("m1", "two"), note("m1", "two")) == [
        "stored",
        "stored",
        "stored",
        "repeat",
    ]
    assert [r.message.text for r in desk.unread()] == ["one", "in the way", "two"]
    # also with the same content as the one that stands there
    assert desk.admit(note(taken, "two")) == ["stored"]
    assert len({r.key for r in desk.unread()}) == 4
    assert desk.reopened().admit(note("m1", "two"), note(taken, "two")) == ["repeat", "repeat"]


@pytest.mark.req("M19")
def test_a_late_receipt_does_not_touch_a_newer_message_with_the_same_id(state_root: str) -> None:
    desk = Desk(state_root, set_to=settings(prune_every_s=0))
    desk.admit(note("m1"))
    (old,) = desk.unread()
    desk.ack("m1")
    desk.now = NOW_MS + WINDOW_MS + 1
    assert desk.admit(note("m1", ts=desk.now)) == ["stored"], "forgotten, so a new message"
    (new,) = desk.unread()
    assert new.delivery_id != old.delivery_id and new.seq > old.seq
    late = Receipt(PEER, "m1", old.delivery_id)
    assert desk.mailbox.acknowledge([late], desk.now) == Acknowledged(0, 0, 1)
    assert desk.ids() == ["m1"]
    assert desk.mailbox.acknowledge([Receipt(PEER, "m1", new.delivery_id)], desk.now) == Acknowledged(1, 0, 0)
    assert desk.ids() == []


@pytest.mark.req("M19")
def test_delivery_ids_are_unique_and_stay(state_root: str) -> None:
    desk = Desk(state_root)
    desk.admit(*(note(f"m{n}") for n in range(50)))
    found = [r.delivery_id for r in desk.unread()]
    assert len(set(found)) == 50 and all(len(d) == 16 for d in found)
    assert [r.delivery_id for r in desk.reopened().unread()] == found
    assert [a.record.delivery_id for a in desk.admitted(note("x")) if a.record] == [desk.unread()[-1].delivery_id]


# --- size -----------------------------------------------------------------------------------------


@pytest.mark.req("M22", "G6")
def test_an_oversized_message_is_set_aside_and_the_next_one_comes_through(state_root: str) -> None:
    desk = Desk(state_root, set_to=settings(message_max_bytes=2048))
    big = note("big", "x" * 3000)
    fits = note("fits", "x" * (2048 - arrival(note("fits", "")).size))
    assert arrival(fits).size == 2048
    (aside, stored) = desk.admitted(big, fits)
    assert (aside.outcome, stored.outcome) == ("undeliverable", "stored")
    assert aside.record is not None and aside.record.size == arrival(big).size
    assert big.text == "x" * 3000, "the caller's message is as it was"
    assert desk.ids() == ["fits"]
    assert desk.state("big") == states.UNDELIVERABLE
    assert desk.mailbox.read().head.counts == {"undeliverable": 1}
    assert desk.admit(big) == ["repeat"] and desk.reopened().admit(big) == ["repeat"]
    assert desk.reopened("s2").admit(big) == ["replay"]
    assert desk.ack("big") == Acknowledged(0, 1, 0)
    assert desk.reserve() is not None  # for `fits`
    assert b"xxx" * 700 not in open(desk.mailbox.path, "rb").read()


@pytest.mark.req("M22", "G6")
def test_a_message_that_fits_no_empty_mailbox_is_set_aside_too(state_root: str) -> None:
    """Two settings, and the one on the mailbox may be the smaller: nothing would ever make room for it."""
    desk = Desk(state_root, set_to=settings(mailbox_max_bytes=2048))
    assert desk.admit(note("big", "x" * 3000), note("small")) == ["undeliverable", "stored"]


@pytest.mark.req("M22", "M14")
def test_what_was_set_aside_hides_no_progress(state_root: str) -> None:
    desk = Desk(state_root, set_to=settings(message_max_bytes=2048))
    result = note("r", "x" * 3000, status="result", task_id="t")
    progress = [note(f"u{n}", status="update", task_id="t", ts=NOW_MS + n) for n in range(2)]
    assert desk.admit(progress[0], result, progress[1]) == ["stored", "undeliverable", "stored"]
    assert desk.ids() == ["u1"]
