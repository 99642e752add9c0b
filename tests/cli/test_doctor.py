"""`interlink doctor` finds each thing that is broken, and only looks."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from support.cli import ME, desk, interlink, key_path, layout, me, now_ms, ok, peers_path, tree
from support.doctor import NO_RELAY, Report
from support.keys import ALICE, BOB, CAROL
from support.listener import Wait, notice, put, until
from support.mail import DAY_MS, HOUR_MS, note, settings
from support.relay import RelayProcess

from interlink.outlog import Change, Journal, Outgoing
from interlink.settings import Settings
from interlink.trust.identity import Identity
from interlink.trust.pairing import PairingStore, Request


def test_a_sound_installation_exits_0() -> None:
    me()
    with RelayProcess("--memory") as relay:
        report = Report("--url", relay.url)
        assert report.code == 0 and report.broken == set(), report.findings
        assert report.one("relay", "ok")["data"]["up"] is True
        done = interlink("doctor", "--url", relay.url)
    assert done.code == 0 and "0 broken" in done.out
    assert {"key", "peers", "state", "disk"} <= {f["check"] for f in report.findings}


def test_without_anything_it_says_what_to_do_and_makes_nothing() -> None:
    report = Report("--url", NO_RELAY)
    assert report.code == 1
    assert "interlink-keygen" in report.one("key", "broken")["text"]
    assert not os.path.exists(layout().root) and not os.path.exists(os.path.dirname(key_path()))


@pytest.mark.req("M29")
def test_a_key_that_others_can_read() -> None:
    me()
    os.chmod(key_path(), 0o640)
    assert "chmod 600" in Report("--url", NO_RELAY).one("key", "broken")["text"]


@pytest.mark.req("G7")
def test_a_broken_peers_file() -> None:
    me()
    with open(peers_path(), "w", encoding="utf-8") as file:
        file.write('{"alice": {"key": "x"}}')
    report = Report("--url", NO_RELAY)
    assert peers_path() in report.one("peers", "broken")["text"] and report.code == 1


def test_settings_and_variables_that_are_wrong() -> None:
    me()
    env = {"INTERLINK_RECONCILE_S": "soon", "INTERLINK_SESSION": "a/b", "INTERLINK_URL": "ftp://x"}
    report = Report(env=env)
    assert "INTERLINK_RECONCILE_S" in report.one("settings", "warn")["text"]
    broken = [f["text"] for f in report.of("settings", "broken")]
    assert len(broken) == 2 and "a/b" in " ".join(broken) and "ftp://x" in " ".join(broken)
    assert report.of("key", "ok")  # the rest is looked at all the same


@pytest.mark.req("T1", "M29")
def test_a_relative_state_root() -> None:
    me()
    report = Report("--url", NO_RELAY, env={"XDG_STATE_HOME": "state"})
    assert "relative" in " ".join(f["text"] for f in report.of("settings", "broken"))
    assert not os.path.exists("state")


@pytest.mark.req("M29")
def test_wide_modes_and_links_that_lead_out(tmp_path: Path) -> None:
    root = me()
    put(notice())
    os.chmod(layout().inbox("s1"), 0o644)
    os.symlink(tmp_path, os.path.join(root, "failed"))
    report = Report("--url", NO_RELAY)
    wide = next(f for f in report.of("state", "warn"))
    assert wide["data"]["open"] == ["inbox/s1.jsonl"] and "1 entry below" in wide["text"]
    assert "failed" in report.one("state", "broken")["text"]
    assert os.stat(layout().inbox("s1")).st_mode & 0o777 == 0o644


@pytest.mark.req("M29")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a directory of another user")
def test_a_root_of_another_user() -> None:
    os.chown(me(), 12345, 12345)
    assert "12345" in Report("--url", NO_RELAY).one("state", "broken")["text"]


def test_relays_down_one_of_two_and_all() -> None:
    me()
    with RelayProcess("--memory") as relay:
        report = Report("--url", f"{relay.url},{NO_RELAY}")
        assert NO_RELAY in report.one("relay", "warn")["text"] and report.code == 0
    report = Report("--url", f"{relay.url},{NO_RELAY}")
    assert len(report.of("relay", "broken")) == 2 and report.code == 1
    assert "what agents send waits" in report.of("relay", "broken")[0]["advice"]  # `interlink send` keeps nothing


TOKEN = "sesame-0123456789"


def test_a_token_that_is_missing_wrong_or_right() -> None:
    me()
    path = Path(os.environ["HOME"], "token")
    path.touch(0o600)
    path.write_text(TOKEN)
    wrong = Path(os.environ["HOME"], "wrong")
    wrong.write_text("another-0123456789")
    with RelayProcess("--memory", "--token-file", str(path)) as relay:
        none = Report("--url", relay.url).one("relay", "broken")
        bad = Report("--url", relay.url, "--token-file", str(wrong)).one("relay", "broken")
        good = Report("--url", relay.url, "--token-file", str(path))
    assert "asks for a token" in none["text"] and "--token-file" in none["advice"]
    assert "refuses our token" in bad["text"]
    assert good.code == 0 and TOKEN not in good.done.out
    gone = Report("--url", NO_RELAY, "--token-file", "/nonexistent/token")
    assert "/nonexistent/token" in gone.one("relay", "broken")["text"]


class _Late(BaseHTTPRequestHandler):
    """A relay whose clock is wrong."""

    def do_GET(self) -> None:
        body = b'{"roster":[]}' if self.path == "/roster" else b'{"status":"ok"}'
        self.send_response_only(200)
        self.send_header("Date", "Mon, 01 Jan 2001 00:00:00 GMT")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return


def test_a_clock_that_is_wrong() -> None:
    me()
    with HTTPServer(("127.0.0.1", 0), _Late) as relay:
        threading.Thread(target=relay.serve_forever, daemon=True).start()
        report = Report("--url", f"http://127.0.0.1:{relay.server_port}")
        relay.shutdown()
    found = report.one("clock", "broken")
    assert "behind ours" in found["text"] and found["data"]["skew_ms"] < -60_000 and report.code == 1


@pytest.mark.req("M17")
def test_a_corrupt_mailbox_is_broken_and_no_copy_is_made() -> None:
    root = me()
    desk().admit(note("m1", ts=now_ms()))
    path = layout().mailbox(ME, "s1")
    with open(path, "w", encoding="utf-8") as file:
        file.write("{broken")
    before = tree(root)
    report = Report("--url", NO_RELAY)
    assert "does not parse" in report.one("session", "broken")["text"]
    assert tree(root) == before
    os.rename(path, path + ".corrupt-12345678")
    copies = [f for f in Report("--url", NO_RELAY).of("disk", "warn") if f["data"].get("copies")]
    assert copies[0]["data"]["copies"] == [f"mailbox/{ME}/s1.json.corrupt-12345678"]


@pytest.mark.req("M30", "T6")
def test_mail_and_unsent_messages_of_a_session_that_no_server_has() -> None:
    me()
    box = desk("lost")
    box.admit(note("m1", ts=box.now))
    out = Outgoing(msg_id="o1", peer="alice", to=ALICE.public, route=f"{ALICE.public}#a", text="x", ts=box.now)
    Journal(layout(), ME, "lost", Settings()).append(Change(op="queue", out=out))
    report = Report("--url", NO_RELAY)
    orphan = report.one("orphan", "warn")
    assert orphan["data"]["unread"] == 1 and "interlink adopt lost --into" in orphan["advice"]
    outbox = report.one("outbox", "warn")
    assert "adopt lost" in outbox["advice"] and "1 message not taken" in outbox["text"]
    assert report.broken == set()


@pytest.mark.req("G7")
def test_held_back_mail_with_the_key_to_admit_or_purge_it() -> None:
    me(carol=CAROL)
    box = desk()
    box.admit(note("c", sender=CAROL, ts=box.now))
    ok("peers", "remove", "carol")
    found = Report("--url", NO_RELAY).one("held back", "warn")
    assert CAROL.public in found["advice"] and found["data"]["count"] == 1


@pytest.mark.req("G3")
def test_what_came_too_late_is_shown_by_sender() -> None:
    me()
    box = desk(set_to=settings(counts_every_s=0), names={ALICE.public: "alice"})
    box.admit(*(note(f"m{n}", ts=box.now - DAY_MS - HOUR_MS) for n in range(3)))
    box.admit(note("s", sender=CAROL, ts=box.now))
    report = Report("--url", NO_RELAY)
    found = report.one("expired", "warn")
    assert '"alice"' in found["text"] and ALICE.public[:8] in found["text"] and found["data"]["count"] == 3
    assert found["text"].endswith("3 messages")
    assert report.one("refused", "warn")["data"]["counts"] == {"stranger": 1}


def _refuse(*senders: Identity, ago_ms: int = 0) -> None:
    box = desk(set_to=settings(counts_every_s=0), names={})
    box.now -= ago_ms
    box.admit(*(note(f"m{n}", sender=sender, ts=box.now) for n, sender in enumerate(senders)))


def test_a_message_of_somebody_whom_nobody_added() -> None:
    me()
    _refuse(CAROL)
    report = Report("--url", NO_RELAY, "--problems")
    found = report.one("refused", "warn")
    assert "that were no peers: 1 message (" in found["text"] and "refused" not in report.broken
    for part in ("interlink peers add PETNAME KEY", "sent anew", "reason=stranger sender=FINGERPRINT"):
        assert part in found["advice"]
    assert CAROL.public not in report.done.out
    assert report.of("peers") == []  # there is one, so that this is in order


def test_without_peers_the_finding_on_the_peers_says_what_was_refused() -> None:
    me()
    ok("peers", "remove", "alice")
    assert Report("--url", NO_RELAY).one("peers", "ok")["data"] == {"count": 0, "path": peers_path()}
    _refuse(ALICE, CAROL)
    found = Report("--url", NO_RELAY).one("peers", "warn")
    assert "so nobody is admitted: 2 messages refused" in found["text"] and "peers add" in found["advice"]
    assert found["data"]["strangers"] == 2


def test_an_old_refusal_of_a_stranger_is_no_warning_any_more() -> None:
    me()
    ok("peers", "remove", "alice")
    _refuse(ALICE, ago_ms=DAY_MS + HOUR_MS)
    report = Report("--url", NO_RELAY)
    assert "1 message (" in report.one("refused", "ok")["text"]
    assert "1 message refused so far" in report.one("peers", "ok")["text"]


def test_other_refusals_are_told_apart_from_strangers() -> None:
    me()
    box = desk(set_to=settings(counts_every_s=0), names={ALICE.public: "alice"})
    forged = note("f", ts=box.now)
    forged.text = "another"
    box.admit(forged, note("s", sender=CAROL, ts=box.now))
    report = Report("--url", NO_RELAY)
    assert report.one("refused", "ok")["data"]["counts"] == {"bad_signature": 1}
    assert report.one("refused", "warn")["data"]["counts"] == {"stranger": 1}


@pytest.mark.req("M27", "M16")
def test_counters_of_a_mailbox_and_a_full_one() -> None:
    me()
    for _ in range(2):
        ok("post", "--source", "ci", "--session", "s1", "--id", "same", stdin="x")
    report = Report("--url", NO_RELAY)
    assert report.one("mailbox", "ok")["data"]["counts"] == {"suppressed": 1}
    report = Report("--url", NO_RELAY, env={"INTERLINK_MAILBOX_MAX_RECORDS": "1"})
    assert "full" in report.one("mailbox", "broken")["text"] and report.code == 1


@pytest.mark.req("X4")
def test_failed_deliveries_with_a_hostile_reason() -> None:
    me()
    desk().admit(note("m1", ts=now_ms()))
    path = layout().failed(ME, "s1")
    os.makedirs(os.path.dirname(path), mode=0o700)
    entry = {"id": "f1", "msg_id": "m1", "sender": "alice", "text": "BODY", "reason": "queue:\x1b[31m exit 1\n"}
    Path(path).write_text(json.dumps([entry]))
    found = Report("--url", NO_RELAY).one("failed", "warn")
    assert "1 failed delivery: queue:[31m exit 1" in found["text"] and "BODY" not in json.dumps(found)
    for damaged in ("{", "{}x", "[1]", '{"a": 1}'):
        Path(path).write_text(damaged)
        assert "does not parse" in Report("--url", NO_RELAY).one("failed", "warn")["text"]


def test_pairing_requests_that_wait() -> None:
    me()
    desk().admit(note("m1", ts=now_ms()))
    request = Request(key=CAROL.public, name="\x1b[31mmallory", request_id="r", reply_to=f"{CAROL.public}#s")
    PairingStore(layout(), ME, "s1").update(lambda state: state.inbound.append(request))
    found = Report("--url", NO_RELAY).one("pairing", "ok")
    assert f"1 pairing request not answered: {CAROL.public[:8]}" in found["text"]
    assert "mallory" not in json.dumps(found)


@pytest.mark.req("T6")
def test_sizes_and_left_over_temporary_files() -> None:
    root = me()
    desk().admit(note("m1", ts=now_ms()))
    child = subprocess.Popen(["/bin/true"])
    child.wait()
    Path(root, "mailbox", ME, f".s1.json.{child.pid}.tmp").write_bytes(b"x" * 100)
    report = Report("--url", NO_RELAY)
    sizes = report.one("disk", "ok")["data"]["bytes"]
    assert sizes["mailbox"] >= os.path.getsize(layout().mailbox(ME, "s1")) + 100
    left = report.one("disk", "warn")
    assert left["data"]["files"] == [f"mailbox/{ME}/.s1.json.{child.pid}.tmp"]
    assert left["text"].startswith("1 temporary file of")


def _everything() -> str:
    """A state root with one of nearly everything, and things that another command would mend."""
    root = me(alice=ALICE, carol=CAROL)
    box = desk(set_to=settings(counts_every_s=0))
    box.admit(note("m1", "BODY-1", ts=box.now), note("c", "BODY-2", sender=CAROL, ts=box.now))
    box.admit(note("late", ts=box.now - 2 * DAY_MS))
    box.reserve("n1")
    put(notice())
    ok("peers", "remove", "carol")
    bad = desk("bad")
    bad.admit(note("m2", ts=box.now))
    Path(bad.mailbox.path).write_text("{")
    os.chmod(bad.mailbox.path, 0o644)
    Path(root, "inbox", f".s1.cursor.{2**22 + 1}.tmp").write_text("1")
    return root


@pytest.mark.req("M29", "T6")
def test_it_changes_no_file() -> None:
    _everything()
    home = os.environ["HOME"]
    before = tree(home)
    for words in (["--json"], [], ["--problems"]):
        interlink("doctor", "--url", NO_RELAY, *words)
    assert tree(home) == before


AUDIT = """
import os, sys
home = os.environ["HOME"]
def audit(event, args):
    if event in ("fcntl.flock", "fcntl.lockf"):
        os.write(2, b"LOCK\\n")
    if event == "open" and isinstance(args[0], str) and args[0].startswith(home):
        if args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND):
            os.write(2, f"WRITE {args[0]}\\n".encode())
    if event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.link", "os.truncate"):
        os.write(2, f"CHANGE {event} {args}\\n".encode())
sys.addaudithook(audit)
from interlink.cli.main import main
sys.argv = ["interlink", *sys.argv[1:]]
main()
"""


@pytest.mark.req("M29", "H4")
@pytest.mark.parametrize(
    "words", [["doctor"], ["status"], ["inbox"], ["export"], ["prune", "--dry-run"]], ids="-".join
)
def test_what_only_looks_takes_no_lock_and_opens_nothing_for_writing(words: list[str]) -> None:
    _everything()
    url = ["--url", NO_RELAY] if words[0] in ("doctor", "status") else []
    done = subprocess.run(
        [sys.executable, "-B", "-c", AUDIT, *words, *url], capture_output=True, text=True, env=dict(os.environ)
    )
    marks = [line for line in done.stderr.splitlines() if line.split()[0] in ("LOCK", "WRITE", "CHANGE")]
    assert marks == [] and "Traceback" not in done.stderr, done.stderr


def test_the_audit_of_the_test_above_sees_a_lock() -> None:
    _everything()
    command = [sys.executable, "-B", "-c", AUDIT, "prune"]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert "LOCK" in done.stderr and "WRITE" in done.stderr and "CHANGE os.re" in done.stderr


@pytest.mark.req("C3", "H4")
def test_listeners_start_while_it_looks_again_and_again() -> None:
    me()
    put(notice(1, through=0), session="other")
    stop = threading.Event()
    runs = []

    def look() -> None:
        while not stop.is_set():
            runs.append(interlink("doctor", "--url", NO_RELAY, "--json").code)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        until(lambda: runs, "the first look")
        for number in range(4):
            session = f"s{number}"
            listener = Wait("--session", session)
            try:
                listener.listening(session)
            finally:
                listener.stop()
    finally:
        stop.set()
        looking.join()
    assert set(runs) == {1}  # the relay is down


def test_json_holds_no_credentials_and_no_message() -> None:
    _everything()
    token = Path(os.environ["HOME"], "token")
    token.write_text(TOKEN)
    done = interlink("doctor", "--json", "--url", NO_RELAY, "--token-file", str(token))
    for secret in (TOKEN, BOB.seed_text(), "BODY-1", "BODY-2"):
        assert secret not in done.out + done.err


def test_problems_leaves_out_what_is_in_order() -> None:
    _everything()
    report = Report("--url", NO_RELAY, "--problems")
    assert {f["level"] for f in report.findings} == {"warn", "broken"}
    assert report.done.json["ok"] > 0
