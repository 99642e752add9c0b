"""`interlink status`: one screen that is true."""

import os

import pytest
from support.cli import ME, desk, interlink, layout, mcp_server, me, ok, peers_path, tree
from support.listener import notice, put, until, waiting
from support.mail import PEER, note
from support.relay import RelayProcess

from interlink.outlog import Change, Journal, Outgoing
from interlink.settings import Settings


def test_nothing_at_all_is_no_fault() -> None:
    done = ok("status", "--url", "http://127.0.0.1:9")
    assert "interlink-keygen" in done.out and "down" in done.out
    assert not os.path.exists(layout().root)


@pytest.mark.req("M30", "T6")
def test_what_waits_where_and_for_whom() -> None:
    root = me()
    box = desk("lost")
    box.admit(note("m1", ts=box.now), note("p", status="update", task_id="t", ts=box.now))
    box.local("e", klass="ephemeral", expires_ms=box.now + 60_000)
    journal = Journal(layout(), ME, "lost", Settings())
    out = Outgoing(msg_id="o1", peer="alice", to=PEER, route=f"{PEER}#a", text="sent", ts=box.now)
    journal.append(Change(op="queue", out=out))
    quiet = desk("quiet")
    quiet.admit(note("m2", ts=box.now))
    quiet.ack("m2")
    before = tree(root)
    with RelayProcess("--memory") as relay:
        url = relay.url
        done = ok("status", "--url", f"{url},http://127.0.0.1:9")
        found = ok("status", "--url", f"{url},http://127.0.0.1:9", "--json").json
    assert f"{url}  up" in done.out and "http://127.0.0.1:9  down" in done.out
    assert f"lost [{ME[:8]}]  no listener" in done.out and "1 other session with nothing left" in done.out
    assert "1 unread since" in done.out and "1 progress; 1 ephemeral; 1 unsent; no notice out" in done.out
    assert [r["up"] for r in found["relays"]] == [True, False]
    lost = found["sessions"][0]
    numbers = ("unread", "progress", "ephemeral", "held_back", "pending", "listener_armed", "oldest_ms")
    assert [lost[n] for n in numbers] == [1, 1, 1, 0, 1, False, box.now]
    assert tree(root) == before


def test_a_session_that_is_served_and_its_listener() -> None:
    me()
    box = desk()
    box.admit(note("m1", ts=box.now))
    with mcp_server("s1") as process:
        until(lambda: box.reopened().state("m1") == "inbox_queued", "its notice")
        found = ok("status", "--json").json["sessions"]
        assert [(s["session"], s["servers"], s["listener_armed"]) for s in found] == [("s1", [process.pid], False)]
        assert found[0]["notifiers"] == [process.pid] and found[0]["notices_waiting"] == 1
        assert found[0]["notice"]["state"] == "inbox_queued"
        out = ok("status").out
        assert f"server {process.pid}, no listener" in out and "inbox_queued" in out and ", again in " in out


def test_an_armed_listener_is_seen() -> None:
    me()
    desk().admit(note("m1", ts=desk().now))
    with waiting("--session", "s1") as listener:
        found = ok("status", "--json").json["sessions"][0]
        assert (found["listeners"], found["listener_armed"]) == ([listener.pid], True)
        assert "listener armed" in ok("status").out
    assert ok("status", "--json").json["sessions"][0]["listener_armed"] is False


@pytest.mark.req("G7", "M17")
def test_broken_files_are_said_and_the_rest_is_shown() -> None:
    me()
    put(notice())
    for session in ("bad", "good"):
        desk(session).admit(note(f"m-{session}", ts=desk().now))
    with open(layout().mailbox(ME, "bad"), "w", encoding="utf-8") as file:
        file.write("{")
    with open(peers_path(), "w", encoding="utf-8") as file:
        file.write("{")
    done = interlink("status")
    assert done.code == 0 and "mend it" in done.out and "does not parse" in done.out
    found = {s["session"]: s for s in interlink("status", "--json").json["sessions"]}
    assert found["good"]["unread"] == 1 and "does not parse" in found["bad"]["fault"]
    assert sorted(os.listdir(os.path.dirname(layout().mailbox(ME, "bad")))) == [
        "bad.json",
        "bad.lock",
        "good.json",
        "good.lock",
    ]
