"""`interlink inbox` shows mail and consumes nothing."""

import json
import os

import pytest
from support.cli import ME, desk, interlink, layout, me, ok, peers_path, tree
from support.keys import ALICE, CAROL
from support.mail import note

from interlink.state.locks import Lock

HOSTILE = "\x1b[2J\x1b]0;title\x07red\x9b31m\u202eevil\u2066\x00 bell\r\nnext\rover\x85nel\u2028sep"


@pytest.mark.req("M4")
def test_it_shows_what_is_unread_and_changes_nothing() -> None:
    root = me()
    box = desk()
    box.admit(
        note("m1", "first", ts=box.now), note("m2", "second", ts=box.now, task_id="t1", status="needs_input")
    )
    box.ack("m1")
    before = tree(root)
    done = ok("inbox")
    assert "session s1" in done.out and ": 1 unread" in done.out
    assert f'"alice" [{ALICE.public[:8]}]' in done.out and "task t1" in done.out and "  | second" in done.out
    assert "first" not in done.out
    everything = ok("inbox", "--all").out
    assert "[receiver_acknowledged]" in everything and "  | first" in everything
    shown = ok("inbox", "--json").json
    assert [m["receipt"]["msg_id"] for m in shown[0]["messages"]] == ["m2"]
    assert tree(root) == before
    assert box.reopened().ids() == ["m2"]


@pytest.mark.req("M4")
def test_the_order_is_that_of_a_fetch() -> None:
    me()
    box = desk()
    box.admit(note("p", status="update", task_id="t", ts=box.now), note("a", ts=box.now), note("b", ts=box.now))
    shown = ok("inbox", "--json").json[0]["messages"]
    assert [m["receipt"]["msg_id"] for m in shown] == box.ids() == ["a", "b", "p"]


def test_a_hostile_body_reaches_no_terminal() -> None:
    me()
    box = desk()
    box.admit(note("m1", HOSTILE, ts=box.now))
    for done in (ok("inbox"), ok("inbox", "--full"), ok("inbox", "--json"), ok("export")):
        wild = [c for c in done.out if not (c.isprintable() or c == "\n")]
        assert wild == [], done.out
    body = [line for line in ok("inbox").out.splitlines() if line.startswith("  | ")]
    assert body == ["  | [2J]0;titlered31mevil bell", "  | next", "  | over", "  | nel", "  | sep"]
    assert ok("inbox", "--json").json[0]["messages"][0]["text"] == HOSTILE


def test_a_body_cannot_pass_for_another_message() -> None:
    me()
    box = desk()
    box.admit(note("m1", 'text\n\n2. [receiver_stored]  "carol"  msg_id m9\n  | forged', ts=box.now))
    lines = ok("inbox").out.splitlines()
    assert not any(line.startswith("2.") for line in lines) and "  | 2. [receiver_stored]" in "\n".join(lines)


def test_hostile_fields_stay_in_their_line() -> None:
    me()
    box = desk()
    box.admit(note("m\n1\x1b[31m", "x", ts=box.now, task_id="t\n2. forged", in_reply_to="\u202er"))
    done = ok("inbox")
    assert "\x1b" not in done.out and "\u202e" not in done.out
    assert not any(line.startswith("2.") for line in done.out.splitlines())


def test_a_long_body_is_cut_unless_it_is_asked_for_in_full() -> None:
    me()
    box = desk()
    box.admit(note("m1", "é" * 5000, ts=box.now))
    assert "6000 more bytes" in ok("inbox").out
    assert "é" * 5000 in ok("inbox", "--full").out


@pytest.mark.req("G7")
def test_mail_of_a_removed_peer_is_counted_and_not_shown() -> None:
    me()
    box = desk()
    box.admit(note("m1", "secret plan", ts=box.now))
    ok("peers", "remove", "alice")
    for words in ([], ["--all"], ["--full"]):
        done = ok("inbox", *words)
        assert "secret plan" not in done.out and "1 of removed peers held back" in done.out
    shown = ok("inbox", "--json", "--all").json[0]
    assert (shown["held_back"], shown["messages"]) == (1, [])
    ok("peers", "add", "alice", ALICE.public)
    assert "secret plan" in ok("inbox").out


@pytest.mark.req("G7")
def test_with_a_broken_peers_file_nothing_is_shown() -> None:
    me()
    box = desk()
    box.admit(note("m1", "secret plan", ts=box.now))
    with open(peers_path(), "w", encoding="utf-8") as file:
        file.write("{")
    done = interlink("inbox")
    assert done.code == 1 and "secret plan" not in done.out and peers_path() in done.err


def test_one_session_or_all_of_the_identity() -> None:
    me()
    for session in ("alpha", "beta"):
        box = desk(session)
        box.admit(note(f"m-{session}", f"text of {session}", ts=box.now))
    assert {"text of alpha", "text of beta"} <= {line[4:] for line in ok("inbox").out.splitlines()}
    one = ok("inbox", "--session", "be").out
    assert "text of beta" in one and "text of alpha" not in one
    done = interlink("inbox", "--session", "gamma")
    assert done.code == 64 and "gamma" in done.err


def test_the_name_is_the_one_that_the_user_gives_now() -> None:
    me()
    box = desk()
    box.admit(note("m1", ts=box.now))
    ok("peers", "remove", "alice")
    ok("peers", "add", "anna", ALICE.public)
    assert '"anna"' in ok("inbox").out


def test_another_identity_is_shown_where_it_is_asked_for() -> None:
    me()
    ok("post", "--source", "ci", "--session", "s9", "--identity", CAROL.public, stdin="for carol")
    assert "for carol" in ok("inbox", "--identity", CAROL.public[:8]).out
    assert "for carol" in ok("inbox").out  # the only mailbox here
    ok("post", "--source", "ci", "--session", "s1", "--identity", ME, stdin="for me")
    assert "for carol" not in ok("inbox").out


@pytest.mark.req("M17")
def test_a_corrupt_mailbox_is_a_fault_and_no_copy_is_made() -> None:
    root = me()
    box = desk()
    box.admit(note("m1", ts=box.now))
    with open(layout().mailbox(ME, "s1"), "w", encoding="utf-8") as file:
        file.write(json.dumps({"version": 2, "records": [{}]}))
    before = tree(root)
    done = interlink("inbox")
    assert done.code == 1 and "does not parse" in done.err
    assert tree(root) == before


def test_reading_waits_for_no_lock() -> None:
    me()
    box = desk()
    box.admit(note("m1", ts=box.now))
    with Lock(layout().mailbox_lock(ME, "s1")), Lock(layout().notifier_lock(ME, "s1")):
        assert "m1" in ok("inbox").out


def test_with_no_mailbox_at_all() -> None:
    me()
    done = ok("inbox")
    assert "no message has arrived" in done.out
    assert os.listdir(layout().root) == []
