"""The gate: five checks in one order, and the memory is asked last of all (G1, G3, G4)."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.keys import ALICE, BOB, CAROL, NOW_MS, message

from interlink.settings import Settings
from interlink.trust import gate, wire
from interlink.trust.gate import Verdict

PETNAMES = {ALICE.public: "alice"}
DAY_MS = 86_400_000
SECURITY = Path(__file__).parents[2] / "docs" / "security.md"


class Memory:
    """Answers one word and counts how often it is asked."""

    def __init__(self, answer: str = "") -> None:
        self.answer = answer
        self.asked = 0

    def __call__(self, _msg: wire.Message) -> str:
        self.asked += 1
        return self.answer


def judge(msg: wire.Message, memory: Callable[[wire.Message], str], settings: Settings | None = None) -> Verdict:
    return gate.judge(msg, BOB.public, PETNAMES, memory, NOW_MS, settings or Settings())


# One fault for each check, in the order of the checks. Each changes what the message is made of.
FAULTS: dict[str, dict[str, object]] = {
    gate.BAD_SIGNATURE: {"spoil": True},
    gate.NOT_FOR_US: {"to": CAROL},
    gate.STRANGER: {"sender": CAROL},
    gate.EXPIRED: {"ts": NOW_MS - 2 * DAY_MS},
    gate.FROM_FUTURE: {"ts": NOW_MS + DAY_MS},
    gate.REPLAY: {"memory": gate.REPLAY},
    gate.REPEAT: {"memory": gate.REPEAT},
}
ORDER = [
    {gate.BAD_SIGNATURE},
    {gate.NOT_FOR_US},
    {gate.STRANGER},
    {gate.EXPIRED, gate.FROM_FUTURE},
    {gate.REPLAY, gate.REPEAT},
]
SETS = [
    combination
    for size in range(len(FAULTS) + 1)
    for combination in itertools.combinations(FAULTS, size)
    if all(len(step & set(combination)) <= 1 for step in ORDER)
]


@pytest.mark.req("G1", "G3")
@pytest.mark.parametrize("faults", SETS, ids=lambda f: "+".join(f) or "none")
def test_the_earlier_check_wins(faults: tuple[str, ...]) -> None:
    """Every set of faults, pairs among them: the verdict is the fault of the first check."""
    made: dict[str, object] = {}
    for fault in faults:
        made.update(FAULTS[fault])
    memory = Memory(str(made.pop("memory", "")))
    spoil = made.pop("spoil", False)
    msg = message(**made)  # type: ignore[arg-type]
    if spoil:
        msg.sig = message(text="another").sig
    verdict = judge(msg, memory)
    assert verdict.reason == (faults[0] if faults else gate.ADMIT)
    # The memory learns nothing of what an earlier check refused (G3).
    earlier = set(faults) - {gate.REPLAY, gate.REPEAT}
    assert memory.asked == (0 if earlier else 1)
    known = not earlier & {gate.BAD_SIGNATURE, gate.NOT_FOR_US, gate.STRANGER}
    assert verdict.petname == ("alice" if known else "")


def test_the_table_has_every_pair() -> None:
    pairs = {frozenset(pair) for pair in itertools.combinations(FAULTS, 2)}
    same_step = {frozenset(step) for step in ORDER if len(step) == 2}
    assert pairs - same_step <= {frozenset(s) for s in SETS}


EDGES = [
    (60_000, gate.ADMIT),
    (60_001, gate.FROM_FUTURE),
    (0, gate.ADMIT),
    (-DAY_MS, gate.ADMIT),
    (-DAY_MS - 1, gate.EXPIRED),
]


@pytest.mark.req("G1", "G3")
@pytest.mark.parametrize("offset, reason", EDGES)
def test_freshness_to_the_millisecond(offset: int, reason: str) -> None:
    msg = message(ts=NOW_MS + offset)
    assert judge(msg, Memory()).reason == reason
    assert gate.judge_control(msg, BOB.public, NOW_MS, Settings()).reason == reason


@pytest.mark.req("G1")
def test_freshness_is_a_setting() -> None:
    settings = Settings()
    settings.fresh_ahead_s, settings.fresh_behind_s = 0.5, 2
    found = [judge(message(ts=NOW_MS + off), Memory(), settings).reason for off in (501, 500, -2000, -2001)]
    assert found == [gate.FROM_FUTURE, gate.ADMIT, gate.ADMIT, gate.EXPIRED]


@pytest.mark.req("G1")
@pytest.mark.parametrize("ts, reason", [(0, gate.EXPIRED), (2**64 - 1, gate.FROM_FUTURE)])
def test_the_ends_of_time(ts: int, reason: str) -> None:
    assert judge(message(ts=ts), Memory()).reason == reason


@pytest.mark.req("G1")
def test_our_own_key_is_self() -> None:
    """Without an entry, and whatever an entry calls it."""
    msg = message(BOB, BOB)
    assert judge(msg, Memory()) == Verdict(gate.ADMIT, "self")
    assert gate.judge(msg, BOB.public, {BOB.public: "me"}, Memory(), NOW_MS, Settings()).petname == "self"
    assert gate.judge(msg, BOB.public, {}, Memory(gate.REPLAY), NOW_MS, Settings()).reason == gate.REPLAY


@pytest.mark.req("G1")
def test_nobody_is_admitted_by_an_empty_list() -> None:
    assert gate.judge(message(), BOB.public, {}, Memory(), NOW_MS, Settings()) == Verdict(gate.STRANGER)


@pytest.mark.req("G1", "G2")
@pytest.mark.parametrize("change", [{"sender": "A" * 43}, {"sender": "x"}, {"sig": ""}, {"sig": "A" * 86}])
def test_malformed_is_a_bad_signature(change: dict[str, str]) -> None:
    """Also when somebody put a key of small order on the list."""
    msg = message()
    for name, value in change.items():
        setattr(msg, name, value)
    memory = Memory()
    found = gate.judge(msg, BOB.public, {"A" * 43: "zero"}, memory, NOW_MS, Settings())
    assert found.reason == gate.BAD_SIGNATURE and memory.asked == 0


@pytest.mark.req("G4")
def test_control_messages() -> None:
    """A stranger may knock; signature, address and time are checked in that order."""

    def found(msg: wire.Message) -> str:
        return gate.judge_control(msg, BOB.public, NOW_MS, Settings()).reason

    assert found(message(CAROL, kind="pair_request", text="carol")) == gate.ADMIT
    spoiled = message(CAROL, CAROL, kind="pair_request", ts=0)
    spoiled.text = "other"
    assert found(spoiled) == gate.BAD_SIGNATURE
    assert found(message(CAROL, CAROL, kind="pair_request", ts=0)) == gate.NOT_FOR_US
    assert found(message(CAROL, kind="pair_accept", ts=0)) == gate.EXPIRED


@pytest.mark.req("G3")
def test_refusals_are_all_words_but_admit_and_repeat() -> None:
    assert set(gate.REFUSALS) == set(FAULTS) - {gate.REPEAT}


WINDOW_MS = DAY_MS + 60_000


@pytest.mark.req("G5")
@given(st.integers(-DAY_MS, 60_000), st.integers(0, 2 * WINDOW_MS))
def test_the_memory_outlives_freshness(offset: int, later: int) -> None:
    """Whenever the gate would still take a copy for fresh, the memory has not dropped the message."""
    msg = message(ts=NOW_MS + offset)
    forget = gate.forget_at_ms(msg.ts, NOW_MS, Settings())
    now = NOW_MS + later
    if gate.judge(msg, BOB.public, PETNAMES, Memory(), now, Settings()).reason == gate.ADMIT:
        assert now < forget


@pytest.mark.req("G5")
def test_forget_at() -> None:
    assert gate.forget_at_ms(1000, 5000, Settings()) == 5000 + WINDOW_MS
    assert gate.forget_at_ms(9000, 5000, Settings()) == 9000 + WINDOW_MS


def test_the_document_lists_the_checks_in_their_order() -> None:
    listed = SECURITY.read_text("utf-8").partition("## What is proven")[2].partition("The five are checked")[0]
    points = [line.partition("**")[2].partition(".**")[0] for line in listed.splitlines() if line.startswith("- ")]
    assert points == [
        "Who wrote a message",
        "That it is for you",
        "That you allowed its sender",
        "That it is fresh",
        "That it is new",
    ]
