"""The checker of the lab: nothing is wrong with a healthy history, and each fault is found by its invariant."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlink_lab.checker import check, names
from interlink_lab.checker.model import Facts
from interlink_lab.history import History

ALICE, BOB, EVE = "A" * 43, "B" * 43, "E" * 43
S_ALICE, S_BOB = "session-alice", "session-bob"
NOTICE = '[Interlink inbox notice] 1 unread message.\nCall receive_messages(notification_id="n1") to read them'


class Script:
    """A history by hand: `at` is the time of the next event."""

    def __init__(self) -> None:
        self.history = History()
        self.at = 0.0
        self._counts: dict[str, int] = {}
        hosts = {name: {"kind": "claude", "trusts": []} for name in ("alice", "bob")}
        self.add("lab", "topology", relays=["r1"], hosts=hosts, schedule_s=[1.0, 2.0, 3.0])
        self.add(
            "lab", "identities", keys={"alice": ALICE, "bob": BOB}, trusts={"alice": [BOB], "bob": [ALICE]},
            sessions={"alice": S_ALICE, "bob": S_BOB},
        )  # fmt: skip
        self.add("bob.server", "start", pid=11, session=S_BOB)
        self.add("bob.server", "log", event="session", fields={"id": S_BOB})

    def add(self, party: str, kind: str, after: float = 0.01, **data: Any) -> dict[str, Any]:
        self.at += after
        count = self._counts[party] = self._counts.get(party, 0) + 1
        event: dict[str, Any] = {"t": round(self.at, 6), "party": party, "n": count, "kind": kind, **data}
        self.history.events.append(event)
        return event

    def sent(self, token: str = "m:1", msg_id: str = "id1", **data: Any) -> None:
        common = {"session": S_ALICE, "call": len(self.history.events), "token": token, "to": "bob", **data}
        self.add("alice.agent", "send.begin", **common)
        self.add("alice.agent", "send.ok", msg_id=msg_id, state="bus_accepted", **common)

    def record(self, state: str, seq: int = 1, msg_id: str = "id1", token: str = "m:1", **data: Any) -> None:
        row = {
            "session": S_BOB, "identity": BOB, "new": state == "receiver_stored", "sender": ALICE,
            "msg_id": msg_id,
            "delivery_id": f"d{seq}", "seq": seq, "state": state, "alias": "", "superseded_by": "", "token": token,
            "task": "", "status": "", "local": False, "ts": seq, "reply_to": "",
        }  # fmt: skip
        self.add("bob.files", "record", **{**row, **data})

    def notice(self, ident: str = "n1", through: int = 1, after: float = 0.01) -> None:
        self.add("bob.files", "inbox", after, session=S_BOB, what="notice", notice=ident, through=through)

    def armed(self, pid: int = 12) -> None:
        self.add("bob.listener", "start", pid=pid, session=S_BOB, hook="Stop")
        self.add("bob.files", "armed", session=S_BOB)

    def woken(self, pid: int = 12, text: str = NOTICE) -> None:
        self.add("bob.files", "unarmed", session=S_BOB)
        self.add("bob.listener", "exit", pid=pid, code=2, text=text, hook="Stop")
        self.add("bob.host", "wake", text=text, joined=False, session=S_BOB)

    def fetch(self, *seqs: int, more: int = 0, **data: Any) -> None:
        call = len(self.history.events)
        self.add("bob.agent", "fetch.begin", session=S_BOB, call=call)
        rows = [{"sender": ALICE, "msg_id": f"id{n}", "delivery_id": f"d{n}", "token": f"m:{n}"} for n in seqs]
        self.add("bob.agent", "fetch", session=S_BOB, call=call, messages=rows, more=more, after=False, **data)

    def ack(self, *seqs: int) -> None:
        call = len(self.history.events)
        receipts = [{"sender": ALICE, "msg_id": f"id{n}", "delivery_id": f"d{n}"} for n in seqs]
        self.add("bob.agent", "ack.begin", session=S_BOB, call=call, receipts=receipts)
        self.add(
            "bob.agent", "ack", session=S_BOB, call=call, receipts=receipts, newly=len(seqs), already=0, unknown=0
        )

    def end(self) -> None:
        self.add("lab", "ending", 0.1)
        self.add("lab", "leftovers", node="bob", processes=[], locks=[])

    def found(self) -> set[str]:
        return {violation.invariant for violation in check(self.history)}


def delivered(script: Script) -> None:
    """One message, as it should be."""
    script.armed()
    script.sent()
    script.record("receiver_stored")
    script.notice()
    script.record("inbox_queued")
    script.woken()
    script.fetch(1)
    script.ack(1)
    script.record("receiver_acknowledged")


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


def test_a_notice_in_time_or_for_something_new_is_none_too_many(script: Script) -> None:
    delivered(script)
    script.record("receiver_stored", 2, "id2", "m:2")
    script.sent("m:2", "id2")
    script.notice("n2", 2)  # all that n1 covered is consumed
    script.notice("n3", 2, after=1.1)  # the first interval has passed
    script.notice("n4", 2, after=2.1)
    assert "duplicate-notice" not in script.found()
    script.notice("n5", 2, after=2.1)  # the third interval is 3 s
    assert "duplicate-notice" in script.found()


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
