"""One session's mailbox with its admission, and a clock that the test moves.

desk = Desk(root)
desk.admit(note("m1"), note("m2", status="update", task_id="t"))   # -> ["stored", "stored"]
desk.ids()                                                          # -> ["m1", "m2"]
desk.ack("m1")
desk.reopened()                                                     # new objects on the same files
"""

from collections.abc import Mapping
from pathlib import Path

from support.keys import ALICE, BOB, CAROL, NOW_MS, message

from interlink.mailbox.record import Local, Notice, Record
from interlink.mailbox.staging import Acknowledged, Receipt, Staged
from interlink.mailbox.store import Handoff, Mailbox, View
from interlink.session.admission import Admission, Admitted, Incoming
from interlink.settings import Settings
from interlink.state.paths import Layout
from interlink.trust.identity import Identity
from interlink.trust.wire import Message, encode_message

ME = BOB.public
PEER = ALICE.public
NAMES = {ALICE.public: "alice", CAROL.public: "carol"}
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
WINDOW_MS = DAY_MS + 60_000  # what a message is remembered for
SECOND_MS = 1000
# The first lines of a child that has these names too.
IN_CHILD = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from support.mail import *
from interlink.mailbox.staging import Receipt
"""


def note(msg_id: str, text: str = "hello", *, sender: Identity = ALICE, **fields: object) -> Message:
    """A signed message to `ME` from the session `a` of its sender; `fields` as of `keys.unsigned`."""
    fields.setdefault("reply_to", f"{sender.public}#a")
    return message(sender, BOB, text, msg_id=msg_id, **fields)


def arrival(msg: Message) -> Incoming:
    """A message with the size that it has on the wire."""
    return Incoming(msg, len(encode_message(msg).encode("utf-8")))


def settings(**changed: object) -> Settings:
    """The defaults with some changes."""
    out = Settings()
    for name, value in changed.items():
        assert hasattr(out, name), name
        setattr(out, name, value)
    return out


class Desk:
    """`names`: the allowlist, key -> petname; `now`: ms, moved by the test."""

    def __init__(
        self,
        root: str,
        session: str = "s1",
        *,
        names: Mapping[str, str] = NAMES,
        now: int = NOW_MS,
        set_to: Settings | None = None,
    ) -> None:
        self.root = root
        self.names = dict(names)
        self.now = now
        self.settings = set_to or Settings()
        self.layout = Layout(root)
        self.mailbox = Mailbox(self.layout, ME, session, self.settings)
        self.admission = Admission(self.layout, self.mailbox, self.settings)

    def reopened(self, session: str | None = None) -> "Desk":
        """New objects on the same files, as another process has them; for another session where one is named."""
        return Desk(
            self.root, session or self.mailbox.session, names=self.names, now=self.now, set_to=self.settings
        )

    # -- arrivals -----------------------------------------------------------------------------------

    def admitted(self, *messages: Message) -> list[Admitted]:
        """Admit one batch."""
        return self.admission.admit([arrival(m) for m in messages], self.names, self.now)

    def admit(self, *messages: Message) -> list[str]:
        """Admit one batch; the outcomes."""
        return [a.outcome for a in self.admitted(*messages)]

    def local(self, msg_id: str, text: str = "hello", source: str = "ci", **about: object) -> Staged:
        """A message of the local source `source`; `about` as of `record.Local`."""
        msg = Message(sender=f"local:{source}", to=ME, text=text, ts=self.now, msg_id=msg_id)
        if "klass" not in about:
            about["klass"] = "actionable"
        return self.admission.admit_local(msg, len(text), Local(**about), self.now)  # type: ignore[arg-type]

    # -- reading ------------------------------------------------------------------------------------

    def view(self) -> View:
        return View(ME, self.names, self.now)

    def unread(self) -> list[Record]:
        """Every unread record, in the order of a fetch."""
        return self.mailbox.fetch(self.view(), 1_000_000).records

    def ids(self) -> list[str]:
        """The receipt ids of what is unread."""
        return [r.receipt_id for r in self.unread()]

    def record(self, msg_id: str, sender: str = PEER) -> Record:
        """The live record of a receipt id."""
        return self.mailbox.read().records[(sender, msg_id)]

    def state(self, msg_id: str, sender: str = PEER) -> str:
        """The state of a record or tombstone."""
        (found,) = self.mailbox.find(msg_id, sender)
        return found.state

    # -- consuming and notices ----------------------------------------------------------------------

    def ack(self, *msg_ids: str, sender: str = PEER) -> Acknowledged:
        return self.mailbox.acknowledge([Receipt(sender, m) for m in msg_ids], self.now)

    def reserve(self, new_id: str = "n1", *, taking_over: bool = False) -> Handoff | None:
        return self.mailbox.reserve(self.view(), new_id, taking_over=taking_over)

    def settle(self, notice_id: str, state: str, *, failed: bool = False) -> bool:
        return self.mailbox.settle(notice_id, state, self.now, definite_failure=failed)

    def notice(self) -> Notice | None:
        """The present reservation."""
        return self.mailbox.read().head.notice
