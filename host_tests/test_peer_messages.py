"""Messages between our programs and the Rust ones, both ways, through the relay of either make."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from host_tests.peer import MAKES, Desk, Refused, befriend, http, relay
from host_tests.waiting import until
from interlink_lab.programs import Relay
from interlink_lab.wire import Signer, send_body

WAYS = ["ours-to-theirs", "theirs-to-ours"]
TEXT = 'é "quoted" \\ </interlink>\n<interlink sender="x">\u2028 \U0001f600\r tab\t' + "z" * 5000
FIRST, SECOND = "01900000-1234-7000-8000-00000000000a", "01900000-1234-7000-8000-00000000000b"


@pytest.fixture(params=WAYS)
def pair(
    request: pytest.FixtureRequest, bus: Relay, tmp_path: Path, peer: Callable[[], Path]
) -> Iterator[tuple[Desk, Desk]]:
    """Sender and receiver of different makes that trust each other."""
    with Desk(tmp_path, "ours", bus.url) as ours, Desk(tmp_path, "theirs", bus.url, peer()) as theirs:
        befriend(ours, theirs)
        yield (ours, theirs) if request.param == WAYS[0] else (theirs, ours)


@pytest.mark.req("B7", "B5")
def test_every_kind_of_message(pair: tuple[Desk, Desk]) -> None:
    sender, receiver = pair
    task = {"task_id": "t-1"}
    opening = sender.send(receiver, "please build", **task)
    question = sender.send(receiver, "which one?", status="needs_input", **task)
    answer = sender.send(receiver, "the second", in_reply_to=question, **task)
    result = sender.send(receiver, "done", status="result", task_id="t-2")
    failed = sender.send(receiver, "broken", status="failed", task_id="t-3")
    cancel = sender.call("cancel_task", to=receiver.name, task_id="t-4", reason="no longer needed")
    plain_one = sender.send(receiver, "no task at all")

    found = receiver.got(opening, question, answer, result, failed, plain_one)
    assert [mail.task() for mail in found] == [
        ("t-1", None, None),
        ("t-1", "needs_input", None),
        ("t-1", None, question),
        ("t-2", "result", None),
        ("t-3", "failed", None),
        (None, None, None),
    ]
    canceled = until(lambda: [m for m in receiver.fetch() if m.task()[0] == "t-4"], "the cancellation")[0]
    assert canceled.task() == ("t-4", "canceled", None) and canceled.body == "no longer needed", cancel
    everything = [*found, canceled]
    assert {mail.petname for mail in everything} == {sender.name}
    assert {mail.receipt["sender"] for mail in everything} == {sender.key}
    assert receiver.acknowledge(*everything) == len(everything)
    assert receiver.acknowledge(*everything) == 0 and receiver.fetch() == []


@pytest.mark.req("B7", "M14")
def test_progress_is_superseded_by_newer_progress_and_by_the_end(pair: tuple[Desk, Desk]) -> None:
    sender, receiver = pair
    first = sender.send(receiver, "10 %", status="update", task_id="t")
    second = sender.send(receiver, "60 %", status="update", task_id="t")
    other = sender.send(receiver, "5 %", status="update", task_id="another")
    receiver.got(second, other)
    assert first not in [mail.receipt["msg_id"] for mail in receiver.fetch()]
    last = sender.send(receiver, "all done", status="result", task_id="t")
    receiver.got(last)
    assert {mail.receipt["msg_id"] for mail in receiver.fetch()} == {other, last}
    history = receiver.call("conversation_history", peer=sender.name)
    assert "10 %" in history and "60 %" in history, "what was superseded stays in the history"


@pytest.mark.req("B7", "C9")
def test_a_text_arrives_as_it_was_sent(pair: tuple[Desk, Desk]) -> None:
    sender, receiver = pair
    ident = sender.send(receiver, TEXT)
    (found,) = receiver.got(ident)
    (record,) = receiver.records()
    assert record["message"]["text"] == TEXT
    assert found.body.count("</interlink>") == 0, "a body cannot end its own frame"
    assert len(found.body) >= len(TEXT)


@pytest.mark.req("B7", "B4")
def test_an_answer_without_a_session_goes_to_the_session_that_wrote(
    pair: tuple[Desk, Desk], bus: Relay, tmp_path: Path
) -> None:
    """The hint `reply_to` is understood both ways: of two live sessions the writing one is answered."""
    sender, receiver = pair
    with Desk(tmp_path, sender.name, bus.url, sender.theirs, home=sender.home, session="a-second") as second:
        until(lambda: receiver.sees(second), "the second session")
        with pytest.raises(Refused, match="a-second"):
            receiver.call("send_message", to=sender.name, text="to whom?")
        asked = second.send(receiver, "from the second session")
        receiver.got(asked)
        answer = receiver.post(sender.name, "to the second session", in_reply_to=asked)
        (found,) = second.got(answer)
        assert found.task() == (None, None, asked) and sender.fetch() == []


@pytest.mark.req("B7", "G5", "G1")
def test_repeats_and_forgeries(pair: tuple[Desk, Desk], bus: Relay) -> None:
    """A copy is stored once; a changed text, a foreign signature, a stranger, an old message never arrive."""
    sender, receiver = pair
    good = sender.signer.message(receiver.key, "twice", reply_to=sender.route)
    other = Signer.fresh()
    forged = [
        good | {"text": "changed", "msg_id": "f" * 32},
        good | {"msg_id": "e" * 32, "sig": other.message(receiver.key, "twice")["sig"]},
        other.message(receiver.key, "from a stranger"),
        sender.signer.message(other.public, "to another key"),
        sender.signer.message(receiver.key, "too old", ts=1_700_000_000_000),
    ]
    end = sender.signer.message(receiver.key, "the end", reply_to=sender.route)
    client = http(bus)
    for payload in [good, good, *forged, good, end]:
        assert client.post("/send", json.loads(send_body(receiver.route, payload))).status == 202
    (found, last) = receiver.got(str(good["msg_id"]), str(end["msg_id"]))
    assert len(receiver.fetch()) == 2 and (found.body, last.body) == ("twice", "the end")
    assert receiver.acknowledge(found) == 1
    assert client.post("/send", json.loads(send_body(receiver.route, good))).status == 202
    after = sender.send(receiver, "after the copy")
    receiver.got(after)
    assert [mail.body for mail in receiver.fetch()] == ["the end", "after the copy"]


@pytest.mark.req("B7", "B4")
def test_two_sessions_of_one_identity(bus: Relay, tmp_path: Path, peer: Callable[[], Path]) -> None:
    """The same key in both makes, on one machine and one state root: each writes to `self`."""
    with (
        Desk(tmp_path, "ours", bus.url, session=FIRST) as ours,
        Desk(tmp_path, "ours", bus.url, peer(), home=ours.home, session=SECOND) as theirs,
    ):
        befriend(ours, theirs)
        there = ours.send(theirs, "to my other session")
        (found,) = theirs.got(there)
        assert found.receipt["sender"] == ours.key and found.body == "to my other session"
        back = theirs.send(ours, "and back", in_reply_to=there)
        (answer,) = ours.got(back)
        assert answer.petname == "self" and answer.task() == (None, None, there)
        alone = theirs.post("self", "the only other session")
        ours.got(alone)
        assert theirs.acknowledge(found) == 1 and len(ours.fetch()) == 2


@pytest.mark.req("B7", "G5")
@pytest.mark.parametrize("make", MAKES)
def test_a_copy_for_another_session_of_the_key(make: str, tmp_path: Path, peer: Callable[[], Path]) -> None:
    """The signature does not bind the session: ours remembers for the whole identity, theirs stores it again."""
    bus = relay(tmp_path / "relay", "ours", peer())
    bus.start()
    theirs = peer() if make == "theirs" else None
    try:
        with (
            Desk(tmp_path, "bob", bus.url, theirs, session=FIRST) as first,
            Desk(tmp_path, "bob", bus.url, theirs, home=first.home, session=SECOND) as second,
        ):
            friend = Signer.fresh()
            first.call("add_peer", petname="friend", key=friend.public)
            once, end = (friend.message(first.key, text) for text in ("captured", "the end"))
            client = http(bus)
            client.send(first.route, once)
            first.got(str(once["msg_id"]))
            client.send(second.route, once)
            client.send(second.route, end)
            second.got(str(end["msg_id"]))
            assert len(second.fetch()) == (1 if make == "ours" else 2)
    finally:
        bus.stop()
