"""Which session a message goes to (B4): a table of choices, then real sessions."""

import json
from collections.abc import Sequence

import anyio
import pytest
from support.keys import ALICE, BOB
from support.world import World, receipts, sent_id, until

from interlink.errors import UsageError
from interlink.session.presence import Seen, choose, whose
from interlink.settings import Settings
from interlink.trust.peers import Peers
from interlink.trust.wire import Session
from interlink_lab.mcp_client import ToolFailed

S = Settings()
OWN = "own-session"


def there(*sessions: str, key: str = BOB.public) -> list[Seen]:
    """A roster; `name-` is away, any other is live."""
    found = []
    for number, name in enumerate(sessions):
        age = 1_000_000 if name.endswith("-") else 1000
        found.append(Seen(key, "claimed", Session(session_id=name.rstrip("-"), cwd=f"/w/{name}"), age + number, 0))
    return found


def pick(
    roster: list[Seen] | None,
    wanted: str | None = None,
    sticky: Sequence[str] = (),
    replying: str | None = None,
    *,
    petname: str = "bob",
) -> tuple[str, str]:
    """(session, note), or ("", error)."""
    key = ALICE.public if petname == "self" else BOB.public
    try:
        target = choose(petname, key, wanted, roster, sticky, OWN, replying, S)
    except UsageError as exc:
        return "", str(exc)
    assert target.route == f"{key}#{target.session}"
    return target.session, target.note


@pytest.mark.req("B4")
@pytest.mark.parametrize(
    ("roster", "wanted", "sticky", "replying", "session", "words"),
    [
        # the session asked for: exact before prefix, a unique prefix, live or away, also one that only wrote
        (there("ab1", "ab2"), "ab1", [], None, "ab1", ""),
        (there("ab", "ab1"), "ab", [], None, "ab", ""),
        (there("ab1", "cd1"), "a", [], None, "ab1", ""),
        (there("ab1-", "cd1"), "a", [], None, "ab1", "ab1 is away"),
        (there("ab1", "ab2"), "ab", [], None, "", "ambiguous: ab1, ab2"),
        (there("ab1"), "cd", ["cd9"], None, "cd9", "no such session is announced"),
        (there("ab1"), "cd", [], None, "", "no session 'cd'. Sessions: ab1 (live"),
        (there(), "cd", [], None, "", "No sessions are announced"),
        # a whole id that nobody announces waits in the relay
        (there("ab1"), "0123abcd", [], None, "0123abcd", "no such session is announced"),
        (None, "cd", [], None, "cd", "no relay answers"),
        # a reply goes to the session that asked, before all else
        (there("ab1", "cd1"), None, ["ab1"], "cd1", "cd1", ""),
        (there("ab1"), None, [], "cd1", "cd1", "no such session is announced"),
        (there("ab1", "cd1"), "ab1", ["cd1"], "cd1", "ab1", ""),
        # then to the one that wrote last and is still there
        (there("ab1", "cd1"), None, ["cd1", "ab1"], None, "cd1", ""),
        (there("ab1", "cd1"), None, ["gone", "ab1"], None, "ab1", ""),
        (there("ab1", "cd1-"), None, ["cd1"], None, "cd1", "cd1 is away; the message waits for it"),
        (None, None, ["cd1"], None, "cd1", "no relay answers"),
        # then to the lone live one, else the lone one that is away
        (there("ab1", "cd1-"), None, [], None, "ab1", ""),
        (there("ab1", "cd1-"), None, ["gone"], None, "ab1", ""),
        (there("cd1-"), None, [], None, "cd1", "cd1 is away"),
        (there(), None, ["gone"], None, "gone", "no such session is announced"),
        # anything else is an error with the list
        (there("ab1", "cd1"), None, [], None, "", 'ab1 (live, in "ab1"), cd1 (live'),
        (there("ab1-", "cd1-"), None, [], None, "", "no live session and 2 away"),
        (there(), None, [], None, "", "no announced session"),
        (None, None, [], None, "", "no relay answers"),
        (there("ab1", key=ALICE.public), None, [], None, "", "no announced session"),
    ],
)
def test_choices(
    roster: list[Seen] | None,
    wanted: str | None,
    sticky: list[str],
    replying: str | None,
    session: str,
    words: str,
) -> None:
    chosen, note = pick(roster, wanted, sticky, replying)
    assert chosen == session
    assert words in note if words else note == ""


@pytest.mark.req("B4")
def test_self_is_another_session_of_ours_never_this_one() -> None:
    ours = there(OWN, "other", key=ALICE.public)
    assert pick(ours, petname="self") == ("other", "")
    assert "no announced session" in pick(ours[:1], petname="self")[1]
    assert pick(ours[:1], "elsewhere-1", petname="self")[0] == "elsewhere-1"
    assert "this very session" in pick(ours, OWN, petname="self")[1]


@pytest.mark.req("B4")
@pytest.mark.parametrize("bad", [".", "..", "a/b", "a#b", "x" * 129, "a b", "\0", "é"])
def test_what_is_no_session_id_is_refused(bad: str) -> None:
    assert pick(there("ab1"), bad)[0] == ""


@pytest.mark.req("B4")
def test_an_unknown_petname_is_an_error_with_the_known_ones() -> None:
    peers = Peers({"bob": BOB.public}, {BOB.public: "bob"})
    assert whose("bob", peers, ALICE.public) == ("bob", BOB.public)
    assert whose("self", peers, ALICE.public) == ("self", ALICE.public)
    for name in ("Bob", "bo", "", BOB.public, "bob "):
        with pytest.raises(UsageError, match=r"known: bob\. Nothing was sent"):
            whose(name, peers, ALICE.public)
    many = {f"peer{number:03d}": f"k{number}" for number in range(500)}
    with pytest.raises(UsageError, match="and 480 more") as found:
        whose("x", Peers(many, {v: k for k, v in many.items()}), ALICE.public)
    assert len(str(found.value)) < 1000
    with pytest.raises(UsageError, match="nobody yet"):
        whose("x", Peers({}, {}), ALICE.public)


@pytest.mark.req("B4", "B5")
def test_messages_find_their_session_and_errors_queue_nothing(world: World) -> None:
    alice, bob = world.pair()

    async def refused(a: object, words: str, **arguments: object) -> None:
        outbox = (alice.root / "outbox").exists() and list((alice.root / "outbox").rglob("*.jsonl"))
        before = [p.read_bytes() for p in outbox or ()]
        with pytest.raises(ToolFailed, match=words):
            await a.text("send_message", text="x", **arguments)  # type: ignore[attr-defined]
        outbox = (alice.root / "outbox").exists() and list((alice.root / "outbox").rglob("*.jsonl"))
        assert [p.read_bytes() for p in outbox or ()] == before and world.queued() == 0

    def texts(session: str) -> list[str]:
        return [r["message"]["text"] for r in bob.records(session)]

    async def main() -> None:
        async with alice.server() as a, bob.server("bob-one") as one, bob.server("bob-two") as two:
            await refused(a, "known: bob", to="carol")
            await refused(a, "2 live sessions.*bob-(one|two) .*bob-(one|two) ", to="bob")
            await refused(a, "ambiguous: bob-(one|two), bob-(one|two)", to="bob", session="bob-")
            await refused(a, "no session 'x'", to="bob", session="x")
            await refused(a, "this very session", to="self", session="s-alice")
            await refused(a, "no announced session", to="self")
            await refused(a, "task_id", to="bob", session="bob-one", status="update")
            await refused(
                a, "longer than 256 bytes.*Nothing was sent", to="bob", session="bob-one", task_id="t" * 257
            )
            await refused(a, "longer than 256 bytes", to="bob", session="bob-one", in_reply_to="é" * 129)

            answer = await a.text("send_message", to="bob", session="bob-o", text="by prefix")
            assert "session bob-one" in answer
            await a.text("send_message", to="bob", session="bob-two", text="exactly")
            await until(lambda: texts("bob-one") and texts("bob-two"), "both")
            assert (texts("bob-one"), texts("bob-two")) == (["by prefix"], ["exactly"])

            asked = sent_id(await one.text("send_message", to="alice", text="from one"))
            await until(lambda: len(alice.records()) == 1, "the first")
            await two.text("send_message", to="alice", text="from two", session="s-alice")
            await until(lambda: len(alice.records()) == 2, "the second")
            # sticks to the session that wrote last; an answer goes to the one that asked
            assert "session bob-two" in await a.text("send_message", to="bob", text="sticks")
            answer = await a.text("send_message", to="bob", text="answer", in_reply_to=asked)
            assert "session bob-one" in answer
            await until(lambda: len(texts("bob-one")) == 2 and len(texts("bob-two")) == 2, "answers")
            assert (texts("bob-one")[1], texts("bob-two")[1]) == ("answer", "sticks")
            await until(lambda: world.queued() == 0, "the relay to hear so")
            await a.text("acknowledge_messages", messages=receipts(await a.text("receive_messages")))

            async with alice.server("alice-2") as other:
                assert "session alice-2" in await a.text("send_message", to="self", text="to my other self")
                await until(lambda: alice.records("alice-2"), "the note to self")
                assert "[interlink message from self]" in await other.text("receive_messages")

        async with alice.server() as a:
            # nobody is announced now: the one that wrote last, or a whole id, waits in the relay for that session
            answer = await a.text("send_message", to="bob", text="later")
            assert "session bob-two" in answer and "waits for it in the relay" in answer
            answer = await a.text("send_message", to="bob", session="bob-0123456", text="to nobody yet")
            assert "no such session is announced" in answer
            assert (world.waiting_for(bob, "bob-two"), world.waiting_for(bob, "bob-0123456")) == (1, 1)
        async with bob.server("bob-0123456") as b:
            await until(lambda: bob.records("bob-0123456"), "what waited for it")
            assert "to nobody yet" in await b.text("receive_messages")
            assert json.loads(bob.mailbox_path("bob-0123456").read_bytes())["session"] == "bob-0123456"

    anyio.run(main)
