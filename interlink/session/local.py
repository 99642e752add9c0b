"""Local sources: a process of the same user puts a message into a session's mailbox, without a relay (L1 to L3).

Nothing is signed: that the process could write below the state root is all that it proves. The sender is
`local:NAME`, which no petname can be. With no server running the message is stored; a server that runs sees the
changed file within a second, one that starts later sees it then.
"""

import secrets
from typing import NamedTuple

from interlink.errors import UsageError
from interlink.mailbox import staging
from interlink.mailbox.record import ACTIONABLE, EPHEMERAL, LOCAL_PREFIX, Local, Record, content_fingerprint
from interlink.mailbox.store import Mailbox
from interlink.session.admission import Admission
from interlink.session.limits import check_size
from interlink.settings import Settings
from interlink.state import files
from interlink.state.paths import Layout
from interlink.text import clean_line, has_surrogate, shown_name
from interlink.trust.wire import MAX_ID_BYTES, Message

CLASSES = (ACTIONABLE, EPHEMERAL)


class Source(NamedTuple):
    """What a local source says beside the text. `msg_id` "": a new one. `seq` tells equal messages apart (M27)."""

    name: str
    msg_id: str = ""
    klass: str = ACTIONABLE
    seq: int | None = None
    supersedes: str | None = None
    resume_id: str | None = None


class Posted(NamedTuple):
    """`outcome`: stored, repeat, kept (the mailbox is full: nothing was kept) or undeliverable (it never fits).

    `record` is the stored one, or the one that this repeats where its body is still there; `receipt_id` what a
    receipt carries; `collided`: another message has the id (M20); `suppressed`: repeats counted so far (M27).
    """

    outcome: str
    sender: str
    receipt_id: str
    record: Record | None
    collided: bool
    suppressed: int


def check_source(name: str, settings: Settings) -> str:
    """The name itself; UsageError unless it can be shown as it is (F11)."""
    longest = settings.name_max_chars
    if not name or "#" in name or clean_line(name, longest) != name:
        raise UsageError(
            f"source name {shown_name(name)} is not valid: use 1 to {longest} visible characters, no #, "
            "single spaces between words only"
        )
    return name


def post(
    layout: Layout, identity: str, session: str, text: str, source: Source, settings: Settings, now_ms: int
) -> Posted:
    """Store a message of a local source, durably before this returns.

    Raises UsageError (too long, a field that is not valid) and StateError (the disk, another user's root): nothing
    is kept then.
    """
    msg, local = _message(identity, text, source, settings, now_ms)
    size = check_size(msg, settings, "Nothing was kept.")
    files.ensure_root(layout.root)
    mailbox = Mailbox(layout, identity, session, settings)
    staged = Admission(layout, mailbox, settings).admit_local(msg, size, local, now_ms)
    box = mailbox.read()
    found = staged.record
    if staged.outcome == staging.REPEATED:
        known = staging.look_up(box, msg, content_fingerprint(msg, staging.source_of(local))).found
        found = known if isinstance(known, Record) else None
        receipt_id = known.key[1] if known is not None else msg.msg_id
    else:
        receipt_id = found.receipt_id if found is not None else msg.msg_id
    return Posted(
        staged.outcome, msg.sender, receipt_id, found, staged.collided, box.head.counts.get("suppressed", 0)
    )


def _message(identity: str, text: str, source: Source, settings: Settings, now_ms: int) -> tuple[Message, Local]:
    check_source(source.name, settings)
    if source.klass not in CLASSES:
        raise UsageError(f"class {source.klass[:40]!r} is not known: use {' or '.join(CLASSES)}")
    ephemeral = source.klass == EPHEMERAL
    if source.supersedes is not None and not ephemeral:
        raise UsageError(f"a supersedes key belongs to {EPHEMERAL} messages: leave it out, or change the class")
    if source.seq is not None and not 0 <= source.seq < 1 << 63:
        raise UsageError(f"the sequence number {source.seq} is not valid: use 0 to 9223372036854775807")
    fields = (
        ("id", source.msg_id or None),
        ("supersedes key", source.supersedes),
        ("resume id", source.resume_id),
    )
    for what, value in fields:
        if value is not None:
            _check_field(what, value)
    if has_surrogate(text):
        raise UsageError("the text is not valid Unicode. Nothing was kept.")
    msg = Message(
        sender=LOCAL_PREFIX + source.name,
        to=identity,
        text=text,
        ts=now_ms,
        msg_id=source.msg_id or secrets.token_hex(16),
    )
    local = Local(
        seq=source.seq,
        klass=source.klass,
        supersedes=source.supersedes,
        resume_id=source.resume_id,
        expires_ms=now_ms + int(settings.ephemeral_ttl_s * 1000) if ephemeral else None,
    )
    return msg, local


def _check_field(what: str, value: str) -> None:
    if has_surrogate(value) or not value or len(value.encode("utf-8")) > MAX_ID_BYTES or not value.isprintable():
        raise UsageError(
            f"the {what} {shown_name(value)} is not valid: use 1 to {MAX_ID_BYTES} bytes of visible characters"
        )
