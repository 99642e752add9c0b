"""What a mailbox file holds: records, tombstones, the notice (`docs/state-files.md` shows the file).

The first four fields of a record are those of the public Rust system; ours come after them (wire.md).
"""

import hashlib
from typing import Final

import msgspec

from interlink.mailbox import states
from interlink.trust.wire import TERMINAL, Message

VERSION: Final = 2  # version 1 is the Rust form, which has no version field
LOCAL_PREFIX: Final = "local:"

ACTIONABLE: Final = "actionable"
EPHEMERAL: Final = "ephemeral"


class Local(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What only a local source gives (L2): its sequence, class, supersedes key, resume id."""

    seq: int | None = None
    klass: str = msgspec.field(name="class", default=ACTIONABLE)
    supersedes: str | None = None
    resume_id: str | None = None
    expires_ms: int | None = None


class Record(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One message with its body. `seq` is the order of admission and never used twice in a mailbox."""

    message: Message
    peer: str
    state: str
    superseded_by: str | None = None
    seq: int = 0
    delivery_id: str = ""
    arrived_ms: int = 0
    fp: str = ""
    alias: str | None = None
    done_ms: int | None = None
    size: int | None = None  # bytes of a body that was set aside (undeliverable)
    resent_ms: int | None = None  # the sender's own time of a repeat that brought a notice forward (M24)
    local: Local | None = None

    @property
    def receipt_id(self) -> str:
        """The `msg_id` that its receipt carries: the alias of a colliding one (M20)."""
        return self.alias or self.message.msg_id

    @property
    def key(self) -> tuple[str, str]:
        """(sender key, receipt id): what an acknowledgement names."""
        return (self.message.sender, self.receipt_id)

    @property
    def own_id(self) -> str:
        """The id that its sender gave it."""
        return self.message.msg_id

    @property
    def group(self) -> str | None:
        """Its task group where it takes part in supersession: an update or terminal message of a task (M14)."""
        return task_group(self.message) if self.is_update or self.is_terminal else None

    @property
    def unread(self) -> bool:
        """Neither acknowledged, superseded nor set aside."""
        return self.superseded_by is None and self.state not in (
            states.RECEIVER_ACKNOWLEDGED,
            states.UNDELIVERABLE,
        )

    @property
    def is_update(self) -> bool:
        return self.message.status == "update"

    @property
    def is_terminal(self) -> bool:
        return self.message.status in TERMINAL

    @property
    def ephemeral(self) -> bool:
        return self.local is not None and self.local.klass == EPHEMERAL

    @property
    def attention(self) -> bool:
        """Worth a wake-up: unread, no progress, not ephemeral (M14, M23)."""
        return self.unread and not self.is_update and not self.ephemeral


class Tombstone(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A consumed record without its body: ids, fingerprint, state, times (M16)."""

    sender: str
    msg_id: str  # as in the receipt
    delivery_id: str
    fp: str
    state: str
    seq: int
    ts: int
    arrived_ms: int
    done_ms: int
    superseded_by: str | None = None
    source_id: str | None = None  # the message's own id where the receipt carries an alias
    group: str | None = None  # task group of a terminal message or an update: late progress stays superseded
    update: bool = False
    peer: str = ""
    local_seq: int | None = None

    @property
    def key(self) -> tuple[str, str]:
        return (self.sender, self.msg_id)

    @property
    def own_id(self) -> str:
        """The id that its sender gave it."""
        return self.source_id or self.msg_id


class Notice(msgspec.Struct, omit_defaults=False, kw_only=True):
    """The current reservation (M7). `through` = the highest admission sequence that it covers."""

    id: str
    state: str  # RESERVED until its handoff is settled, then the state that the handoff gave
    through: int = 0
    made_ms: int = 0
    retry_at: int = 0
    attempt: int = 0
    failures: int = 0


class Resume(msgspec.Struct, kw_only=True):
    """A resume id that was acknowledged: late siblings are retired until `until_ms` (M26)."""

    sender: str
    resume_id: str
    until_ms: int


class Header(msgspec.Struct, omit_defaults=False, kw_only=True):
    """Everything in the file but records and tombstones."""

    version: int = VERSION
    identity: str = ""
    session: str = ""
    next_seq: int = 1
    notice: Notice | None = None
    resumes: list[Resume] = msgspec.field(default_factory=list)
    counts: dict[str, int] = msgspec.field(default_factory=dict)


def content_fingerprint(msg: Message, source: str = "") -> str:
    """22 characters that stand for kind, body and task fields; not for time or signature (M20).

    A message that its sender signs anew keeps it; another body under the same id does not.
    """
    digest = hashlib.sha256()
    for part in (msg.kind, msg.text, msg.status or "", msg.task_id or "", msg.in_reply_to or "", source):
        raw = part.encode("utf-8")
        digest.update(len(raw).to_bytes(4, "little"))
        digest.update(raw)
    return digest.hexdigest()[:22]


def task_group(msg: Message) -> str | None:
    """What progress is superseded within: sender key, sender session hint, task id (M14). None: no task."""
    if msg.task_id is None:
        return None
    joined = "\0".join((msg.sender, msg.reply_to or "", msg.task_id))
    return hashlib.sha256(joined.encode("utf-8")).hexdigest()[:22]
