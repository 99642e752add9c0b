"""Two sessions of an identity against a simple model: any order of arrivals, receipts, restarts and jumps in time.

Session s1 has two processes (two objects on the same files), s2 has one. After every step the mailboxes hold
what the model says, states moved along the edges, and the files parse.
"""

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import settings as profile
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from support.keys import ALICE, CAROL, NOW_MS, identity
from support.mail import DAY_MS, HOUR_MS, ME, NAMES, SECOND_MS, WINDOW_MS, Desk, note, settings

from interlink.mailbox import states
from interlink.mailbox.box import Box
from interlink.mailbox.record import content_fingerprint
from interlink.mailbox.staging import Receipt
from interlink.trust.wire import Message

ROOM = 6
STRANGER = identity(9)
SENDERS = (ALICE, CAROL)
Digest = tuple[str, str, str]
PLACES = st.sampled_from(["a", "b", "c"])  # a and b are processes of s1, c is the one of s2
PICK = st.integers(0, 10_000)
KINDS = st.sampled_from(["new", "new", "new", "same", "signed anew", "other text", "stranger"])
HOWS = st.sampled_from(["plain", "plain", "plain", "delivery", "other delivery", "twice", "any", "unknown"])
MAKES = (
    (None, None, 0),
    ("update", "t", 0),
    ("update", "t", 2),
    ("needs_input", "t", 0),
    (None, "t", -2),
    ("update", "t", -2),
    ("result", "t", 0),
    ("update", "u", 1),
    ("update", None, 0),
    ("failed", "u", -1),
    (None, None, 1),
)
JUMPS = (
    SECOND_MS,
    SECOND_MS,
    31 * SECOND_MS,
    31 * SECOND_MS,
    -5 * SECOND_MS,
    HOUR_MS,
    23 * HOUR_MS,
    WINDOW_MS + 1,
)


def digest(msg: Message) -> Digest:
    return (msg.sender, msg.msg_id, content_fingerprint(msg))


@dataclass
class Held:
    """A message that a session stored."""

    msg: Message
    receipt_id: str
    delivery_id: str
    arrived: int
    unread: bool = True

    @property
    def group(self) -> tuple[str, str | None, str] | None:
        done = self.msg.status in ("update", "result", "failed", "canceled")
        return (self.msg.sender, self.msg.reply_to, self.msg.task_id) if self.msg.task_id and done else None

    @property
    def update(self) -> bool:
        return self.msg.status == "update"


@dataclass
class Shelf:
    """What one session's mailbox should hold, in order of admission."""

    held: list[Held] = field(default_factory=list)

    def unread(self) -> list[Held]:
        return [h for h in self.held if h.unread]

    def prune(self, now: int) -> None:
        """Consumed ones past their window are gone, for receipts and for supersession."""
        self.held = [h for h in self.held if h.unread or max(h.msg.ts, h.arrived) + WINDOW_MS >= now]

    def find(self, d: Digest) -> Held | None:
        return next((h for h in self.held if digest(h.msg) == d), None)

    def store(self, new: Held) -> None:
        for old in self.held:
            if new.group is not None and old.group == new.group:
                if new.update and (not old.update or old.msg.ts > new.msg.ts):
                    new.unread = False
                if old.update and (not new.update or old.msg.ts <= new.msg.ts):
                    old.unread = False
        self.held.append(new)


class Fleet(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.root = tempfile.mkdtemp(prefix="fleet-", dir=os.environ["HOME"])
        self.now = NOW_MS
        self.names = dict(NAMES)
        self.sent: list[Message] = []
        self.shelves = {"s1": Shelf(), "s2": Shelf()}
        self.memory: dict[Digest, tuple[str, int]] = {}  # session and forget time
        self.states: dict[str, str] = {}
        self.acknowledged: set[str] = set()
        self.notices = 0
        set_to = settings(
            mailbox_max_records=ROOM,
            prune_every_s=0,
            replay_compact_bytes=1024,
            notice_schedule_s=(100.0, 200.0),
        )
        self.desks = {
            place: Desk(self.root, "s2" if place == "c" else "s1", names=self.names, set_to=set_to)
            for place in "abc"
        }

    def desk(self, place: str) -> tuple[Desk, Shelf, str]:
        desk = self.desks[place]
        desk.now, desk.names = self.now, self.names
        session = desk.mailbox.session
        return desk, self.shelves[session], session

    # -- arrivals -----------------------------------------------------------------------------------

    def expected(self, msg: Message, shelf: Shelf, session: str, full: bool) -> str:
        """The right outcome of one arrival, with what the memory learns by it."""
        if msg.sender not in self.names:
            return "stranger"
        if msg.ts > self.now + 60_000:
            return "from_future"
        if msg.ts < self.now - DAY_MS:
            return "expired"
        d = digest(msg)
        where, forget = self.memory.get(d, ("", 0))
        if forget < self.now:
            where = ""
        if shelf.find(d) is not None:
            outcome, where = "repeat", where or session
        elif where:
            outcome = "repeat" if where == session else "replay"
        elif full or len(shelf.unread()) >= ROOM:
            return "kept"
        else:
            self.memory[d] = (session, max(msg.ts, self.now) + WINDOW_MS)
            return "stored"
        self.memory[d] = (where, max(forget, msg.ts + WINDOW_MS))
        return outcome

    def arrive(self, place: str, *batch: Message) -> None:
        desk, shelf, session = self.desk(place)
        results = desk.admitted(*batch)
        if any(m.sender in self.names and 0 <= self.now - m.ts + 60_000 <= DAY_MS + 60_000 for m in batch):
            shelf.prune(self.now)
        full = False
        for msg, result in zip(batch, results, strict=True):
            assert result.outcome == self.expected(msg, shelf, session, full), (msg.msg_id, msg.text)
            full = full or result.outcome == "kept"
            if result.outcome == "stored":
                assert result.record is not None
                shelf.store(Held(msg, result.record.receipt_id, result.record.delivery_id, self.now))
        self.sent += batch

    @rule(
        place=PLACES, kinds=st.lists(KINDS, min_size=1, max_size=4), picks=st.lists(PICK, min_size=4, max_size=4)
    )
    def arrivals(self, place: str, kinds: list[str], picks: list[int]) -> None:
        """One batch: new messages, and such as came before in one form or another."""
        batch: list[Message] = []
        for kind, pick in zip(kinds, picks, strict=False):
            known = [m for m in self.sent if m.sender != STRANGER.public][-8:]
            if kind == "stranger":
                batch.append(note(f"m{len(self.sent) + len(batch)}", sender=STRANGER, ts=self.now))
            elif kind == "new" or not known:
                status, task, later = MAKES[pick % len(MAKES)]
                sender = SENDERS[pick // 7 % 3 // 2]
                batch.append(
                    note(
                        f"m{len(self.sent) + len(batch)}",
                        sender=sender,
                        status=status,
                        task_id=task,
                        ts=self.now + later * SECOND_MS,
                    )
                )
            else:
                old = known[pick % len(known)]
                if kind == "same":  # redelivered, from another relay, or captured and sent to the other session
                    batch.append(old)
                    continue
                sender = next(s for s in SENDERS if s.public == old.sender)
                text = old.text + "!" if kind == "other text" else old.text
                batch.append(
                    note(old.msg_id, text, sender=sender, status=old.status, task_id=old.task_id, ts=self.now)
                )
        self.arrive(place, *batch)

    # -- reading and consuming ----------------------------------------------------------------------

    @rule(place=PLACES, limit=st.integers(1, 3))
    def pages(self, place: str, limit: int) -> None:
        desk, shelf, _session = self.desk(place)
        visible = [h for h in shelf.unread() if h.msg.sender in self.names]
        right = [h.delivery_id for h in visible if not h.update] + [h.delivery_id for h in visible if h.update]
        got: list[str] = []
        after = None
        while True:
            page = desk.mailbox.fetch(desk.view(), limit, after)
            got += [r.delivery_id for r in page.records]
            assert page.unread == len(right) and page.more == len(right) - len(got)
            if not page.records:
                break
            after = page.records[-1].key
        assert got == right

    @rule(place=PLACES, picks=st.lists(st.tuples(PICK, HOWS), min_size=1, max_size=6))
    def acknowledge(self, place: str, picks: list[tuple[int, str]]) -> None:
        desk, shelf, _session = self.desk(place)
        receipts: list[Receipt] = []
        newly = already = unknown = 0
        for pick, how in picks:
            if how == "unknown" or not shelf.held:
                receipts.append(Receipt(ALICE.public, "nothing"))
                unknown += 1
                continue
            choice = shelf.held if how == "any" else shelf.unread() or shelf.held
            held = choice[pick % len(choice)]
            delivery = {"delivery": held.delivery_id, "other delivery": "0" * 16}.get(how)
            for _ in range(2 if how == "twice" else 1):
                receipts.append(Receipt(held.msg.sender, held.receipt_id, delivery))
                if how == "other delivery":
                    unknown += 1
                elif held.delivery_id in self.acknowledged or self.buried(desk, held):
                    already += 1
                else:
                    newly += 1
                    held.unread = False
                    self.acknowledged.add(held.delivery_id)
        result = desk.mailbox.acknowledge(receipts, self.now)
        assert result[:3] == (newly, already, unknown)

    def buried(self, desk: Desk, held: Held) -> bool:
        """True where only a tombstone is left (of one that was superseded: there is nothing to acknowledge)."""
        return (held.msg.sender, held.receipt_id) in desk.mailbox.read().tombstones

    @rule(place=PLACES, state=st.sampled_from(states.HANDOFFS), settled=st.booleans(), over=st.booleans())
    def notify(self, place: str, state: str, settled: bool, over: bool) -> None:
        desk, shelf, _session = self.desk(place)
        self.notices += 1
        handoff = desk.reserve(f"n{self.notices}", taking_over=over)
        worth = [h.delivery_id for h in shelf.unread() if h.msg.sender in self.names and not h.update]
        if handoff is not None:
            waiting = [r.delivery_id for r in handoff.waiting]
            assert waiting == worth
            if settled:
                desk.settle(handoff.notice.id, state, failed=state == states.DELIVERY_FAILED)
        elif not worth:
            assert desk.notice() is None

    # -- the world ----------------------------------------------------------------------------------

    @rule(place=PLACES)
    def restart(self, place: str) -> None:
        self.desks[place] = self.desks[place].reopened()
        self.desks[place].admission.open(self.now)

    @rule(ms=st.sampled_from(JUMPS))
    def time_passes(self, ms: int) -> None:
        self.now += ms

    @rule(there=st.sampled_from([True, True, True, False]))
    def carol_is_a_peer(self, there: bool) -> None:
        self.names = dict(NAMES) if there else {ALICE.public: "alice"}

    # -- what always holds --------------------------------------------------------------------------

    @invariant()
    def mailboxes_are_as_they_should_be(self) -> None:
        now_states: dict[str, str] = {}
        for session, shelf in self.shelves.items():
            path = Path(Desk(self.root, session).mailbox.path)
            if not path.exists():
                assert not shelf.held
                continue
            raw = path.read_bytes()
            box = Box.decode(raw, ME, session, str(path))
            assert box.encode() == raw
            unread = [r for r in box.records.values() if r.unread]
            assert [r.delivery_id for r in unread] == [h.delivery_id for h in shelf.unread()]
            assert [r.seq for r in unread] == sorted({r.seq for r in unread})
            assert len(box.records) <= ROOM
            now_states |= {r.delivery_id: r.state for r in (*box.records.values(), *box.tombstones.values())}
        for key, state in now_states.items():
            before = self.states.get(key)
            if before is None:
                assert states.allowed(states.ARRIVAL, state), state
            else:
                assert state == before or states.allowed(before, state), (before, state)
            if key in self.acknowledged:
                assert state == states.RECEIVER_ACKNOWLEDGED
        self.states |= now_states

    def teardown(self) -> None:
        if hasattr(self, "root"):
            shutil.rmtree(self.root)


@pytest.mark.req("M5", "G5", "S3")
def test_any_history_agrees_with_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fsync", "fdatasync"):  # thousands of writes; what is synced when has tests of its own
        monkeypatch.setattr(os, name, lambda fd: None)
    run_state_machine_as_test(
        Fleet,
        settings=profile(
            parent=profile(),
            max_examples=max(33, profile().max_examples // 3),
            stateful_step_count=50,
            phases=(
                Phase.generate,
            ),  # shrinking takes minutes here; the steps of a failure are printed as they are
            suppress_health_check=list(HealthCheck),
        ),
    )
