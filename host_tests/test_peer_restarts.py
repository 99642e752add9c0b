"""Nothing is lost where a relay or a server of either make dies, is away or is full."""

from collections.abc import Callable
from pathlib import Path

import pytest

from host_tests.peer import MAKES, Desk, befriend, http, mails, relay
from host_tests.waiting import until

WAYS = ["ours-to-theirs", "theirs-to-ours"]


def ordered(way: str, ours: Desk, theirs: Desk) -> tuple[Desk, Desk]:
    return (ours, theirs) if way == WAYS[0] else (theirs, ours)


@pytest.mark.req("B7", "B2", "M28")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", MAKES)
def test_mail_outlives_the_relay_and_the_receiver(
    make: str, way: str, tmp_path: Path, peer: Callable[[], Path]
) -> None:
    """The receiver is killed, mail queued, the relay killed; when both are back: all there, once, in order."""
    bus = relay(tmp_path / "relay", make, peer())
    bus.start()
    try:
        with Desk(tmp_path, "ours", bus.url) as ours, Desk(tmp_path, "theirs", bus.url, peer()) as theirs:
            befriend(ours, theirs)
            sender, receiver = ordered(way, ours, theirs)
            first = sender.send(receiver, "before")
            receiver.got(first)
            receiver.kill()
            waiting = [sender.send(receiver, f"while away {n}") for n in range(3)]
            bus.kill()
            late = sender.post(receiver.name, "while nobody listens", session=receiver.session)
            bus.start()
            receiver.start()
            sender.accepted(late)
            found = receiver.got(first, *waiting, late)
            assert [mail.receipt["msg_id"] for mail in receiver.fetch()] == [first, *waiting, late]
            assert receiver.acknowledge(*found[:3]) == 3
            receiver.kill()
            receiver.start()
            until(lambda: [m.receipt["msg_id"] for m in receiver.fetch()] == [waiting[2], late], "what is unread")
            route = f"/recv?timeout_ms=1&me={receiver.key}%23{receiver.session}"
            until(lambda: http(bus).call("GET", route).json == {"status": "timeout"}, "an empty queue")
    finally:
        bus.stop()


@pytest.mark.req("B7", "T5")
@pytest.mark.parametrize("make", MAKES)
def test_our_outbox_survives_while_their_session_waits(
    make: str, tmp_path: Path, peer: Callable[[], Path]
) -> None:
    """No relay, then no sender: the message goes out with its id when both are back (theirs forgets it here)."""
    bus = relay(tmp_path / "relay", make, peer())
    bus.start()
    try:
        with Desk(tmp_path, "ours", bus.url) as ours, Desk(tmp_path, "theirs", bus.url, peer()) as theirs:
            befriend(ours, theirs)
            bus.kill()
            ident = ours.post("theirs", "kept by the sender", session=theirs.session)
            ours.kill()
            bus.start()
            ours.start()
            (found,) = theirs.got(ident)
            assert found.body == "kept by the sender"
    finally:
        bus.stop()


@pytest.mark.req("B7", "B2")
def test_a_full_queue_of_ours_makes_their_sender_wait(tmp_path: Path, peer: Callable[[], Path]) -> None:
    """Their client takes 429 as "not yet": beyond the cap nothing is lost. (Their relay drops the oldest.)"""
    bus = relay(tmp_path / "relay", "ours", peer(), "--queue-cap", "2")
    bus.start()
    try:
        with Desk(tmp_path, "ours", bus.url) as ours, Desk(tmp_path, "theirs", bus.url, peer()) as theirs:
            befriend(ours, theirs)
            ours.kill()
            idents = [theirs.post("ours", f"number {n}", session=ours.session) for n in range(5)]
            theirs.accepted(idents[1])
            assert "pending" in theirs.call("message_status", msg_id=idents[4])
            ours.start()
            ours.got(*idents)
            assert [mail.body for mail in ours.fetch()] == [f"number {n}" for n in range(5)]
    finally:
        bus.stop()


@pytest.mark.req("B7")
def test_their_relay_drops_the_oldest_beyond_its_cap(tmp_path: Path, peer: Callable[[], Path]) -> None:
    """The one way in which mail to ours can be lost on their relay: seen, so that the documents say so."""
    bus = relay(tmp_path / "relay", "theirs", peer(), "--queue-cap", "2")
    bus.start()
    try:
        with Desk(tmp_path, "ours", bus.url) as ours, Desk(tmp_path, "theirs", bus.url, peer()) as theirs:
            befriend(ours, theirs)
            theirs.kill()
            idents = [ours.send(theirs, f"number {n}") for n in range(4)]
            theirs.start()
            theirs.got(*idents[2:])
            assert len(theirs.fetch()) == 2
    finally:
        bus.stop()


@pytest.mark.req("B7", "B2", "G5")
def test_one_copy_through_two_relays_of_different_make(tmp_path: Path, peer: Callable[[], Path]) -> None:
    """Each sends to both relays and polls both: one copy is kept; with one relay dead the other one carries."""
    buses = [relay(tmp_path / make, make, peer()) for make in MAKES]
    try:
        for bus in buses:
            bus.start()
        urls = ",".join(bus.url for bus in buses)
        with Desk(tmp_path, "ours", urls) as ours, Desk(tmp_path, "theirs", urls, peer()) as theirs:
            befriend(ours, theirs)
            for dead in (None, *buses):
                if dead is not None:
                    dead.kill()
                for sender, receiver in ((ours, theirs), (theirs, ours)):
                    ident = sender.send(receiver, "through both")
                    receiver.acknowledge(*receiver.got(ident))
                if dead is not None:
                    dead.start()
            for one, other in ((ours, theirs), (theirs, ours)):
                found = mails(one.call("conversation_history", peer=other.name))
                assert len(found) == len({mail.receipt["msg_id"] for mail in found}) == 3
    finally:
        for bus in buses:
            bus.stop()
