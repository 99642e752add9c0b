"""Reading and consuming: pages, exact receipts, what a removed peer's mail does (M4 to M6, M10, M13, G7)."""

import os

import pytest
from support.keys import ALICE, CAROL, NOW_MS
from support.mail import ME, PEER, SECOND_MS, Desk, note, settings

from interlink.mailbox import states
from interlink.mailbox.record import Record, Tombstone
from interlink.mailbox.staging import Acknowledged, Receipt


def filled(root: str, **changed: object) -> Desk:
    """m0 to m9, of which m2, m5 and m8 are progress of different tasks."""
    desk = Desk(root, set_to=settings(**changed))
    desk.admit(*(note(f"m{n}", status="update" if n % 3 == 2 else None, task_id=f"t{n}") for n in range(10)))
    return desk


ORDER = [f"m{n}" for n in (0, 1, 3, 4, 6, 7, 9, 2, 5, 8)]


# --- reading --------------------------------------------------------------------------------------


@pytest.mark.req("M4", "M6")
def test_a_fetch_writes_nothing_and_is_the_same_each_time(state_root: str) -> None:
    desk = filled(state_root)
    before = (desk.mailbox.signature(), sorted(os.listdir(os.path.dirname(desk.mailbox.path))))
    for again in (desk, desk, desk.reopened(), desk.reopened()):
        page = again.mailbox.fetch(again.view(), 4)
        assert [r.receipt_id for r in page.records] == ORDER[:4]
        assert (page.more, page.unread) == (6, 10)
    assert (desk.mailbox.signature(), sorted(os.listdir(os.path.dirname(desk.mailbox.path)))) == before
    never = Desk(state_root, "never")
    assert never.mailbox.fetch(never.view(), 20) == ([], 0, 0)
    assert not os.path.exists(never.mailbox.path)


@pytest.mark.req("M4")
@pytest.mark.parametrize("limit", [1, 3, 10, 100])
@pytest.mark.parametrize("acknowledged", [False, True])
@pytest.mark.parametrize("room", [4096, 10])
def test_pages_cover_all_also_where_each_is_acknowledged_before_the_next(
    state_root: str, limit: int, acknowledged: bool, room: int
) -> None:
    """With room for ten, what was acknowledged is reduced to tombstones while the pages go on."""
    desk = filled(state_root, mailbox_max_records=room)
    got: list[str] = []
    after = None
    for turn in range(20):
        page = desk.mailbox.fetch(desk.view(), limit, after)
        if not page.records:
            break
        got += [r.receipt_id for r in page.records]
        after = page.records[-1].key
        if acknowledged:
            desk.ack(*(r.receipt_id for r in page.records))
            if turn < 3:
                desk.admit(*(note(f"later{turn}-{n}") for n in range(len(page.records))))
        desk = desk.reopened()
    assert [m for m in got if m in ORDER] == ORDER
    assert len(got) == len(set(got))


@pytest.mark.req("M4", "M16")
def test_a_place_that_is_only_a_tombstone_is_still_that_place(state_root: str) -> None:
    desk = Desk(state_root, set_to=settings(mailbox_max_records=3))
    desk.admit(note("u1", status="update"), note("m2"), note("u3", status="update"))
    page = desk.mailbox.fetch(desk.view(), 2)
    assert [r.receipt_id for r in page.records] == ["m2", "u1"]
    desk.ack("u1")
    desk.admit(note("m4"))
    assert list(desk.mailbox.read().tombstones) == [(PEER, "u1")]
    assert [r.receipt_id for r in desk.mailbox.fetch(desk.view(), 9, (PEER, "u1")).records] == ["u3"]


@pytest.mark.req("M4", "M6")
def test_an_unknown_place_begins_at_the_start(state_root: str) -> None:
    desk = filled(state_root)
    for after in ((PEER, "unknown"), (CAROL.public, "m3"), ("", "")):
        assert [r.receipt_id for r in desk.mailbox.fetch(desk.view(), 100, after).records] == ORDER
    assert desk.mailbox.fetch(desk.view(), 100, (PEER, "m8")).records == []


@pytest.mark.req("M4")
def test_what_arrives_between_two_pages_comes_once(state_root: str) -> None:
    desk = filled(state_root)
    first = desk.mailbox.fetch(desk.view(), 8)
    desk.admit(note("late"), note("late progress", status="update", task_id="x"))
    second = desk.mailbox.fetch(desk.view(), 8, first.records[-1].key)
    # it stands before the place in the order: the next fetch from the start has it
    assert [r.receipt_id for r in second.records] == ["m5", "m8", "late progress"]
    assert (second.more, second.unread) == (0, 12)
    assert desk.mailbox.fetch(desk.view(), 2, first.records[-1].key)[1:] == (1, 12)
    assert [r.receipt_id for r in desk.unread()] == [*ORDER[:7], "late", *ORDER[7:], "late progress"]


# --- consuming ------------------------------------------------------------------------------------


@pytest.mark.req("M5")
def test_exactly_the_named_receipts_are_consumed(state_root: str) -> None:
    desk = filled(state_root)
    desk.admit(note("m3", sender=CAROL))
    result = desk.mailbox.acknowledge(
        [Receipt(PEER, "m3"), Receipt(PEER, "m5"), Receipt(PEER, "m3"), Receipt(PEER, "none"), Receipt("x", "m1")],
        desk.now,
    )
    assert result == Acknowledged(newly=2, already=1, unknown=2)
    assert desk.ids() == ["m0", "m1", "m4", "m6", "m7", "m9", "m3", "m2", "m8"]
    assert desk.unread()[6].message.sender == CAROL.public
    for again in (desk, desk.reopened()):
        sig = again.mailbox.signature()
        assert again.ack("m3", "m5") == Acknowledged(0, 2, 0)
        assert again.ack("none") == Acknowledged(0, 0, 1) and again.ack() == Acknowledged(0, 0, 0)
        assert again.mailbox.signature() == sig, "nothing new, nothing written"
    assert desk.record("m3").done_ms == NOW_MS


@pytest.mark.req("M5")
def test_another_sessions_receipt_is_unknown_and_changes_nothing(state_root: str) -> None:
    desk, other = Desk(state_root), Desk(state_root, "s2")
    desk.admit(note("m1"))
    other.admit(note("m2"))
    before = open(desk.mailbox.path, "rb").read()
    assert other.ack("m1") == Acknowledged(0, 0, 1)
    assert open(desk.mailbox.path, "rb").read() == before
    assert (desk.ids(), other.ids()) == (["m1"], ["m2"])


@pytest.mark.req("M5", "M21")
def test_one_call_takes_as_many_receipts_as_the_mailbox_holds(state_root: str) -> None:
    desk = Desk(state_root, set_to=settings(mailbox_max_records=500))
    desk.admit(*(note(f"m{n}") for n in range(500)))
    receipts = [Receipt(r.message.sender, r.receipt_id, r.delivery_id) for r in desk.unread()]
    assert desk.mailbox.acknowledge(receipts, desk.now) == Acknowledged(500, 0, 0)
    assert desk.reopened().ids() == []


@pytest.mark.req("M10", "M6")
def test_consumption_without_any_notice_id_frees_later_notices(state_root: str) -> None:
    desk = Desk(state_root)
    desk.admit(note("m1"))
    assert desk.reserve("lost") is not None  # its text never reached the host, its id is known to nobody
    desk.ack("m1")
    desk = desk.reopened()
    desk.admit(note("m2"))
    desk.now += SECOND_MS
    handoff = desk.reserve("next")
    assert handoff is not None and [r.receipt_id for r in handoff.waiting] == ["m2"]


# --- looking up -----------------------------------------------------------------------------------


@pytest.mark.req("M13", "M16")
def test_history_and_look_up_know_bodies_and_tombstones(state_root: str) -> None:
    desk = Desk(state_root, set_to=settings(mailbox_max_records=3))
    desk.admit(note("b", ts=NOW_MS + 2), note("a", ts=NOW_MS + 1), note("c", sender=CAROL))
    desk.ack("b")
    desk.admit(note("d", ts=NOW_MS + 1))
    kept = desk.reopened().mailbox.history(PEER)
    assert [k.key[1] for k in kept] == ["a", "d", "b"], "by time, then by id"
    assert [type(k) for k in kept] == [Record, Record, Tombstone]
    assert desk.mailbox.history("nobody") == []
    assert [f.key for f in desk.mailbox.find("c")] == [(CAROL.public, "c")]
    assert desk.mailbox.find("c", PEER) == [] and desk.mailbox.find("none") == []
    assert [f.state for f in desk.mailbox.find("b")] == [states.RECEIVER_ACKNOWLEDGED]


@pytest.mark.req("C11", "M8")
def test_below_the_watermark_everything_that_wakes_is_consumed(state_root: str) -> None:
    desk = Desk(state_root)
    assert desk.mailbox.watermark() == 1
    desk.admit(note("m1"), note("u", status="update", task_id="t"), note("m3"), note("m4"))
    marks = []
    for msg_id in ("m3", "m1", "u", "m4"):
        desk.ack(msg_id)
        marks.append(desk.reopened().mailbox.watermark())
    assert marks == [1, 4, 4, 5]


# --- removed peers --------------------------------------------------------------------------------


@pytest.mark.req("G7", "M16")
def test_mail_of_a_removed_peer_is_kept_unseen_until_it_is_back(state_root: str) -> None:
    desk = Desk(state_root)
    desk.admit(note("a1"), note("c1", sender=CAROL), note("a2"))
    desk.names = {ALICE.public: "alice"}
    page = desk.mailbox.fetch(desk.view(), 20)
    assert [r.receipt_id for r in page.records] == ["a1", "a2"] and page.unread == 2
    assert desk.mailbox.quarantined(desk.view()) == 1
    handoff = desk.reserve("n1")
    assert handoff is not None and [r.receipt_id for r in handoff.waiting] == ["a1", "a2"]
    desk.settle("n1", states.HOST_QUEUED)
    desk.ack("a1", "a2")
    assert desk.reserve("n2") is None and desk.reopened().ids() == []
    desk.names[CAROL.public] = "carol"
    assert desk.ids() == ["c1"] and desk.mailbox.quarantined(desk.view()) == 0
    handoff = desk.reserve("n3")
    assert handoff is not None and [r.receipt_id for r in handoff.waiting] == ["c1"]


@pytest.mark.req("G7")
def test_the_name_shown_is_the_one_that_the_user_has_now(state_root: str) -> None:
    desk = Desk(state_root)
    desk.admit(note("m1"))
    (record,) = desk.unread()
    assert desk.view().name(record) == "alice"
    desk.names[PEER] = "renamed"
    assert desk.view().name(record) == "renamed"
    del desk.names[PEER]
    assert desk.view().name(record) == "alice" and not desk.view().sees(record)
    assert desk.view().trusts(ME) and desk.view().trusts("local:ci")
