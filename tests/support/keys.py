"""Identities that are the same on every run, and signed messages and announcements between them."""

from interlink.trust.identity import Identity
from interlink.trust.wire import Announcement, Message, Session, sign_announcement, sign_message

NOW_MS = 1_764_528_000_000  # the time at which messages of this file are fresh


def identity(number: int) -> Identity:
    """The identity whose seed is 32 times the byte `number` (0 to 255)."""
    return Identity.from_seed(bytes([number]) * 32)


ALICE = identity(0)
BOB = identity(1)
CAROL = identity(2)


def unsigned(
    sender: Identity = ALICE,
    to: Identity = BOB,
    text: str = "hello",
    *,
    ts: int = NOW_MS,
    msg_id: str = "m1",
    kind: str = "message",
    task_id: str | None = None,
    status: str | None = None,
    in_reply_to: str | None = None,
    reply_to: str | None = None,
) -> Message:
    """A message without its signature."""
    return Message(
        sender=sender.public,
        to=to.public,
        text=text,
        ts=ts,
        msg_id=msg_id,
        kind=kind,
        task_id=task_id,
        status=status,
        in_reply_to=in_reply_to,
        reply_to=reply_to,
    )


def message(sender: Identity = ALICE, to: Identity = BOB, text: str = "hello", **fields: object) -> Message:
    """A signed message; `fields` as of `unsigned`."""
    return sign_message(unsigned(sender, to, text, **fields), sender)  # type: ignore[arg-type]


def announcement(
    who: Identity = ALICE,
    session: str = "session-a",
    *,
    name: str = "alice",
    ts: int = NOW_MS,
    cwd: str = "/w",
    git_root: str = "repo",
    summary: str = "",
) -> Announcement:
    """A signed announcement."""
    place = Session(session_id=session, cwd=cwd, git_root=git_root, summary=summary)
    return sign_announcement(Announcement(pubkey=who.public, name=name, session=place, ts=ts), who)
