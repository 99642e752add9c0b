"""The checker on hosts with a channel, on what a relay keeps, on states that advance and on the senders' order."""

from collections.abc import Callable

import pytest
from support.lab_history import NOTICE, S_BOB, Script, delivered


@pytest.fixture
def script() -> Script:
    return Script()


def test_a_host_with_a_channel_is_held_to_its_pushes() -> None:
    def wrong(*scene: Callable[[Script], object]) -> set[str]:
        script = Script("on")
        script.sent()
        script.record("receiver_stored")
        for step in scene:
            step(script)
        return script.found() - {"stored-fetchable", "accepted-stored-once"}

    def later(s: Script) -> None:
        s.at += 30

    assert wrong(Script.pushed) == set()
    assert wrong(Script.pushed, later, lambda s: s.add("bob.host", "turn")) == {"channel-goes-on"}
    assert wrong(lambda s: s.pushed(declared=False)) == {"channel-push"}
    assert wrong(lambda s: s.pushed(wrong="msg_id")) == {"channel-push"}
    assert wrong(lambda s: s.pushed(early=True)) == {"channel-push"}
    assert wrong(lambda s: s.pushed(keys=["msg_id", "notification_id"])) == {"channel-push"}
    assert wrong(lambda s: s.pushed(msg_id="n2")) == {"channel-push"}
    assert wrong(lambda s: s.pushed(text="You have mail")) == {"channel-push"}
    assert wrong(lambda s: s.pushed(what="special")) == {"channel-push"}, "ack_required is not true"
    pairing = {"text": "[Interlink pairing notice] eve asks", "what": "special"}
    assert wrong(lambda s: s.pushed(**pairing)) == set()
    assert wrong(lambda s: s.pushed(**{**pairing, "what": "notice"})) == {"channel-push"}
    assert wrong(Script.pushed, later, lambda s: s.pushed("n2", **pairing)) == {"channel-goes-on"}
    assert wrong(Script.armed) == {"channel-push"}
    assert wrong(lambda s: s.pushed(text=f"{NOTICE} [[m:1]]")) == {"no-body-in-notice"}
    assert wrong(Script.pushed, lambda s: s.pushed("n2", 0.3)) == {"duplicate-notice"}
    assert wrong(Script.pushed, lambda s: s.pushed("n2", 1.1)) == set()
    assert wrong(Script.pushed, lambda s: s.pushed("n2", 0.3, **pairing)) == set()
    delivered_and_told = (lambda s: s.record("receiver_acknowledged"), later, lambda s: s.pushed("n2"))
    assert "consumed-wakes-nobody" in wrong(*delivered_and_told)


@pytest.mark.parametrize("channel", ["", "on", "off"])
def test_a_server_declares_the_channel_where_its_host_has_one(channel: str) -> None:
    for declares in ([], ["claude/channel"]):
        script = Script(channel)
        script.add("bob.server", "start", pid=12, session=S_BOB, declares=declares)
        assert script.found() == (set() if bool(channel) == bool(declares) else {"channel-push"})


def test_a_session_that_fails_and_begins_anew_for_ever_is_no_excuse() -> None:
    script = Script("on")
    script.sent()
    script.record("receiver_stored")
    for _ in range(10):
        script.add("bob.server", "log", after=2.0, event="session", fields={"id": S_BOB})
    assert "channel-goes-on" in script.found()


def test_what_no_host_can_read_is_found(script: Script) -> None:
    script.add("bob.server", "garbled", error="JSONDecodeError: Traceback")
    assert script.found() == {"server-speaks-mcp"}


def test_what_waits_in_a_relay_at_the_end_is_found_unless_a_fault_is_on() -> None:
    def found(*counts: int | None, cut: bool = False) -> set[str]:
        script = Script()
        delivered(script)
        if cut:
            script.add("lab", "fault", id=1, fault="partition", target="bob.link", lasts=True)
        script.end()
        for count in counts:
            script.add("lab", "waiting", relay="r1", host="bob", session=S_BOB, count=count)
        return script.found()

    assert found(0, None) == set()
    assert found(0, 2) == {"relay-drained"}
    assert found(0, 2, cut=True) == set()


def test_the_state_of_what_was_handed_off_advances() -> None:
    def found(*scene: Callable[[Script], object]) -> set[str]:
        script = Script()
        script.sent()
        script.record("receiver_stored")
        script.notice()
        for step in scene:
            step(script)
        script.at += 6
        script.end()
        return script.found() & {"state-advances"}

    def told(s: Script, state: str = "inbox_queued") -> None:
        s.add("bob.server", "log", event="notice", fields={"id": "n1", "ms": "1", "state": state})

    assert found() == set(), "the server has not said that it was handed off"
    assert found(told) == {"state-advances"}
    assert found(told, lambda s: s.record("inbox_queued")) == set()
    assert found(told, lambda s: s.record("receiver_acknowledged")) == set()
    assert found(lambda s: told(s, "delivery_failed")) == set()
    assert found(told, lambda s: s.add("bob.server", "exit", pid=11, code=-9)) == set()
    stopped = {"id": 1, "fault": "disk-full", "target": "bob.disk", "lasts": True}
    assert found(told, lambda s: s.add("lab", "fault", **stopped)) == set()


def test_a_start_before_the_first_message_excuses_no_order(script: Script) -> None:
    script.add("alice.server", "start", pid=21, session="s")
    for n in (1, 2):
        script.sent(f"m:{n}", f"id{n}")
    script.at += 10
    for n in (1, 2):
        script.record("receiver_stored", 3 - n, f"id{n}", f"m:{n}")
    script.add("alice.server", "exit", pid=21, code=0)
    script.end()
    assert "sender-order" in script.found()


def test_a_start_between_two_messages_and_a_fault_before_they_came_excuse_their_order() -> None:
    def found(between: Callable[[Script], object], before: Callable[[Script], object]) -> bool:
        script = Script()
        script.sent()
        between(script)
        script.sent("m:2", "id2")
        script.at += 20
        before(script)
        for n in (1, 2):
            script.record("receiver_stored", 3 - n, f"id{n}", f"m:{n}")
        script.end()
        return "sender-order" in script.found()

    def nothing(_script: Script) -> None: ...

    assert found(nothing, nothing)
    assert not found(lambda s: s.add("alice.server", "start", pid=21, session="s"), nothing)
    assert not found(nothing, lambda s: s.add("lab", "fault", id=1, fault="reorder", target="r1", lasts=True))
