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
)
from interlink.mailbox.rules import collision_alias
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


class _Version(msgspec.Struct):
    version: int = 1


_version = msgspec.json.Decoder(_Version)
_file = msgspec.json.Decoder(_File)
_record = msgspec.json.Decoder(Record)
_tombstone = msgspec.json.Decoder(Tombstone)
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
        self.done_bytes = 0  # of these, records that are consumed
        self._raw: dict[Key, bytes] = {}
        self._tomb_raw: dict[Key, bytes] = {}
        self._done: dict[Key, None] = {}  # consumed records, in the order of their consumption
        self._tasks: dict[str, dict[Key, None]] = {}  # records that take part in supersession, by task group
        self._buried_tasks: dict[str, dict[Key, None]] = {}  # tombstones likewise

    # -- content ------------------------------------------------------------------------------------

    def put(self, record: Record) -> None:
        """Add a record, or note that it changed: its encoding is made anew."""
        self._set(record, _encode(record))

    def drop(self, record: Record) -> None:
        """Take a record out."""
        key = record.key
        self.records.pop(key)
        size = len(self._raw.pop(key))
        self.bytes -= size
        if key in self._done:
            del self._done[key]
            self.done_bytes -= size
        _discard(self._tasks, record.group, key)

    def bury(self, record: Record) -> Tombstone:
        """Replace a consumed record by its tombstone (M16)."""
        tomb = tombstone_of(record)
        self.drop(record)
        self._set_tombstone(tomb, _encode(tomb))
        return tomb

    def put_tombstone(self, tomb: Tombstone) -> None:
        """Add a tombstone that was made elsewhere (M30)."""
        self._set_tombstone(tomb, _encode(tomb))

    def forget(self, tomb: Tombstone) -> None:
        """Take a tombstone out."""
        self.tombstones.pop(tomb.key)
        self._tomb_raw.pop(tomb.key)
        _discard(self._buried_tasks, tomb.group, tomb.key)

    def consumed(self) -> list[Record]:
        """Records with bodies that are no longer unread, the one consumed first at the head."""
        return [self.records[key] for key in self._done]

    def first_consumed(self) -> Record | None:
        """The head of `consumed`."""
        return next((self.records[key] for key in self._done), None)

    @property
    def consumed_count(self) -> int:
        return len(self._done)

    def of_task(self, group: str | None) -> tuple[list[Record], list[Tombstone]]:
        """Records and tombstones of one task group (M14)."""
        if group is None:
            return [], []
        return (
            [self.records[key] for key in self._tasks.get(group, ())],
            [self.tombstones[key] for key in self._buried_tasks.get(group, ())],
        )

    def at(self, sender: str, receipt_id: str) -> Record | Tombstone | None:
        """The record or tombstone that a receipt names."""
        key = (sender, receipt_id)
        return self.records.get(key) or self.tombstones.get(key)

    def _set(self, record: Record, raw: bytes) -> None:
        key = record.key
        old = len(self._raw.get(key, b""))
        self.records[key] = record
        self._raw[key] = raw
        self.bytes += len(raw) - old
        if key in self._done:
            self.done_bytes += len(raw) - old
        elif not record.unread:
            self._done[key] = None
            self.done_bytes += len(raw)
        if not old and (group := record.group) is not None:
            self._tasks.setdefault(group, {})[key] = None

    def _set_tombstone(self, tomb: Tombstone, raw: bytes) -> None:
        self.tombstones[tomb.key] = tomb
        self._tomb_raw[tomb.key] = raw
        if tomb.group is not None:
            self._buried_tasks.setdefault(tomb.group, {})[tomb.key] = None

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
            if version < VERSION:
                return cls._from_rust(data, identity, session)
            file = _file.decode(data)
            box = cls(identity, session)
            box.head.next_seq = file.next_seq
            box.head.counts = dict(file.counts)
            box.head.notice = msgspec.json.decode(file.notice, type=Notice | None)
            box.head.resumes = list(file.resumes)
            for raw in file.records:
                box._set(_decode_record(raw), bytes(raw))
            for raw in file.tombstones:
                box._set_tombstone(_tombstone.decode(raw), bytes(raw))
            box._sort_consumed()
        except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
            raise CorruptFile(
                f"{path} does not parse ({exc}): move it away to start an empty mailbox, or put back a good copy; "
                "new messages wait on the relay meanwhile"
            ) from exc
        highest = max((r.seq for r in box.records.values()), default=0)
        highest = max(highest, max((t.seq for t in box.tombstones.values()), default=0))
        box.head.next_seq = max(box.head.next_seq, highest + 1)
        return box

    def _sort_consumed(self) -> None:
        ordered = sorted(self.consumed(), key=lambda r: r.done_ms or r.arrived_ms)
        self._done = dict.fromkeys(r.key for r in ordered)

    @classmethod
    def _from_rust(cls, data: bytes, identity: str, session: str) -> "Box":
        """The Rust form: no version, no sequence. A notice of any of its versions is over, so that the next
        reconciliation makes a new one (M11); fields that we do not know, such as `observed`, are left out."""
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
            if record.key in box.records:  # two under one id: both are kept (M20)
                record.alias = collision_alias(record.message.msg_id, record.fp)
            box.put(record)
        box._sort_consumed()
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
        # what was set aside cannot be read, so it hides nothing that can
        group=record.group if record.state != states.UNDELIVERABLE else None,
        update=record.is_update,
        peer=record.peer,
        local_seq=record.local.seq if record.local else None,
    )


def _discard(index: dict[str, dict[Key, None]], group: str | None, key: Key) -> None:
    if group is not None and group in index:
        index[group].pop(key, None)
        if not index[group]:
            del index[group]


def is_local(sender: str) -> bool:
    """True for a sender `local:NAME` (L1)."""
    return sender.startswith(LOCAL_PREFIX)
