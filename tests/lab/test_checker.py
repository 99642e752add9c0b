"""The checker of the lab: nothing is wrong with a healthy history, and each fault is found by its invariant."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.lab_history import ALICE, BOB, EVE, NOTICE, S_BOB, Script, delivered

from interlink_lab.checker import check, names
from interlink_lab.checker.model import Facts
from interlink_lab.history import History


@pytest.fixture
def script() -> Script:
    return Script()


def test_nothing_is_wrong_with_a_healthy_history(script: Script) -> None:
    delivered(script)
    script.fetch()
    script.end()
    assert check(script.history) == []


def lost(s: Script) -> None:
    s.sent()


def stored_twice(s: Script) -> None:
    delivered(s)
    s.record("receiver_stored", 2, delivery_id="other")


def not_fetched(s: Script) -> None:
    s.sent()
    s.record("receiver_stored")
    s.fetch()


def came_back(s: Script) -> None:
    delivered(s)
    s.fetch(1)


def stranger(s: Script) -> None:
    s.record("receiver_stored", sender=EVE)


def forged(s: Script) -> None:
    s.add("alice.raw", "raw.send", status=202, token="m:9", msg_id="id9", to=BOB, session=S_BOB, forged=True)
    s.record("receiver_stored", msg_id="id9", token="m:9")


def out_of_order(s: Script) -> None:
    for n in (1, 2):
        s.sent(f"m:{n}", f"id{n}")
        s.record("receiver_stored", n, f"id{n}", f"m:{n}")
    s.fetch(2, 1)


def admitted_out_of_order(s: Script) -> None:
    for n in (1, 2):
        s.sent(f"m:{n}", f"id{n}")
    s.at += 10
    for n in (1, 2):
        s.record("receiver_stored", 3 - n, f"id{n}", f"m:{n}")


def body_in_notice(s: Script) -> None:
    s.armed()
    s.record("receiver_stored")
    s.woken(text=f"{NOTICE} [[m:1]]")


def exit_2(s: Script) -> None:
    s.armed()
    s.woken(text="interlink-mcp wait: cannot lock")


def too_soon(s: Script) -> None:
    s.record("receiver_stored")
    s.notice("n1")
    s.notice("n2", after=0.5)


def woken_twice(s: Script) -> None:
    s.record("receiver_stored")
    s.notice()
    for pid in (12, 13):
        s.armed(pid)
        s.woken(pid)


def woken_for_consumed(s: Script) -> None:
    delivered(s)
    s.at += 5
    s.armed(13)
    s.woken(13, NOTICE.replace("n1", "n2"))


def woken_for_progress(s: Script) -> None:
    s.armed()
    s.record("receiver_stored", task="t", status="update")
    s.woken()


def never_woken(s: Script) -> None:
    s.armed()
    s.sent()
    s.record("receiver_stored")
    s.at += 30


def back_from_acknowledged(s: Script) -> None:
    delivered(s)
    s.record("inbox_queued")


def old_progress(s: Script) -> None:
    for n in (1, 2):
        s.record("receiver_stored", n, f"id{n}", f"m:{n}", task="t", status="update")
    s.fetch(1, 2)


def progress_after_result(s: Script) -> None:
    s.record("receiver_stored", 1, task="t", status="update")
    s.record("receiver_stored", 2, "id2", "m:2", task="t", status="result")
    s.fetch(2, 1)


def torn(s: Script) -> None:
    s.add("bob.files", "unparsable", store="mailbox", file="mailbox/x.json", error="end of data")


def consumed_by_nobody(s: Script) -> None:
    s.sent()
    s.record("receiver_stored")
    s.record("receiver_acknowledged")


FAULTS: dict[Callable[[Script], None], str] = {
    lost: "accepted-stored-once",
    stored_twice: "stored-once",
    not_fetched: "stored-fetchable",
    came_back: "acked-never-again",
    stranger: "stranger-never-stored",
    forged: "forged-never-stored",
    out_of_order: "fetch-order",
    admitted_out_of_order: "sender-order",
    body_in_notice: "no-body-in-notice",
    exit_2: "exit-2-is-a-wake",
    too_soon: "duplicate-notice",
    woken_twice: "one-wake-a-notice",
    woken_for_consumed: "consumed-wakes-nobody",
    woken_for_progress: "progress-wakes-nobody",
    never_woken: "idle-wake",
    back_from_acknowledged: "state-edges",
    old_progress: "progress-superseded",
    progress_after_result: "progress-superseded",
    torn: "files-parse",
    consumed_by_nobody: "consumed-when-acked",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_each_fault_is_found_by_its_name(script: Script, fault: Callable[[Script], None]) -> None:
    fault(script)
    script.end()
    assert FAULTS[fault] in script.found()
    assert FAULTS[fault] in names()


def test_what_is_left_behind_is_found(script: Script) -> None:
    delivered(script)
    script.add("lab", "ending")
    script.add("lab", "leftovers", node="bob", processes=[{"argv": "interlink-mcp wait"}], locks=["a.lock"])
    assert script.found() == {"nothing-left-running", "locks-free"}


def test_a_violation_shows_the_events_that_prove_it(script: Script) -> None:
    delivered(script)
    script.fetch(1)
    script.end()
    (violation,) = check(script.history)
    assert [e["kind"] for e in violation.events] == ["ack", "fetch.begin", "fetch"]


def test_a_fault_that_the_lab_made_excuses_what_it_may(script: Script) -> None:
    script.add("lab", "fault", id=1, fault="corrupt", target="bob.files")
    torn(script)
    script.add("lab", "fault.end", id=1)
    script.at += 5
    assert "files-parse" not in script.found()
    torn(script)
    assert "files-parse" in script.found()


def test_a_kill_excuses_no_order(script: Script) -> None:
    script.add("lab", "fault", id=1, fault="kill-relay", target="r1", lasts=False)
    for n in (1, 2):
        script.sent(f"m:{n}", f"id{n}")
    script.add("lab", "fault", 1.0, id=2, fault="kill-server", target="bob.server", lasts=False)
    script.at += 10
    for n in (1, 2):
        script.record("receiver_stored", 3 - n, f"id{n}", f"m:{n}")
    script.end()
    assert "sender-order" in script.found()


def test_a_line_of_the_outbox_may_be_cut_by_a_kill_and_one_of_the_inbox_may_not() -> None:
    def found(store: str, code: int | None, party: str = "bob.server") -> set[str]:
        script = Script()
        script.add(party, "exit", pid=11, code=code)
        script.add("bob.files", "unparsable", store=store, file=f"{store}/x.jsonl", error="no end", line=True)
        return script.found()

    assert found("outbox", -9) == set()
    assert found("outbox", -9, "bob.host") == set()
    assert found("outbox", 0) == {"files-parse"}
    assert found("outbox", -9, "alice.server") == {"files-parse"}
    assert found("outbox", -9, "bob.listener") == {"files-parse"}
    assert found("inbox", -9) == {"files-parse"}
    assert found("replay", -9) == {"files-parse"}


def told_of_a_second(script: Script) -> None:
    """All that the first notice covered is consumed, and the second message has a notice of its own."""
    delivered(script)
    script.record("receiver_stored", 2, "id2", "m:2")
    script.sent("m:2", "id2")
    script.notice("n2", 2)


def test_a_notice_in_time_or_for_something_new_is_none_too_many(script: Script) -> None:
    told_of_a_second(script)
    script.notice("n3", 2, after=1.1)  # the first interval has passed
    script.notice("n4", 2, after=2.1)
    assert "duplicate-notice" not in script.found()
    script.notice("n5", 2, after=2.1)  # the third interval is 3 s
    assert "duplicate-notice" in script.found()


def test_a_message_made_anew_brings_its_notice_forward_although_its_mark_is_seen_late(script: Script) -> None:
    told_of_a_second(script)
    script.notice("n3", 2, after=0.3)
    assert "duplicate-notice" in script.found()
    script.add("bob.files", "remade", session="another", sender=ALICE, msg_id="id2", late=0.2)
    assert "duplicate-notice" in script.found()
    script.add("bob.files", "remade", session=S_BOB, sender=ALICE, msg_id="id2", late=0.2)
    assert "duplicate-notice" not in script.found()


def test_a_handoff_that_took_long_counts_from_when_it_was_decided_on(script: Script) -> None:
    told_of_a_second(script)
    script.notice("n3", 2, after=0.5)
    assert "duplicate-notice" in script.found()
    for ident, ms in (("n2", 800), ("n3", 300)):
        script.add("bob.server", "log", event="notice", fields={"id": ident, "ms": str(ms)})
    assert "duplicate-notice" in script.found()
    script.add("bob.server", "log", event="notice", fields={"id": "n2", "ms": "1200"})
    assert "duplicate-notice" not in script.found()


def test_a_history_comes_back_from_its_file(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    history.note("topology", relays=["r1"], hosts={})
    history.add({"at_ns": history.begun_ns + 1_500_000_000, "party": "bob.agent", "n": 1, "kind": "fetch"})
    history.close()
    again = History.load(tmp_path / "history.jsonl")
    assert [(e["kind"], e["party"]) for e in again.ordered()] == [("topology", "lab"), ("fetch", "bob.agent")]
    assert again.events[1]["t"] == 1.5
    assert [e["n"] for e in again.of("fetch", party="bob")] == [1]
    assert not list(again.of("fetch", party="bo"))
    assert Facts(again).relays == ["r1"]


def test_a_host_that_starts_again_counts_its_calls_anew(script: Script) -> None:
    script.record("receiver_stored", 1, task="t", status="update")
    call = {"session": S_BOB, "call": 7}
    rows = [{"sender": ALICE, "msg_id": "id1", "delivery_id": "d1", "token": "m:1"}]
    script.add("bob.agent", "fetch.begin", **call)
    script.add("bob.agent", "fetch", messages=rows, more=0, **call)
    script.record("receiver_stored", 2, "id2", "m:2", task="t", status="update")
    script.add("bob.agent", "fetch.begin", 1.0, **call)  # the same number, by the next process
    assert "progress-superseded" not in script.found()
    script.add("bob.agent", "fetch", messages=rows, more=0, **call)
    assert "progress-superseded" in script.found()


def test_a_record_that_was_adopted_is_in_its_new_session_from_then_on(script: Script) -> None:
    script.sent()
    script.record("receiver_stored")
    script.add("bob.server", "log", event="stored", fields={"msg_id": "id1"})
    script.add("bob.server", "log", event="session", fields={"id": "new"})
    script.fetch()  # of the new session, which has nothing yet
    script.add(
        "bob.files", "record.gone", session=S_BOB, identity=BOB, sender=ALICE, msg_id="id1", delivery_id="d1"
    )
    script.record("receiver_stored", session="new")
    script.fetch(1)
    assert "stored-fetchable" not in script.found()
    script.fetch()
    assert "stored-fetchable" in script.found()
