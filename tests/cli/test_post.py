"""`interlink post`: local sources reach a mailbox with the same care as a peer's message (L1 to L3)."""

import json
import os

import pytest
from support.cli import ME, Done, desk, each, interlink, layout, mcp_server, me, ok, tree
from support.keys import ALICE, CAROL
from support.listener import until

from interlink.mailbox.record import Record
from interlink.mailbox.staging import Receipt
from interlink.mailbox.store import Mailbox
from interlink.settings import Settings

POST = ("post", "--source", "ci", "--session", "s1")


def post(
    *args: str, stdin: bytes | str = "build failed", code: int = 0, env: dict[str, str] | None = None
) -> Done:
    done = interlink(*POST, *args, stdin=stdin, env=env)
    assert done.code == code, done
    return done


def records(session: str = "s1", identity: str = ME) -> list[Record]:
    return list(Mailbox(layout(), identity, session, Settings()).read().records.values())


def receipt(done: Done) -> dict[str, str]:
    found: dict[str, str] = json.loads(done.out.partition("Receipt: ")[2])
    return found


@pytest.mark.req("L1", "L3")
def test_it_is_stored_with_a_receipt_while_no_server_runs() -> None:
    me()
    done = post("--id", "b1", stdin="grün ✓\r\nlast line without end")
    (record,) = records()
    assert record.message.text == "grün ✓\r\nlast line without end"
    assert (record.message.sender, record.message.sig, record.message.to) == ("local:ci", "", ME)
    assert (record.peer, record.state, record.unread) == ("local:ci", "receiver_stored", True)
    assert receipt(done) == {"sender": "local:ci", "msg_id": "b1", "delivery_id": record.delivery_id}
    assert "no server" in done.err or "not known" in done.err
    found = desk().mailbox.acknowledge([Receipt(**receipt(done))], 1)
    assert found.newly == 1


@pytest.mark.req("L1", "L3")
def test_a_running_server_notices_it_and_a_later_one_too() -> None:
    me()
    post("--id", "before")
    with mcp_server("s1"):
        path = layout().inbox("s1")
        until(lambda: os.path.exists(path) and records()[0].state == "inbox_queued", "the notice of the first")
        desk().mailbox.acknowledge([Receipt("local:ci", "before")], 1)
        done = post("--id", "after")
        assert done.err == ""
        until(lambda: records()[-1].state == "inbox_queued", "the notice of the second")
        with open(path, encoding="utf-8") as file:
            notices = [json.loads(line) for line in file]
    assert len(notices) == 2 and '"local:ci" (1)' in notices[1]["content"]
    assert "build failed" not in notices[1]["content"]


@pytest.mark.req("L2", "M27")
def test_the_same_again_is_a_repeat_and_counted_and_a_sequence_number_tells_them_apart() -> None:
    me()
    first = receipt(post("--id", "b1"))
    again = post("--id", "b1", "--json").json
    assert (again["outcome"], again["suppressed"], again["receipt"]) == ("repeated", 1, first)
    assert post("--id", "b1").out.startswith("repeated: ")
    numbered = post("--id", "b1", "--seq", "7", "--json").json
    assert numbered["outcome"] == "stored" and numbered["receipt"]["msg_id"] != "b1"
    assert post("--id", "b1", "--seq", "7", "--json").json["outcome"] == "repeated"
    assert len(records()) == 2


@pytest.mark.req("L2", "M20")
def test_another_text_under_the_same_id_gets_a_receipt_of_its_own() -> None:
    me()
    post("--id", "b1")
    done = post("--id", "b1", "--json", stdin="another")
    assert done.json["collided"] and done.json["receipt"]["msg_id"].startswith("b1~")
    assert [r.receipt_id for r in records()] == ["b1", done.json["receipt"]["msg_id"]]


@pytest.mark.req("L2", "M23")
def test_an_ephemeral_one_has_a_short_life_and_is_superseded() -> None:
    me()
    life = {"INTERLINK_EPHEMERAL_TTL_S": "77"}
    post("--class", "ephemeral", "--supersedes", "turn", "--id", "e1", env=life)
    post("--class", "ephemeral", "--supersedes", "turn", "--id", "e2", env=life)
    old, new = records()
    assert (old.superseded_by, new.superseded_by) == ("e2", None)
    assert new.ephemeral and not new.attention
    assert new.local is not None and new.local.expires_ms == new.arrived_ms + 77_000


@pytest.mark.req("L2", "M26")
def test_a_late_sibling_of_an_acknowledged_group_is_retired_at_once() -> None:
    me()
    one = receipt(post("--resume-id", "run-1", "--id", "r1"))
    post("--resume-id", "run-1", "--id", "r2")
    desk().ack(one["msg_id"], sender="local:ci")
    late = post("--resume-id", "run-1", "--id", "r3")
    assert "retired at once" in late.out
    assert [r.state for r in records()] == ["receiver_acknowledged"] * 3


@pytest.mark.req("M22", "L1")
def test_up_to_the_limit_byte_for_byte_and_beyond_it_not_at_all() -> None:
    me()
    limit = Settings.text_max_bytes
    text = "é" + "x" * (limit - 2)
    post(stdin=text)
    assert records()[0].message.text == text
    done = post(stdin=text + "y", code=64)
    assert str(limit) in done.err and str(limit + 1) in done.err
    done = post(stdin="\x01" * 400_000, code=64)  # six bytes each once encoded
    assert str(Settings.message_max_bytes) in done.err and "once encoded" in done.err
    assert len(records()) == 1


def test_what_is_no_utf8_or_nothing_at_all_is_refused() -> None:
    root = me()
    before = tree(root)
    for bad in (b"\xff\xfe", b"ok \xc3", b"\xed\xa0\x80", b""):
        assert post(stdin=bad, code=64).err.count("\n") == 1
    assert tree(root) == before


BAD = [
    ("--source", "a#b"),
    ("--source", ""),
    ("--source", "x" * 33),
    ("--source", "two\nlines"),
    ("--source", "esc\x1b[2J"),
    ("--source", "rtl\u202e"),
    ("--source", " padded"),
    ("--id", "x" * 257),
    ("--id", "new\nline"),
    ("--class", "loud"),
    ("--seq", "-1"),
    ("--supersedes", "k"),
    ("--resume-id", ""),
    ("--session", ".hidden"),
    ("--session", "../../etc"),
    ("--session", "x" * 129),
    ("--identity", "nobody"),
]


@pytest.mark.req("L1")
def test_a_hostile_name_or_field_is_refused_and_nothing_is_kept() -> None:
    root = me()
    before = tree(root)
    lines = [["post", "--source", "ci", "--session", "s1", *pair] for pair in BAD]
    for pair, done in zip(BAD, each(*lines), strict=True):
        assert done.code == 64 and done.err.count("\n") == 1, (pair, done)
        assert "\x1b" not in done.err and "\u202e" not in done.err
    assert tree(root) == before


@pytest.mark.req("L3", "B4")
def test_a_unique_prefix_will_do_and_an_ambiguous_one_lists_them() -> None:
    me()
    for session in ("alpha-1", "alpha-2", "beta"):
        ok("post", "--source", "ci", "--session", session, stdin="x")
    done = ok("post", "--source", "ci", "--session", "b", stdin="y")
    assert "session beta " in done.out and len(records("beta")) == 2
    done = interlink("post", "--source", "ci", "--session", "alpha", stdin="y")
    assert done.code == 64 and "alpha-1" in done.err and "alpha-2" in done.err
    exact = ok("post", "--source", "ci", "--session", "alpha-1", stdin="y")
    assert "session alpha-1 " in exact.out


def test_a_new_session_is_taken_with_a_warning() -> None:
    me()
    done = ok("post", "--source", "ci", "--session", "later", stdin="x")
    assert "not known here" in done.err and len(records("later")) == 1


@pytest.mark.req("L1")
def test_where_two_identities_have_the_session_one_is_named() -> None:
    me()
    for key in (ALICE.public, CAROL.public):
        ok("post", "--source", "ci", "--session", "shared", "--identity", key, stdin="x")
    done = interlink("post", "--source", "ci", "--session", "shared", stdin="y")
    assert done.code == 64 and ALICE.public[:8] in done.err and CAROL.public[:8] in done.err
    ok("post", "--source", "ci", "--session", "shared", "--identity", CAROL.public[:8], stdin="y")
    assert (len(records("shared", ALICE.public)), len(records("shared", CAROL.public))) == (1, 2)


def test_without_a_key_the_only_identity_here_is_meant() -> None:
    me()
    ok("post", "--source", "ci", "--session", "s1", stdin="x")
    ok("post", "--source", "ci", "--session", "s2", stdin="y", env={"INTERLINK_KEY": "/nonexistent"})
    assert len(records("s2")) == 1


def test_the_session_may_come_from_the_environment() -> None:
    me()
    ok("post", "--source", "ci", stdin="x", env={"INTERLINK_SESSION": "envs"})
    assert len(records("envs")) == 1


@pytest.mark.req("L1", "M15")
def test_a_full_mailbox_takes_nothing_and_says_so() -> None:
    me()
    small = {"INTERLINK_MAILBOX_MAX_RECORDS": "1"}
    post("--id", "b1", env=small)
    done = post("--id", "b2", env=small, code=1)
    assert done.out == "" and "full" in done.err
    assert post("--id", "b2", "--json", env=small, code=1).json["outcome"] == "full"
    assert [r.own_id for r in records()] == ["b1"]


def test_one_that_could_never_fit_is_said_so() -> None:
    me()
    done = post(env={"INTERLINK_MAILBOX_MAX_BYTES": "1024"}, stdin="x" * 2000, code=1)
    assert "too long" in done.err and records() == []


@pytest.mark.req("M17", "L1")
def test_a_corrupt_mailbox_is_left_as_it_is() -> None:
    me()
    post()
    path = layout().mailbox(ME, "s1")
    with open(path, "w", encoding="utf-8") as file:
        file.write("{broken")
    assert "does not parse" in post(code=1).err
    with open(path, encoding="utf-8") as file:
        assert file.read() == "{broken"


@pytest.mark.req("M29")
def test_files_are_private_also_under_a_wide_umask() -> None:
    root = me()
    old = os.umask(0)
    try:
        post()
    finally:
        os.umask(old)
    assert {path: mode & 0o077 for path, (mode, _, _) in tree(root).items() if mode & 0o077} == {}


@pytest.mark.req("M29", "L1")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a directory of another user")
def test_a_root_of_another_user_is_refused() -> None:
    root = me()
    os.chown(root, 12345, 12345)
    assert "belongs to user 12345" in post(code=1).err
