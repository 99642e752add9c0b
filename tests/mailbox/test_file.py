"""The mailbox file: its form, what is refused and left alone, the Rust form (M11, M17, B7)."""

import json
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.keys import NOW_MS
from support.mail import ME, PEER, Desk, note

from interlink.errors import CorruptFile, NewerVersion, StateError
from interlink.mailbox import states
from interlink.mailbox.box import Box
from interlink.mailbox.record import VERSION
from interlink.state.paths import Layout


def path_of(root: str) -> Path:
    return Path(Layout(root).mailbox(ME, "s1"))


def put(root: str, content: bytes | object) -> Path:
    """Write a mailbox file as another program would."""
    path = path_of(root)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def copies(root: str) -> list[Path]:
    return sorted(path_of(root).parent.glob("*.corrupt-*"))


# --- form -----------------------------------------------------------------------------------------


@pytest.mark.req("M11", "M19")
def test_the_file_is_plain_json_with_a_version_one_record_a_line(state_root: str) -> None:
    desk = Desk(state_root)
    desk.admit(note("m1", "one\nline"), note("m2"))
    raw = path_of(state_root).read_bytes()
    data = json.loads(raw)
    assert (data["version"], data["identity"], data["session"], data["next_seq"]) == (2, ME, "s1", 3)
    first = data["records"][0]
    assert list(first)[:3] == ["message", "peer", "state"]
    assert (first["seq"], first["delivery_id"]) == (1, desk.record("m1").delivery_id)
    assert raw.count(b'\n{"message"') == 2
    assert os.stat(path_of(state_root)).st_mode & 0o777 == 0o600


@pytest.mark.req("M13")
@given(st.text(max_size=50), st.sampled_from([None, "t\u2028\u0085\n\x00"]))
def test_every_text_comes_back_as_it_was(text: str, task: str | None) -> None:
    box = Box(ME, "s1")
    from interlink.mailbox.record import Record, content_fingerprint

    msg = note("m1").__class__(
        sender=PEER, to=ME, text=text, ts=NOW_MS, msg_id="m\u2028", task_id=task, status="update"
    )
    box.put(Record(message=msg, peer="al\u202eice", state=states.RECEIVER_STORED, fp=content_fingerprint(msg)))
    again = Box.decode(box.encode(), ME, "s1", "test")
    assert list(again.records.values()) == list(box.records.values())


@pytest.mark.req("M13")
def test_a_second_writing_changes_no_byte(state_root: str) -> None:
    desk = Desk(state_root)
    desk.admit(note("m1"), note("u", status="update", task_id="t"), note("r", status="result", task_id="t"))
    desk.ack("m1")
    desk.reserve()
    raw = path_of(state_root).read_bytes()
    assert Box.decode(raw, ME, "s1", "test").encode() == raw


@pytest.mark.req("M13")
def test_fields_of_a_sibling_version_stay_in_records_that_nobody_changes(state_root: str) -> None:
    desk = Desk(state_root)
    desk.admit(note("m1"), note("m2"))
    data = json.loads(path_of(state_root).read_bytes())
    for record in data["records"]:
        record["hint"] = {"of": "another"}
    data["extra"] = 1
    put(state_root, data)
    desk.ack("m1")
    kept = json.loads(path_of(state_root).read_bytes())
    assert "hint" in kept["records"][1]


@pytest.mark.req("M8")
def test_sequence_numbers_are_never_used_twice(state_root: str) -> None:
    desk = Desk(state_root)
    desk.admit(note("m1"), note("m2"))
    data = json.loads(path_of(state_root).read_bytes())
    data["next_seq"] = 1  # as from an edited file
    put(state_root, data)
    desk.reopened().admit(note("m3"))
    assert [r.seq for r in desk.unread()] == [1, 2, 3]


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.req("M11")
@pytest.mark.parametrize("more", [{}, {"records": "of another kind"}, {"records": [{"message": 7}]}])
def test_a_newer_version_is_refused_and_left_untouched(state_root: str, more: dict[str, object]) -> None:
    path = put(state_root, {"version": VERSION + 1, **more})
    before = path.read_bytes()
    desk = Desk(state_root)
    for act in (
        desk.mailbox.read,
        lambda: desk.admit(note("m1")),
        lambda: desk.ack("m1"),
        lambda: desk.reserve(taking_over=True),
    ):
        with pytest.raises(NewerVersion, match=r"newer than 2.*update this one.*left as it is"):
            act()
    assert path.read_bytes() == before and copies(state_root) == []
    assert "newer" in desk.mailbox.fault


@pytest.mark.req("M17")
def test_a_file_cut_at_any_byte_is_corrupt_and_kept(state_root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # thousands of copies; what is synced has tests of its own
    desk = Desk(state_root)
    desk.admit(note("m1"), note("u", status="update", task_id="t"), note("m3"))
    desk.ack("m1")
    desk.reserve()
    path = path_of(state_root)
    whole = path.read_bytes()
    end = len(whole.rstrip())
    for cut in range(end):
        path.write_bytes(whole[:cut])
        with pytest.raises(CorruptFile, match="does not parse"):
            desk.mailbox.read()
        assert path.read_bytes() == whole[:cut]
        (copy,) = copies(state_root)
        assert copy.read_bytes() == whole[:cut]
        copy.unlink()
    path.write_bytes(whole[:end])
    assert desk.ids() == ["m3", "u"]


@pytest.mark.req("M17")
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"\xff\xfe\x00",
        b'{"version": "2"}',
        b'{"version": 2, "records": {}}',
        b'{"version": 2, "records": [{"message": {}, "peer": "a", "state": "receiver_stored"}]}',
        b'{"version": 2, "records": [{"message": null}]}',
        b'{"version": 2, "tombstones": [1]}',
        b'{"version": 2, "notice": {"id": 7}}',
        b'{"records": [7]}',
        b"[" * 100_000,
        b'{"version": 2, "records": [' + b'{"a":' * 50_000,
    ],
    ids=range(14),
)
def test_what_does_not_parse_admits_nothing_and_is_never_overwritten(
    state_root: str, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = put(state_root, content)
    desk = Desk(state_root)
    for _ in range(3):
        with pytest.raises(CorruptFile, match=r"s1\.json does not parse .* move it away"):
            desk.admit(note("m1"))
        with pytest.raises(CorruptFile):
            desk.ack("m1")
        with pytest.raises(CorruptFile):
            desk.reopened().reserve(taking_over=True)
    assert path.read_bytes() == content
    (copy,) = copies(state_root)
    assert copy.read_bytes() == content and os.stat(copy).st_mode & 0o777 == 0o600
    assert "does not parse" in desk.mailbox.fault
    said = capsys.readouterr().err
    assert said.count("event=mailbox_corrupt") == 1
    assert said.count("event=mailbox_fault") == 4, "once for each object that met it"


@pytest.mark.req("M17", "M9")
def test_a_corrupt_file_is_parsed_once_and_a_good_one_is_taken_at_once(
    state_root: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = Desk(state_root)
    desk.admit(note("m1"))
    path = path_of(state_root)
    good = path.read_bytes()
    path.write_bytes(good[:-10])
    parsed: list[int] = []
    decode = Box.decode
    monkeypatch.setattr(Box, "decode", lambda *a: parsed.append(1) or decode(*a))
    for _ in range(5):
        with pytest.raises(CorruptFile):
            desk.mailbox.read()
    assert len(parsed) == 1 and desk.mailbox.fault
    path.write_bytes(good)
    assert desk.ids() == ["m1"] and desk.mailbox.fault == ""
    assert "event=mailbox_ok" in capsys.readouterr().err
    path.unlink()
    assert desk.ids() == [] and desk.admit(note("m2")) == ["stored"]


@pytest.mark.req("M9")
def test_an_idle_look_parses_nothing(state_root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(state_root)
    desk.admit(note("m1"))
    desk.reserve()
    desk.settle("n1", states.INBOX_QUEUED)
    other = desk.reopened()
    other.ids()
    monkeypatch.setattr(Box, "decode", lambda *a: pytest.fail("parsed"))
    for _ in range(3):
        assert other.ids() == ["m1"] and other.reserve() is None and desk.reserve() is None
        assert desk.mailbox.watermark() == 1


# --- the Rust form --------------------------------------------------------------------------------

RUST_STATES = [*sorted(states.INBOUND), "observed", "socket_sent", "something else"]


def rust_record(msg_id: str, state: str = "receiver_stored", **more: object) -> dict[str, object]:
    msg = msgspec.to_builtins(note(msg_id, ts=NOW_MS - 1000))
    return {"message": msg, "peer": "alice", "state": state, "superseded_by": None, **more}


@pytest.mark.req("B7", "M11")
@pytest.mark.parametrize("observed", [{}, {"observed": False}, {"observed": True}], ids=["plain", "false", "true"])
def test_the_rust_form_is_read_and_migrated_by_the_first_write(state_root: str, observed: dict[str, bool]) -> None:
    data = {
        "records": [
            rust_record("read", "receiver_acknowledged", **observed),
            rust_record("u1", superseded_by="u2", **observed),
            rust_record("m1", "inbox_queued", **observed),
            rust_record("m2", **observed),
        ],
        "notice": {
            "id": "abcd1234",
            "state": "inbox_queued",
            "messages": [[PEER, "m1"]],
            "retry_at": NOW_MS + 299_000,
            "attempt": 4,
            **observed,
        },
    }
    path = put(state_root, data)
    before = path.read_bytes()
    desk = Desk(state_root)
    assert desk.ids() == ["m1", "m2"]
    found = [r.delivery_id for r in desk.unread()]
    assert path.read_bytes() == before, "reading writes nothing"
    assert [r.delivery_id for r in desk.reopened().unread()] == found, "the same at each reading"
    # its notice is over at the next look
    handoff = desk.reserve("new")
    assert handoff is not None and [r.receipt_id for r in handoff.waiting] == ["m1", "m2"]
    after = json.loads(path.read_bytes())
    assert after["version"] == VERSION and after["notice"]["id"] == "new"
    assert [r.delivery_id for r in desk.reopened().unread()] == found
    assert [r["state"] for r in after["records"]] == [
        "receiver_acknowledged",
        "receiver_stored",
        "inbox_queued",
        "receiver_stored",
    ]
    assert desk.reopened().admit(*(note(m, ts=NOW_MS - 1000) for m in ("read", "m1", "m2"))) == ["repeat"] * 3
    desk.admission.open(NOW_MS)
    assert desk.reopened("s2").admit(note("read", ts=NOW_MS - 1000)) == ["replay"]


@pytest.mark.req("B7", "S3")
@pytest.mark.parametrize("state", RUST_STATES)
def test_a_state_that_we_do_not_know_means_unread(state_root: str, state: str) -> None:
    put(state_root, {"records": [rust_record("m1", state)], "notice": None})
    desk = Desk(state_root)
    known = state if state in states.INBOUND else states.RECEIVER_STORED
    assert desk.state("m1") == known
    assert desk.ids() == ([] if state in ("receiver_acknowledged", "undeliverable") else ["m1"])


@pytest.mark.req("B7", "M11")
@pytest.mark.parametrize("content", [{}, {"records": []}, {"records": [], "notice": None}, {"notice": None}])
def test_an_empty_rust_mailbox(state_root: str, content: object) -> None:
    put(state_root, content)
    desk = Desk(state_root)
    assert desk.ids() == [] and desk.admit(note("m1")) == ["stored"]
    assert json.loads(path_of(state_root).read_bytes())["version"] == VERSION


@pytest.mark.req("M11")
@pytest.mark.parametrize(
    "notice", [{"id": "old"}, {"messages": [["k"]], "id": "x"}, {"text": "of a first form"}, 7]
)
def test_a_notice_of_any_earlier_form_is_over_at_the_next_look(state_root: str, notice: object) -> None:
    put(state_root, {"records": [rust_record("m1")], "notice": notice})
    desk = Desk(state_root)
    assert desk.ids() == ["m1"]
    assert desk.reserve("new") is not None
    assert json.loads(path_of(state_root).read_bytes())["notice"]["id"] == "new"


@pytest.mark.req("B7", "M20")
def test_two_rust_records_under_one_id_are_both_kept(state_root: str) -> None:
    other = rust_record("m1")
    other["message"]["text"] = "another"  # type: ignore[index]
    put(state_root, {"records": [rust_record("m1"), other], "notice": None})
    assert [r.message.text for r in Desk(state_root).unread()] == ["hello", "another"]


@pytest.mark.req("M17")
@pytest.mark.parametrize("kind", ["directory", "link", "pipe"])
def test_something_else_in_its_place_is_a_fault_and_stays(state_root: str, kind: str) -> None:
    path = path_of(state_root)
    path.parent.mkdir(parents=True)
    if kind == "directory":
        path.mkdir()
    elif kind == "link":
        (path.parent / "target").write_text("{}")
        path.symlink_to("target")
    else:
        os.mkfifo(path)
    desk = Desk(state_root)
    for act in (desk.mailbox.read, lambda: desk.admit(note("m1")), lambda: desk.ack("m1")):
        with pytest.raises(StateError, match=r"s1\.json"):
            act()
    assert "s1.json" in desk.mailbox.fault and os.path.lexists(path)
    path.rmdir() if kind == "directory" else path.unlink()
    assert desk.admit(note("m1")) == ["stored"] and desk.mailbox.fault == ""
