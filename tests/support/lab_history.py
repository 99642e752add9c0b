"""Histories of the lab by hand: one event after another, for the checker's and the report's tests."""

from typing import Any

from interlink_lab.checker import check
from interlink_lab.history import History

ALICE, BOB, EVE = "A" * 43, "B" * 43, "E" * 43
S_ALICE, S_BOB = "session-alice", "session-bob"
NOTICE = '[Interlink inbox notice] 1 unread message.\nCall receive_messages(notification_id="n1") to read them'


class Script:
    """A history by hand: `at` is the time of the next event. `channel`: bob's notices come through one."""

    def __init__(self, channel: str = "") -> None:
        self.history = History()
        self.at = 0.0
        self._counts: dict[str, int] = {}
        hosts: dict[str, Any] = {name: {"kind": "claude", "trusts": []} for name in ("alice", "bob")}
        hosts["bob"]["channel"] = channel
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

    def pushed(self, ident: str = "n1", after: float = 0.01, **data: Any) -> None:
        told = {
            "text": NOTICE, "what": "notice", "declared": True, "taken": True, "wrong": "", "early": False,
            "msg_id": ident, "keys": ["ack_required", "ack_tool", "msg_id", "notification_id", "sender"], **data,
        }  # fmt: skip
        self.add("bob.host", "push", after, session=S_BOB, notice=ident, **told)

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
