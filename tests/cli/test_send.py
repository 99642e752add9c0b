"""`interlink send`: one signed message by hand (B4, F6)."""

import json
import os
import time

import pytest
from support.cli import ME, Done, interlink, me
from support.keys import ALICE, BOB, CAROL, announcement
from support.listener import host, of, server
from support.relay import RelayProcess

from interlink.settings import Settings
from interlink.trust.wire import Message, announcement_dict, decode_message, signature_holds

DEAD = "http://127.0.0.1:9"


def announce(relay: RelayProcess, session: str, who: object = ALICE) -> None:
    ann = announcement(who, session, ts=time.time_ns() // 1_000_000)  # type: ignore[arg-type]
    assert relay.client.post("/announce", announcement_dict(ann)).status == 202


def waiting(relay: RelayProcess, session: str, key: str = ALICE.public) -> list[Message]:
    return [decode_message(json.dumps(p)) for p in relay.client.drain(f"{key}#{session}")]


def send(relay: RelayProcess | str, *args: str, code: int = 0, **more: object) -> Done:
    url = relay if isinstance(relay, str) else relay.url
    done = interlink("send", "--url", url, *args, **more)  # type: ignore[arg-type]
    assert done.code == code, done
    return done


@pytest.fixture(scope="module")
def relay() -> object:
    with RelayProcess("--memory") as one:
        yield one


@pytest.mark.req("B4", "S2")
def test_the_lone_live_session_gets_it_signed(relay: RelayProcess) -> None:
    me()
    announce(relay, "lone-1")
    done = send(relay, "alice", "grün ✓")
    (msg,) = waiting(relay, "lone-1")
    assert (msg.text, msg.sender, msg.to, msg.reply_to) == ("grün ✓", ME, ALICE.public, None)
    assert signature_holds(msg) and msg.msg_id in done.out and "whether it was read is unknown" in done.out
    relay.client.post("/unregister", announcement_dict(announcement(ALICE, "lone-1")))


@pytest.mark.req("B4")
def test_an_ambiguous_choice_lists_the_sessions_and_an_unknown_petname_the_peers(relay: RelayProcess) -> None:
    me(carol=CAROL)
    for session in ("carol-aa", "carol-ab"):
        announce(relay, session, CAROL)
    done = send(relay, "carol", "x", code=64)
    assert "carol-aa" in done.err and "carol-ab" in done.err
    assert "carol" in send(relay, "dave", "x", code=64).err
    assert "no such session is announced" in send(relay, "carol", "x", "--session", "carol-zz").out
    send(relay, "carol", "x", "--session", "carol-ab")
    assert [m.text for m in waiting(relay, "carol-ab", CAROL.public)] == ["x"]
    assert waiting(relay, "carol-aa", CAROL.public) == []


@pytest.mark.req("M22")
def test_standard_input_up_to_the_limit_and_not_beyond(relay: RelayProcess) -> None:
    me()
    announce(relay, "big")
    limit = Settings.text_max_bytes
    text = "\u00e9" + "x" * (limit - 2)
    send(relay, "alice", "-", "--session", "big", stdin=text)
    assert [m.text for m in waiting(relay, "big")] == [text]
    done = send(relay, "alice", "-", "--session", "big", stdin=text + "y", code=64)
    assert str(limit) in done.err and str(limit + 1) in done.err and "Nothing was sent" in done.err
    for bad in (b"\xff", b""):
        assert "Nothing was sent" in send(relay, "alice", "-", "--session", "big", stdin=bad, code=64).err
    assert waiting(relay, "big") == []


@pytest.mark.req("B5")
def test_task_fields_are_signed_and_a_status_needs_a_task(relay: RelayProcess) -> None:
    me()
    announce(relay, "tasks")
    fields = ("--task", "t1", "--status", "result", "--in-reply-to", "q1")
    send(relay, "alice", "done", "--session", "tasks", *fields)
    (msg,) = waiting(relay, "tasks")
    assert (msg.task_id, msg.status, msg.in_reply_to) == ("t1", "result", "q1") and signature_holds(msg)
    assert "--task" in send(relay, "alice", "x", "--session", "tasks", "--status", "result", code=64).err
    assert send(relay, "alice", "x", "--session", "tasks", "--task", "t" * 257, code=64).out == ""
    assert waiting(relay, "tasks") == []


def test_where_answers_go(relay: RelayProcess) -> None:
    me()
    announce(relay, "answers")
    to = ("alice", "x", "--session", "answers")
    send(relay, *to, "--from-session", "mine")
    send(relay, *to, env={"INTERLINK_SESSION": "mine2"})
    with host() as process, server(process.pid, "mine3", ME):
        send(relay, *to, env=of(process))
    assert [m.reply_to for m in waiting(relay, "answers")] == [f"{ME}#{s}" for s in ("mine", "mine2", "mine3")]
    assert send(relay, *to, "--from-session", "a/b", code=64).out == ""


@pytest.mark.req("B4")
def test_self_is_another_session_of_ours(relay: RelayProcess) -> None:
    me()
    for session in ("self-a", "self-b"):
        announce(relay, session, BOB)
    send(relay, "self", "x", "--session", "self-a", "--from-session", "self-b")
    assert [m.reply_to for m in waiting(relay, "self-a", ME)] == [f"{ME}#self-b"]
    done = send(relay, "self", "x", "--session", "self-a", "--from-session", "self-a", code=64)
    assert "Nothing was sent" in done.err or "no session" in done.err


@pytest.mark.req("B2")
def test_one_of_two_relays_is_enough_and_none_is_a_fault(relay: RelayProcess) -> None:
    me()
    announce(relay, "two")
    done = send(f"{DEAD},{relay.url}", "alice", "x", "--session", "two")
    assert DEAD in done.err and len(waiting(relay, "two")) == 1
    done = send(DEAD, "alice", "x", code=1)
    assert "no relay answers" in done.err
    done = send(DEAD, "alice", "x", "--session", "two", code=1)
    assert "nothing was kept" in done.err and done.out == ""
    found = send(DEAD, "alice", "x", "--session", "two", "--json", code=1).json
    assert found["state"] == "not_sent" and "reached" in found["relays"][DEAD]
    assert not os.path.exists(os.path.join(os.environ["XDG_STATE_HOME"], "interlink", "outbox"))


def test_a_relay_that_refuses_says_why() -> None:
    me()
    with RelayProcess("--memory", "--token-file", token()) as guarded:
        done = send(guarded, "alice", "x", "--session", "s", code=1)
        assert "401" in done.err or "token" in done.err
        announce_with_token(guarded)
        send(guarded, "alice", "x", "--session", "s", "--token-file", token())


def token() -> str:
    path = os.path.join(os.environ["HOME"], "token")
    with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as file:
        file.write("0123456789abcdef")
    return path


def announce_with_token(relay: RelayProcess) -> None:
    relay.token = "0123456789abcdef"
    announce(relay, "s")


def test_a_hostile_roster_reaches_no_terminal() -> None:
    me()
    nasty = announcement(ALICE, "s1", name="\x1b[2J", ts=time.time_ns() // 1_000_000, cwd="/w/\x1b[31m\u202e")
    second = announcement(ALICE, "s2", name="x", ts=time.time_ns() // 1_000_000, cwd="/tmp/\n2. forged")
    with RelayProcess("--memory") as one:
        for ann in (nasty, second):
            assert one.client.post("/announce", announcement_dict(ann)).status == 202
        done = send(one, "alice", "x", code=64)
    assert "s1" in done.err and "\x1b" not in done.err and "\u202e" not in done.err and done.err.count("\n") == 1


def test_a_text_that_begins_with_a_dash(relay: RelayProcess) -> None:
    me()
    announce(relay, "dash")
    send(relay, "--session", "dash", "--", "alice", "--not-an-option")
    assert [m.text for m in waiting(relay, "dash")] == ["--not-an-option"]


def test_without_a_key_it_says_how_to_make_one() -> None:
    done = interlink("send", "alice", "x")
    assert done.code == 1 and "interlink-keygen" in done.err


def test_bytes_that_are_no_text_are_refused() -> None:
    me()
    done = interlink("send", "--url", DEAD, "alice", os.fsdecode(b"caf\xe9"))
    assert done.code == 64 and "UTF-8" in done.err
