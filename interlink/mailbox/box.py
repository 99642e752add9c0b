"""One mailbox in memory, and its file form: parse, migrate, encode (M11, M16, M17).

Each record keeps its encoded bytes, so that writing a full mailbox joins bytes instead of encoding
thousands of bodies again.
"""

import hashlib

import msgspec

from interlink.errors import CorruptFile, NewerVersion
from interlink.mailbox import states
from interlink.mailbox.record import (
    LOCAL_PREFIX,
    VERSION,
    Header,
    Notice,
    Record,
    Resume,
    Tombstone,
    content_fingerprint,
    task_group,
)
from interlink.trust.wire import Message

Key = tuple[str, str]


class _File(msgspec.Struct, kw_only=True):
    version: int = 1
    identity: str = ""
    session: str = ""
    next_seq: int = 1
    notice: msgspec.Raw = msgspec.Raw(b"null")
    resumes: list[Resume] = []
    counts: dict[str, int] = {}
    records: list[msgspec.Raw] = []
    tombstones: list[msgspec.Raw] = []


class _RustNotice(msgspec.Struct, kw_only=True):
    """The notice of the Rust form; `observed` and other fields of its versions are ignored."""

    id: str
    state: str = ""
    messages: list[tuple[str, str]] = []
    retry_at: int = 0
    attempt: int = 0


class _Version(msgspec.Struct):
    version: int = 1


_version = msgspec.json.Decoder(_Version)
_file = msgspec.json.Decoder(_File)
_record = msgspec.json.Decoder(Record)
_tombstone = msgspec.json.Decoder(Tombstone)
_rust_notice = msgspec.json.Decoder(_RustNotice)
_encode = msgspec.json.Encoder().encode


class Box:
    """Records and tombstones by (sender, receipt id), in order of admission."""

    def __init__(self, identity: str, session: str) -> None:
        self.head = Header(identity=identity, session=session)
        self.records: dict[Key, Record] = {}
        self.tombstones: dict[Key, Tombstone] = {}
        self.bytes = 0  # serialized records
        self.pruned_ms = 0
        self.dirty = False  # set by whoever changes it under the lock: commit at the end
        self._raw: dict[Key, bytes] = {}
        self._tomb_raw: dict[Key, bytes] = {}

    # -- content ------------------------------------------------------------------------------------

    def put(self, record: Record) -> None:
        """Add a record, or note that it changed: its encoding is made anew."""
        key = record.key
        self.bytes -= len(self._raw.get(key, b""))
        raw = _encode(record)
        self.records[key] = record
        self._raw[key] = raw
        self.bytes += len(raw)

    def drop(self, record: Record) -> None:
        """Take a record out."""
        key = record.key
        self.records.pop(key)
        self.bytes -= len(self._raw.pop(key))

    def bury(self, record: Record) -> Tombstone:
        """Replace a consumed record by its tombstone (M16)."""
        tomb = tombstone_of(record)
        self.drop(record)
        self.tombstones[tomb.key] = tomb
        self._tomb_raw[tomb.key] = _encode(tomb)
        return tomb

    def forget(self, tomb: Tombstone) -> None:
        """Take a tombstone out."""
        self.tombstones.pop(tomb.key)
        self._tomb_raw.pop(tomb.key)

    def size_of(self, record: Record) -> int:
        """Bytes of one record as it is stored."""
        return len(self._raw[record.key])

    def next_seq(self) -> int:
        """A new admission sequence number."""
        seq = self.head.next_seq
        self.head.next_seq = seq + 1
        return seq

    def count(self, name: str, by: int = 1) -> None:
        """Add to a durable counter (suppressed repeats, collisions ...)."""
        self.head.counts[name] = self.head.counts.get(name, 0) + by

    # -- file form ----------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """The whole file."""
        head = _encode(self.head)
        return b"".join(
            (
                head[:-1],
                b',\n"records":[\n',
                b",\n".join(self._raw.values()),
                b'\n],\n"tombstones":[\n',
                b",\n".join(self._tomb_raw.values()),
                b"\n]}\n",
            )
        )

    @classmethod
    def decode(cls, data: bytes, identity: str, session: str, path: str) -> "Box":
        """A mailbox from its file. CorruptFile where it does not parse or is of a newer version (M11)."""
        try:
            version = _version.decode(data).version
            if version > VERSION:
                raise NewerVersion(
                    f"{path} has version {version}, newer than {VERSION}: it was written by a newer interlink; "
                    "update this one. The file is left as it is."
                )
            if version == 1:
                return cls._from_rust(data, identity, session)
            file = _file.decode(data)
            box = cls(identity, session)
            box.head.next_seq = file.next_seq
            box.head.counts = dict(file.counts)
            box.head.notice = msgspec.json.decode(file.notice, type=Notice | None)
            box.head.resumes = list(file.resumes)
            for raw in file.records:
                box._adopt(_decode_record(raw), bytes(raw))
            for raw in file.tombstones:
                tomb = _tombstone.decode(raw)
                box.tombstones[tomb.key] = tomb
                box._tomb_raw[tomb.key] = bytes(raw)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
            raise CorruptFile(
                f"{path} does not parse ({exc}): move it away to start an empty mailbox, or put back a good copy; "
                "new messages wait on the relay meanwhile"
            ) from exc
        highest = max((r.seq for r in box.records.values()), default=0)
        highest = max(highest, max((t.seq for t in box.tombstones.values()), default=0))
        box.head.next_seq = max(box.head.next_seq, highest + 1)
        return box

    def _adopt(self, record: Record, raw: bytes) -> None:
        key = record.key
        if key in self._raw:
            self.bytes -= len(self._raw[key])
        self.records[key] = record
        self._raw[key] = raw
        self.bytes += len(raw)

    @classmethod
    def _from_rust(cls, data: bytes, identity: str, session: str) -> "Box":
        """The Rust form: no version, no sequence. Its notice expires at the next reconciliation (M11)."""
        file = _file.decode(data)
        box = cls(identity, session)
        for raw in file.records:
            record = _decode_record(raw)
            record.seq = box.next_seq()
            record.fp = content_fingerprint(record.message)
            record.delivery_id = migrated_delivery_id(record.message)
            record.arrived_ms = record.message.ts
            if not record.unread:
                record.done_ms = record.message.ts
            box.put(record)
        if bytes(file.notice) != b"null":
            old = _rust_notice.decode(file.notice)
            box.head.notice = Notice(id=old.id, state=states.INBOX_QUEUED, through=box.head.next_seq - 1)
        return box


def _decode_record(raw: msgspec.Raw) -> Record:
    """A record; a state of another program that we do not know becomes `receiver_stored` (nothing is lost)."""
    record = _record.decode(raw)
    if record.state not in states.INBOUND:
        record.state = states.RECEIVER_STORED
    return record


def migrated_delivery_id(msg: Message) -> str:
    """A delivery id for a record that has none: the same at every reading until it is written."""
    return hashlib.sha256(f"{msg.sender}\0{msg.msg_id}\0{msg.sig}".encode()).hexdigest()[:16]


def tombstone_of(record: Record) -> Tombstone:
    """What stays of a consumed record (M16)."""
    msg = record.message
    return Tombstone(
        sender=msg.sender,
        msg_id=record.receipt_id,
        delivery_id=record.delivery_id,
        fp=record.fp,
        state=record.state,
        seq=record.seq,
        ts=msg.ts,
        arrived_ms=record.arrived_ms,
        done_ms=record.done_ms or record.arrived_ms,
        superseded_by=record.superseded_by,
        source_id=msg.msg_id if record.alias else None,
        group=task_group(msg) if record.is_terminal else None,
        peer=record.peer,
        local_seq=record.local.seq if record.local else None,
    )


def is_local(sender: str) -> bool:
    """True for a sender `local:NAME` (L1)."""
    return sender.startswith(LOCAL_PREFIX)
