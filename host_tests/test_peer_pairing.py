"""Pairing and presence between our programs and the Rust ones, through the relay of either make."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from host_tests.peer import Desk, befriend, http, mails
from host_tests.waiting import until
from interlink.trust.wire import announcement_holds, decode_announcement
from interlink_lab.programs import Relay

WAYS = ["ours-asks", "theirs-asks"]


@pytest.fixture(params=WAYS)
def pair(
    request: pytest.FixtureRequest, bus: Relay, tmp_path: Path, peer: Callable[[], Path]
) -> Iterator[tuple[Desk, Desk]]:
    """Two that do not know each other; the first one asks."""
    with Desk(tmp_path, "ours", bus.url) as ours, Desk(tmp_path, "theirs", bus.url, peer()) as theirs:
        yield (ours, theirs) if request.param == WAYS[0] else (theirs, ours)


def pairing(desk: Desk) -> dict[str, Any]:
    """The pairing file."""
    path = desk.file("pairing")
    return dict(json.loads(path.read_bytes())) if path.exists() else {"inbound": [], "outbound": [], "queued": []}


def knocked(asker: Desk, asked: Desk) -> None:
    until(lambda: asker.sees(asked), "the other one on the roster")
    asker.call("request_pair", target=asked.name)
    until(lambda: asker.key in asked.call("list_pair_requests"), "the knock")


@pytest.mark.req("B7", "B6", "G4")
def test_a_knock_and_its_acceptance(pair: tuple[Desk, Desk]) -> None:
    asker, asked = pair
    knocked(asker, asked)
    assert f"{asker.name}" in asked.call("list_pair_requests")
    assert asker.trusted() == asked.trusted() == {}, "a knock changes nothing"
    asked.call("accept_pair", fingerprint=asker.key[:8])
    until(lambda: asker.trusted(), "the acceptance at the asker")
    assert asker.trusted() == {asked.name: asked.key} and asked.trusted() == {asker.name: asker.key}
    until(lambda: not any(pairing(asker)[part] for part in ("inbound", "outbound", "queued")), "nothing left over")
    for one, other in (pair, pair[::-1]):
        ident = one.send(other, f"from {one.name}")
        (found,) = other.got(ident)
        assert found.petname == one.name


@pytest.mark.req("B7", "B6")
def test_a_rejected_knock_adds_nobody(pair: tuple[Desk, Desk]) -> None:
    asker, asked = pair
    knocked(asker, asked)
    asked.call("reject_pair", fingerprint=asker.key[:8])
    assert asker.key not in asked.call("list_pair_requests")
    assert asker.trusted() == asked.trusted() == {}


@pytest.mark.req("B7", "G4")
def test_an_acceptance_that_nobody_asked_for_adds_nobody(pair: tuple[Desk, Desk], bus: Relay) -> None:
    asker, asked = pair
    unasked = asked.signer.message(asker.key, "friend", kind="pair_accept", in_reply_to="0" * 32)
    assert http(bus).send(asker.route, unasked).status == 202
    knocked(asked, asker)  # comes behind it in the same queue
    assert asker.trusted() == {}


@pytest.mark.req("B7", "T3")
def test_a_knock_waits_for_the_relay(pair: tuple[Desk, Desk], bus: Relay) -> None:
    """Asked while nobody listens: told when both are there again. The asker's server is killed in between."""
    asker, asked = pair
    until(lambda: asker.sees(asked), "the other one on the roster")
    asked.kill()
    asker.call("request_pair", target=asked.name)
    until(lambda: not pairing(asker)["queued"], "the knock at the relay")
    bus.kill()
    asker.kill()
    bus.start()
    asked.start()
    until(lambda: asker.key in asked.call("list_pair_requests"), "the knock")
    asked.call("accept_pair", fingerprint=asker.key[:8])
    asker.start()
    until(lambda: asker.trusted() == {asked.name: asked.key}, "the acceptance at the asker")


@pytest.mark.req("B7", "B3")
def test_each_is_on_the_roster_of_the_other(pair: tuple[Desk, Desk], bus: Relay) -> None:
    one, other = pair
    befriend(one, other)
    other.call("set_summary", summary="sorting é things")
    until(lambda: "sorting é things" in one.call("discover", peer=other.name), "the summary")
    rows = [decode_announcement(row) for row in http(bus).roster()]
    assert {(row.pubkey, row.session.session_id) for row in rows} == {(d.key, d.session) for d in pair}
    assert all(announcement_holds(row) for row in rows)


@pytest.mark.req("B7", "B3")
def test_a_session_that_ends_says_goodbye_and_is_gone(pair: tuple[Desk, Desk], bus: Relay) -> None:
    one, other = pair
    befriend(one, other)
    one.got(other.send(one, "we have met"))
    other.got(one.send(other, "and talked"))
    one.leave()
    assert [row["pubkey"] for row in http(bus).roster()] == [other.key]
    until(lambda: not other.sees(one), "it off the roster (ours asks every few seconds)")
    history = until(
        lambda: len(found := mails(other.call("conversation_history", peer=one.name))) == 2 and found,
        "the goodbye",
    )
    assert one.session in history[-1].body
