"""`interlink pair`: a person answers a knock from a shell (G4, G8)."""

import json
import shlex

import pytest
from support.cli import ME, each, interlink, layout, mcp_server, me, ok, peers_path
from support.keys import ALICE, BOB, CAROL
from support.relay import RelayProcess

from interlink.settings import Settings
from interlink.trust.identity import Identity
from interlink.trust.pairing import PairingStore, Request, State
from interlink.trust.peers import PeersFile
from interlink.trust.wire import decode_message, signature_holds

DASHED = next(
    one for one in (Identity.from_seed(n.to_bytes(32, "big")) for n in range(1, 2000)) if one.public[0] == "-"
)


def knock(key: str = CAROL.public, name: str = "carol", session: str = "s1", **fields: object) -> None:
    request = Request(key=key, name=name, request_id=f"r-{key[:4]}", reply_to=f"{key}#c1", **fields)  # type: ignore[arg-type]
    PairingStore(layout(), ME, session).update(lambda state: state.inbound.append(request))


def state(session: str = "s1") -> State:
    return PairingStore(layout(), ME, session).read()


def peers() -> dict[str, str]:
    return dict(PeersFile(peers_path(), ME, Settings()).current().by_name)


def test_list_shows_claims_as_claims() -> None:
    me()
    assert "no pairing request" in ok("pair").out
    knock(name="ev\x1b[31mil\n\u202eforged")
    for words in (["pair"], ["pair", "list"], ["pair", "list", "--json"]):
        done = ok(*words)
        assert CAROL.public in done.out and "\x1b" not in done.out and "\u202e" not in done.out
        assert done.out.count("\n") == 1
    assert 'claims the name "ev[31mil forged"' in ok("pair").out


@pytest.mark.req("G4", "G8")
def test_the_command_that_the_tool_prints_trusts_the_key_and_queues_the_answer() -> None:
    me()
    knock()
    line = shlex.join(["interlink", "pair", "accept", CAROL.public[:8], "--session", "s1"])
    done = ok(*shlex.split(line)[1:])
    assert f'"carol" [{CAROL.public[:8]}] is trusted' in done.out
    assert peers()["carol"] == CAROL.public
    (queued,) = state().queued
    msg = queued.msg
    assert (msg.kind, msg.to, msg.in_reply_to) == ("pair_accept", CAROL.public, f"r-{CAROL.public[:4]}")
    assert queued.route == f"{CAROL.public}#c1" and signature_holds(msg) and state().inbound == []


@pytest.mark.req("G8")
def test_a_name_of_ones_own_and_a_fingerprint_with_a_dash() -> None:
    me()
    knock(DASHED.public, "x")
    ok("pair", "accept", DASHED.public[:8], "--as", "dora")
    assert peers()["dora"] == DASHED.public


@pytest.mark.req("G8")
def test_wrong_answers_change_nothing() -> None:
    me()
    knock()
    knock(ALICE.public, "self", session="s2")
    before = (peers(), state(), state("s2"))
    wrong = (
        ["accept", "nobody01"],
        ["accept", CAROL.public[:8], "--session", "s2"],
        ["accept", CAROL.public[:8], "--session", "nowhere"],
        ["accept", CAROL.public[:8], "--as", "local:x"],
        ["accept", CAROL.public[:8], "--as", "alice"],
        ["reject", "nobody01"],
    )
    for words, done in zip(wrong, each(*(["pair", *w] for w in wrong)), strict=True):
        assert done.code == 64 and done.err.count("\n") == 1, (words, done)
    assert (peers(), state(), state("s2")) == before


def test_reject_forgets_and_sends_nothing() -> None:
    me()
    knock()
    ok("pair", "reject", CAROL.public[:8])
    assert (state().inbound, state().queued) == ([], []) and "carol" not in peers()


def test_without_a_key_it_says_how_to_make_one() -> None:
    done = interlink("pair")
    assert done.code == 1 and "interlink-keygen" in done.err


@pytest.mark.req("G4", "T3")
def test_a_running_server_sends_the_answer() -> None:
    me()
    knock(noticed=True)
    with RelayProcess("--memory") as relay, mcp_server("s1", env={"INTERLINK_URL": relay.url}):
        ok("pair", "accept", CAROL.public[:8])
        answer = relay.client.recv(f"{CAROL.public}#c1", 20_000).json
    assert answer["status"] == "message"
    msg = decode_message(json.dumps(answer["envelope"]["payload"]))
    assert (msg.kind, msg.sender, msg.reply_to) == ("pair_accept", BOB.public, f"{ME}#s1")
