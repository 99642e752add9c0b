"""The checker on hosts with a channel, on what a relay keeps, on states that advance and on the senders' order."""

from collections.abc import Callable

import pytest
from support.lab_history import NOTICE, S_BOB, Script


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
