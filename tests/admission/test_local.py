"""Messages of local sources: classes, sequence numbers, resume groups, tombstones of their own time (L1, L2)."""

import pytest
from support.keys import NOW_MS
from support.mail import DAY_MS, HOUR_MS, PEER, SECOND_MS, Desk, note, settings

from interlink.mailbox import states
from interlink.mailbox.staging import Acknowledged, Receipt

CI = "local:ci"


def ephemeral(desk: Desk, msg_id: str, key: str | None = None, ttl_s: float = 600, source: str = "ci") -> str:
    staged = desk.local(
        msg_id, source=source, klass="ephemeral", supersedes=key, expires_ms=desk.now + int(ttl_s * 1000)
    )
    return staged.outcome


# --- as a peer's ----------------------------------------------------------------------------------


@pytest.mark.req("L1", "M19")
def test_a_local_message_is_stored_as_durably_as_a_peers(state_root: str) -> None:
    desk = Desk(state_root, names={})
    assert desk.local("j1", "build failed").outcome == "stored"
    (record,) = desk.reopened().unread()
    assert (record.message.sender, record.message.text, record.peer) == (CI, "build failed", CI)
    handoff = desk.reserve()
    assert handoff is not None and handoff.waiting[0].receipt_id == "j1"
    assert desk.mailbox.acknowledge([Receipt(CI, "j1", "other")], desk.now) == Acknowledged(0, 0, 1)
    assert desk.mailbox.acknowledge([Receipt(CI, "j1", record.delivery_id)], desk.now) == Acknowledged(1, 0, 0)
    assert desk.reopened().local("j1", "build failed").outcome == "repeat"
    assert desk.ids() == []


@pytest.mark.req("L2", "M20")
def test_another_content_under_a_local_id_gets_an_alias(state_root: str) -> None:
    desk = Desk(state_root)
    outcomes = [desk.local("j1", text).outcome for text in ("one", "two", "two", "one")]
    assert outcomes == ["stored", "stored", "repeat", "repeat"]
    assert [r.message.text for r in desk.unread()] == ["one", "two"]
    assert len({r.receipt_id for r in desk.unread()}) == 2
    assert desk.local("j1", "one", source="other").outcome == "stored", "each source has ids of its own"


@pytest.mark.req("L1", "M22")
def test_the_bounds_are_a_peers(state_root: str) -> None:
    desk = Desk(state_root, set_to=settings(mailbox_max_records=2, message_max_bytes=1024))
    assert [desk.local(f"j{n}").outcome for n in range(3)] == ["stored", "stored", "kept"]
    assert desk.admit(note("m1")) == ["kept"]
    assert desk.local("big", "x" * 1025).outcome == "undeliverable"
    desk.ack("j0", sender=CI)
    assert desk.local("j2").outcome == "stored"
    assert desk.ids() == ["j1", "j2"]


# --- sequence numbers -----------------------------------------------------------------------------


@pytest.mark.req("M27")
def test_equal_content_under_one_id_is_told_apart_by_the_sequence_number(state_root: str) -> None:
    desk = Desk(state_root)
    seqs = (1, 2, 2, 1, 3)
    assert [desk.local("tick", seq=s).outcome for s in seqs] == ["stored", "stored", "repeat", "repeat", "stored"]
    assert [r.local.seq for r in desk.unread() if r.local] == [1, 2, 3]
    first = desk.unread()[0]
    desk.ack(first.receipt_id, sender=CI)
    assert desk.reopened().local("tick", seq=1).outcome == "repeat"
    assert desk.mailbox.read().head.counts.get("suppressed", 0) == 0


@pytest.mark.req("M27")
def test_without_a_sequence_number_the_suppression_is_counted(state_root: str) -> None:
    desk = Desk(state_root)
    assert [desk.local("tick").outcome for _ in range(4)] == ["stored", "repeat", "repeat", "repeat"]
    assert desk.reopened().mailbox.read().head.counts == {"suppressed": 3}
    assert len(desk.unread()) == 1
    # a sequence number beside one without is another message
    assert desk.local("tick", seq=1).outcome == "stored"


# --- classes --------------------------------------------------------------------------------------


@pytest.mark.req("M23")
def test_an_ephemeral_message_wakes_nobody_and_ends_by_itself(state_root: str) -> None:
    desk = Desk(state_root)
    assert ephemeral(desk, "turn started") == "stored"
    assert desk.reserve() is None
    assert desk.ids() == ["turn started"]
    desk.now += 600 * SECOND_MS - 1
    assert desk.ids() == ["turn started"]
    desk.now += 1
    assert desk.ids() == [] and desk.reserve() is None
    assert desk.mailbox.quarantined(desk.view()) == 0
    assert desk.mailbox.fetch(desk.view(), 20).unread == 0
    desk.local("next")  # an arrival clears it away
    desk.local("after")
    box = desk.reopened().mailbox.read()
    assert [r.receipt_id for r in box.records.values()] == ["next", "after"]
    assert box.tombstones[(CI, "turn started")].superseded_by == "expired"
    assert ephemeral(desk, "turn started") == "repeat"


@pytest.mark.req("M23")
def test_ephemeral_messages_beside_an_actionable_one_are_not_in_its_notice(state_root: str) -> None:
    desk = Desk(state_root)
    ephemeral(desk, "e1")
    desk.local("act")
    handoff = desk.reserve()
    assert handoff is not None and [r.receipt_id for r in handoff.waiting] == ["act"]
    desk.settle("n1", states.HOST_QUEUED)
    assert (desk.state("e1", CI), desk.state("act", CI)) == (states.RECEIVER_STORED, states.HOST_QUEUED)
    desk.ack("act", sender=CI)
    assert desk.notice() is None, "the ephemeral one holds no reservation"


@pytest.mark.req("M23")
def test_a_later_ephemeral_message_retires_the_one_that_it_names(state_root: str) -> None:
    desk = Desk(state_root)
    ephemeral(desk, "started", "turn 1")
    ephemeral(desk, "lost", "relay")
    ephemeral(desk, "completed", "turn 1")
    ephemeral(desk, "foreign", "relay", source="other")
    assert desk.ids() == ["lost", "completed", "foreign"]
    record = desk.reopened().mailbox.read().records[(CI, "started")]
    assert (record.superseded_by, record.done_ms) == ("completed", NOW_MS)


# --- resume groups --------------------------------------------------------------------------------


@pytest.mark.req("M26")
def test_acknowledging_one_sibling_retires_all_and_a_late_one_too(state_root: str) -> None:
    desk = Desk(state_root)
    for n in range(3):
        desk.local(f"r{n}", resume_id="resume-7")
    desk.local("other", resume_id="resume-8")
    desk.local("foreign", source="cron", resume_id="resume-7")
    result = desk.ack("r1", sender=CI)
    assert result == Acknowledged(1, 0, 0, ("resume-7",))
    assert desk.ids() == ["other", "foreign"]
    assert {desk.state(f"r{n}", CI) for n in range(3)} == {states.RECEIVER_ACKNOWLEDGED}
    # one event for the group, however many receipts name it
    assert desk.ack("r0", "r1", "r2", sender=CI) == Acknowledged(0, 3, 0)
    late = desk.reopened().local("r3", resume_id="resume-7")
    assert late.outcome == "stored" and late.record is not None
    assert late.record.state == states.RECEIVER_ACKNOWLEDGED
    assert desk.ids() == ["other", "foreign"] and desk.state("r3", CI) == states.RECEIVER_ACKNOWLEDGED


@pytest.mark.req("M26")
def test_receipts_of_several_siblings_in_one_call_are_one_event(state_root: str) -> None:
    desk = Desk(state_root)
    for n in range(2):
        desk.local(f"r{n}", resume_id="resume-7")
    assert desk.ack("r0", "r1", sender=CI) == Acknowledged(1, 1, 0, ("resume-7",))


@pytest.mark.req("M26")
def test_a_resume_id_is_remembered_for_its_time(state_root: str) -> None:
    desk = Desk(state_root)
    desk.local("r0", resume_id="resume-7")
    desk.ack("r0", sender=CI)
    desk.now += DAY_MS
    desk.local("r1", resume_id="resume-7")
    assert desk.state("r1", CI) == states.RECEIVER_ACKNOWLEDGED
    desk.now += 1
    desk.local("r2", resume_id="resume-7")
    assert desk.state("r2", CI) == states.RECEIVER_STORED and desk.ids() == ["r2"]
    desk.now += 6 * SECOND_MS
    desk.local("other")
    assert desk.reopened().mailbox.read().head.resumes == []


@pytest.mark.req("M26", "M8")
def test_a_retired_group_frees_the_notice(state_root: str) -> None:
    desk = Desk(state_root)
    for n in range(2):
        desk.local(f"r{n}", resume_id="resume-7")
    desk.reserve("n1")
    desk.ack("r0", sender=CI)
    assert desk.notice() is None and desk.reserve("n2") is None


# --- how long a source is known -------------------------------------------------------------------


@pytest.mark.req("L2", "M16")
def test_a_local_message_is_known_from_its_consumption_on(state_root: str) -> None:
    """No signature bounds a repeat: one that was unread for days must not come back right after it is read."""
    desk = Desk(state_root, set_to=settings(prune_every_s=0))
    desk.local("j1", seq=1)
    desk.admit(note("m1"))
    desk.now += 3 * DAY_MS
    desk.ack("j1", sender=CI)
    desk.now += 23 * HOUR_MS
    desk.local("other")
    assert desk.local("j1", seq=1).outcome == "repeat"
    desk.now += HOUR_MS + 1
    assert desk.local("j1", seq=1).outcome == "stored"
    assert desk.ids() == ["m1", "other", "j1"]


@pytest.mark.req("L2", "M16")
def test_a_buried_local_message_is_known_too(state_root: str) -> None:
    desk = Desk(state_root, set_to=settings(prune_every_s=0, mailbox_max_records=1, local_memory_s=100.0))
    desk.local("j1")
    desk.now += 50 * SECOND_MS
    desk.ack("j1", sender=CI)
    desk.local("j2")
    assert list(desk.mailbox.read().tombstones) == [(CI, "j1")]
    desk.now += 100 * SECOND_MS
    assert desk.local("j1").outcome == "repeat"
    desk.now += 1
    assert desk.local("j3").outcome == "kept" and desk.mailbox.read().tombstones == {}


@pytest.mark.req("L1", "G5")
def test_local_sources_have_no_place_in_the_replay_memory(state_root: str) -> None:
    desk = Desk(state_root, set_to=settings(mailbox_max_records=1))
    desk.local("j1")
    desk.ack("j1", sender=CI)
    desk.local("j2")  # j1 is a tombstone now
    desk.admission.open(desk.now)
    assert len(open(desk.layout.replay(desk.mailbox.identity)).readlines()) == 1, "the head alone"
    assert desk.reopened("s2").local("j1").outcome == "stored"
    assert PEER not in {k for k, _ in desk.mailbox.read().records}
