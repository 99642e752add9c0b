"""`interlink export`: what is kept, for other tools, and the way back to the Rust system."""

import json
import os
from pathlib import Path

import msgspec
import pytest
from support.cli import ME, desk, interlink, layout, me, ok, tree
from support.keys import ALICE, NOW_MS
from support.mail import PEER, Desk, note

from interlink.mailbox.box import Box
from interlink.outlog import Change, Journal, Outgoing
from interlink.settings import Settings
from interlink.trust.wire import decode_message, signature_holds


def fill() -> Desk:
    box = desk()
    box.admit(note("m1", "grün\x1b ✓", ts=box.now, task_id="t", status="result"), note("m2", ts=box.now))
    box.admit(note("m1", "another", ts=box.now))
    box.ack("m2")
    box.local("job", resume_id="r", klass="actionable")
    with box.mailbox.change() as content:
        content.bury(content.records[(PEER, "m2")])
        content.dirty = True
    return box


def lines(out: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.splitlines()]


def test_every_message_and_every_receipt_is_in_the_lines() -> None:
    root = me()
    box = fill()
    journal = Journal(layout(), ME, "s1", Settings())
    out = Outgoing(msg_id="o1", peer="alice", to=PEER, route=f"{PEER}#a", text="sent", ts=NOW_MS)
    journal.append(Change(op="queue", out=out))
    before = tree(root)
    found = lines(ok("export").out)
    assert tree(root) == before
    assert [line["kind"] for line in found] == ["record", "tombstone", "record", "record", "outbound"]
    content = box.reopened().mailbox.read()
    receipts = [line["receipt"] for line in found if "receipt" in line]
    kept = [*content.records.values(), *content.tombstones.values()]
    assert sorted(map(str, receipts)) == sorted(
        str({"sender": e.key[0], "msg_id": e.key[1], "delivery_id": e.delivery_id}) for e in kept
    )
    first = found[0]["message"]
    message = decode_message(json.dumps(first))
    assert message.text == "grün\x1b ✓" and signature_holds(message)
    assert found[2]["source_id"] == "m1" and found[3]["local"] == {
        "class": "actionable",
        "seq": None,
        "supersedes": None,
        "resume_id": "r",
        "expires_ms": None,
    }
    assert (found[4]["msg_id"], found[4]["state"], found[4]["text"]) == ("o1", "pending", "sent")


def test_lines_are_plain_ascii() -> None:
    me()
    fill()
    out = ok("export").out
    assert out.isascii() and "\x1b" not in out


def test_to_a_folder_it_is_a_private_file_for_each_session(tmp_path: Path) -> None:
    me()
    fill()
    ok("post", "--source", "ci", "--session", "s2", stdin="x")
    done = ok("export", "--out", str(tmp_path / "out"))
    paths = [tmp_path / "out" / ME / f"{session}.jsonl" for session in ("s1", "s2")]
    assert done.out.split() == [str(path) for path in paths]
    assert [os.stat(path).st_mode & 0o777 for path in paths] == [0o600, 0o600]
    assert len(lines(paths[0].read_text("utf-8"))) == 4
    ok("export", "--session", "s2", "--out", str(tmp_path / "one"))
    assert [p.name for p in (tmp_path / "one" / ME).iterdir()] == ["s2.jsonl"]


class _RustRecord(msgspec.Struct, forbid_unknown_fields=True):
    message: dict[str, object]
    peer: str
    state: str
    superseded_by: str | None


class _RustFile(msgspec.Struct, forbid_unknown_fields=True):
    records: list[_RustRecord]
    notice: None


@pytest.mark.req("B7")
def test_the_rust_form_has_its_members_alone_and_says_what_is_left_out() -> None:
    me()
    fill()
    done = ok("export", "--format", "rust")
    found = msgspec.json.decode(done.out, type=_RustFile)
    assert [(r.message["msg_id"], r.peer, r.state) for r in found.records] == [
        ("m1", "alice", "receiver_stored"),
        ("m1", "alice", "receiver_stored"),
    ]
    assert all(signature_holds(decode_message(json.dumps(r.message))) for r in found.records)
    for what in ("1 messages of local sources", "1 tombstones", "1 receipts under an alias"):
        assert what in done.err


@pytest.mark.req("B7", "M11")
def test_the_rust_form_comes_back_as_it_was(tmp_path: Path) -> None:
    me()
    box = desk()
    box.admit(note("m1", ts=box.now), note("m2", ts=box.now), note("p", status="update", task_id="t", ts=box.now))
    box.ack("m1")
    data = ok("export", "--format", "rust").out.encode("utf-8")
    back = Box.decode(data, ME, "s1", "x")
    kept = box.reopened().mailbox.read()
    assert {k: (r.message, r.peer, r.state) for k, r in back.records.items()} == {
        k: (r.message, r.peer, r.state) for k, r in kept.records.items()
    }


def test_the_rust_form_of_several_mailboxes_needs_a_folder(tmp_path: Path) -> None:
    me()
    for session in ("a", "b"):
        ok("post", "--source", "ci", "--session", session, stdin="x")
    done = interlink("export", "--format", "rust")
    assert done.code == 64 and "--out" in done.err and done.out == ""
    ok("export", "--format", "rust", "--out", str(tmp_path))
    assert sorted(p.name for p in (tmp_path / ME).iterdir()) == ["a.json", "b.json"]


def test_a_folder_that_cannot_be_made_is_a_fault(tmp_path: Path) -> None:
    me()
    fill()
    (tmp_path / "file").write_text("x")
    done = interlink("export", "--out", str(tmp_path / "file" / "out"))
    assert done.code == 1 and done.err.count("\n") == 1


def test_with_nothing_to_export() -> None:
    me()
    done = ok("export")
    assert done.out == "" and "no mailbox" in done.err
    assert interlink("export", "--session", "s1").code == 64
    assert ALICE.public not in done.err
