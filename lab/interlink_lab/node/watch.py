"""Watches a node's state files as anybody may: each must parse at every moment, and each change is an event.

Mailbox records become `record` events (ids, state, sequence, never a body; the lab's token is read from the text),
inbox lines `inbox`, saved failures `failed`. A file that does not parse is `unparsable`, and so is a whole line of
a log. A line without its end is none yet: a killed process may leave one. Not looked at: `pending` of the replay
memory and the progress markers, which are written in place, and the relay's files.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from interlink_lab.tokens import NOTICE_ID, TOKEN

LOOK_S = 0.02
BUSY_SHARE = 5  # a look that took 10 ms is followed by at least 50 ms without one
LOST = "tombstone"
REPLAY_DIGEST = 32  # characters
Mark = tuple[int, int, int]


class Watch:
    """One state root, and the peers file where one is named."""

    def __init__(self, root: Path, emit: Callable[..., None], peers: Path | None = None) -> None:
        self._root = root
        self._emit = emit
        self._peers = peers
        self._seen: dict[Path, Mark] = {}
        self._records: dict[Path, dict[tuple[str, str, str], str]] = {}
        self._resent: set[tuple[str, str, str, str]] = set()  # repeats that their senders made anew (M24)
        self._ends: dict[Path, int] = {}  # of the whole lines that were read
        self._notices: dict[Path, Any] = {}
        self._armed: dict[Path, bool] = {}
        self._stopped = False
        self._looked = time.monotonic()  # when the last look began

    def stop(self) -> None:
        self._stopped = True

    async def run(self) -> None:
        """Look until it is stopped."""
        while not self._stopped:
            began = time.monotonic()
            self.poll()
            await anyio.sleep(max(LOOK_S, (time.monotonic() - began) * BUSY_SHARE))

    def poll(self) -> None:
        """Look at everything that has changed."""
        began = time.monotonic()
        taken = {"mailbox": self._mailbox, "pairing": None, "failed": self._failed, "counts": None, "host": None}
        for store, take in taken.items():
            for path in _files(self._root / store, 2, ".json"):
                self._json(store, path, take)
        if self._peers is not None:
            self._json("peers", self._peers, None)
        for path in _files(self._root / "inbox", 1, ".jsonl"):
            self._lines("inbox", path, json.loads, self._notice)
        for path in _files(self._root / "outbox", 2, ".jsonl"):
            self._lines("outbox", path, json.loads)
        for path in _files(self._root / "replay", 1, ".log"):
            self._lines("replay", path, _replay)
        for suffix in (".cursor", ".consumed"):
            for path in _files(self._root / "inbox", 1, suffix):
                self._read("inbox", path, _number)
        self._locks()
        self._looked = began

    def _tell(self, kind: str, **data: Any) -> None:
        """An event; what it tells happened at most `late` s before it."""
        self._emit("files", kind, late=round(time.monotonic() - self._looked, 3), **data)

    def _changed(self, path: Path, begin: int = 0) -> tuple[bytes, Mark] | None:
        """A file from this byte on, where it has changed since it was `_seen`."""
        try:
            stat = path.stat()
            mark = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
            if self._seen.get(path) == mark:
                return None
            with path.open("rb") as file:
                file.seek(begin)
                return file.read(), mark
        except OSError:
            return None  # replaced or removed this moment, or blocked by a fault of the lab

    def _json(self, store: str, path: Path, take: Callable[[Path, Any], None] | None) -> None:
        value = self._read(store, path, json.loads)
        if value is not None and take is not None:
            take(path, value[0])

    def _read(self, store: str, path: Path, parse: Callable[[bytes], Any]) -> tuple[Any] | None:
        """What a changed file holds; None where it is as it was, or does not parse."""
        changed = self._changed(path)
        if changed is None:
            return None
        data, self._seen[path] = changed
        return self._parsed(store, path, parse, data)

    def _parsed(
        self, store: str, path: Path, parse: Callable[[bytes], Any], data: bytes, **more: Any
    ) -> tuple[Any] | None:
        try:
            return (parse(data),)
        except (ValueError, RecursionError) as exc:
            name = str(path.relative_to(self._root)) if path.is_relative_to(self._root) else path.name
            self._tell("unparsable", store=store, file=name, error=str(exc)[:200], **more)
            return None

    def _locks(self) -> None:
        """Which sessions have a listener: the kernel's table says who holds which lock; nothing is taken."""
        try:
            held = {
                line.split()[5] for line in Path("/proc/locks").read_text("ascii").splitlines() if "->" not in line
            }
        except OSError:
            return  # another system
        inodes = {entry.rpartition(":")[2] for entry in held}
        for path in _files(self._root / "inbox", 1, ".lock"):
            armed = str(path.stat().st_ino) in inodes
            if self._armed.get(path, False) != armed:
                self._armed[path] = armed
                self._tell("armed" if armed else "unarmed", session=path.name.removesuffix(".lock"))

    def _mailbox(self, path: Path, value: dict[str, Any]) -> None:
        session, identity = path.name.removesuffix(".json"), path.parent.name
        known = self._records.setdefault(path, {})
        now: set[tuple[str, str, str]] = set()
        notice = value.get("notice")
        if notice != self._notices.get(path):
            self._notices[path] = notice
            names = ("id", "state", "through", "attempt", "failures", "made_ms")
            shown = {k: notice.get(k) for k in names} if notice else {}
            self._tell("reservation", session=session, **shown)
        for record in value.get("records", ()):
            message = record["message"]
            key = (message["from"], message["msg_id"], record.get("delivery_id", ""))
            now.add(key)
            again = (*key, str(record.get("resent_ms", "")))
            if again[-1] and again not in self._resent:
                self._resent.add(again)
                self._tell("remade", session=session, sender=key[0], msg_id=key[1])
            state = f"{record['state']}|{record.get('superseded_by', '')}"
            if known.get(key) == state:
                continue
            fresh = key not in known
            known[key] = state
            token = TOKEN.search(message.get("text", ""))
            self._tell(
                "record", session=session, identity=identity, new=fresh,
                sender=key[0], msg_id=key[1], delivery_id=key[2], seq=record.get("seq"), state=record["state"],
                alias=record.get("alias", ""), superseded_by=record.get("superseded_by", ""),
                token=token[1] if token else "", task=message.get("task_id", ""), status=message.get("status", ""),
                ts=message.get("ts", 0), reply_to=message.get("reply_to", ""),
                local="local" in record,
                ephemeral=record.get("local", {}).get("class") == "ephemeral",
            )  # fmt: skip
        for tomb in value.get("tombstones", ()):
            key = (tomb["sender"], tomb["msg_id"], tomb.get("delivery_id", ""))
            now.add(key)
            if known.get(key, "").endswith(LOST):
                continue
            known[key] = LOST
            self._tell(
                "record", session=session, identity=identity, new=False, sender=key[0], msg_id=key[1],
                delivery_id=key[2], seq=tomb.get("seq"), state=tomb["state"], tombstone=True, token="",
                superseded_by=tomb.get("superseded_by", ""), alias="", task="", status="", local=False,
            )  # fmt: skip
        for key in [k for k in known if k not in now]:
            del known[key]
            self._tell(
                "record.gone", session=session, identity=identity, sender=key[0], msg_id=key[1],
                delivery_id=key[2],
            )  # fmt: skip

    def _failed(self, path: Path, value: Any) -> None:
        rows = value if isinstance(value, list) else value.get("failures", value.get("entries", []))
        text = json.dumps(rows)
        token = TOKEN.search(text)
        self._emit(
            "files",
            "failed",
            session=path.name.removesuffix(".json"),
            count=len(rows),
            token=token[1] if token else "",
        )

    def _lines(
        self, store: str, path: Path, parse: Callable[[bytes], Any],
        take: Callable[[Path, bytes, Any], None] | None = None,
    ) -> None:  # fmt: skip
        """The whole lines that came; all of them where it became shorter, or no line ended there any more."""
        known = self._ends.get(path, 0)
        changed = self._changed(path, max(known - 1, 0))
        if changed is None:
            return
        data, mark = changed
        if known and not data.startswith(b"\n"):  # it was compacted
            self._ends[path] = known = 0
            changed = self._changed(path)
            if changed is None:
                return
            data, mark = changed
        self._seen[path] = mark
        data = data[1:] if known else data
        end = data.rfind(b"\n") + 1
        self._ends[path] = known + end
        for line in data[:end].split(b"\n"):
            if line.strip():
                value = self._parsed(store, path, parse, line, line=True, bytes=len(line))
                if value is not None and take is not None:
                    take(path, line, value[0])

    def _notice(self, path: Path, line: bytes, entry: dict[str, Any]) -> None:
        token = TOKEN.search(line.decode("utf-8", "replace"))
        ident = NOTICE_ID.search(entry.get("content", ""))
        self._tell(
            "inbox", session=path.name.removesuffix(".jsonl"), what=entry.get("kind", ""),
            notice=ident[1] if ident else "", through=entry.get("through"), token=token[1] if token else "",
            digest=hashlib.sha256(line).hexdigest()[:12],
        )  # fmt: skip


def _number(data: bytes) -> int:
    """Decimal digits, as the cursor has them."""
    if not data.strip().isdigit():
        raise ValueError(f"no number: {data[:40]!r}")
    return int(data)


def _replay(line: bytes) -> None:
    """The head of the replay memory, or one message: when it may be forgotten (ms), digest, session."""
    parts = line.split(b" ")
    if len(parts) != 3 or not (parts[0] == b"boot" or (parts[0].isdigit() and len(parts[1]) == REPLAY_DIGEST)):
        raise ValueError(f"no line of the replay memory: {line[:120]!r}")


def _files(folder: Path, depth: int, suffix: str) -> list[Path]:
    """Regular files with this ending, `depth` levels below a folder."""
    found: list[Path] = []
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return found
    for entry in entries:
        if depth > 1 and entry.is_dir(follow_symlinks=False):
            found += _files(Path(entry.path), depth - 1, suffix)
        elif depth == 1 and entry.name.endswith(suffix) and entry.is_file(follow_symlinks=False):
            found.append(Path(entry.path))
    return found
