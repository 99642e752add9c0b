"""Watches a node's state files as anybody may: each must parse at every moment, and each change is an event.

Mailbox records become `record` events (ids, state, sequence, never a body; the lab's token is read from the text),
inbox lines `inbox`, saved failures `failed`. A file that does not parse is `unparsable`.
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


class Watch:
    """One state root."""

    def __init__(self, root: Path, emit: Callable[..., None]) -> None:
        self._root = root
        self._emit = emit
        self._seen: dict[Path, tuple[int, int, int]] = {}
        self._records: dict[Path, dict[tuple[str, str, str], str]] = {}
        self._resent: set[tuple[str, str, str, str]] = set()  # repeats that their senders made anew (M24)
        self._inbox: dict[Path, int] = {}
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
        for store, take in (("mailbox", self._mailbox), ("pairing", None), ("failed", self._failed)):
            for path in _files(self._root / store, 2, ".json"):
                self._json(store, path, take)
        for path in _files(self._root / "inbox", 1, ".jsonl"):
            self._lines(path)
        self._locks()
        self._looked = began

    def _tell(self, kind: str, **data: Any) -> None:
        """An event; what it tells happened at most `late` s before it."""
        self._emit("files", kind, late=round(time.monotonic() - self._looked, 3), **data)

    def _json(self, store: str, path: Path, take: Callable[[Path, Any], None] | None) -> None:
        try:
            stat = path.stat()
            mark = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
            if self._seen.get(path) == mark:
                return
            data = path.read_bytes()
        except OSError:
            return  # replaced or removed this moment, or blocked by a fault of the lab
        self._seen[path] = mark
        try:
            value = json.loads(data)
        except ValueError as exc:
            self._tell("unparsable", store=store, file=self._name(path), error=str(exc)[:200])
            return
        if take is not None:
            take(path, value)

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

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self._root))

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

    def _lines(self, path: Path) -> None:
        offset = self._inbox.get(path, 0)
        try:
            if path.stat().st_size < offset:
                offset = 0  # compacted
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read()
        except OSError:
            return  # as above
        whole = data[: data.rfind(b"\n") + 1]
        self._inbox[path] = offset + len(whole)
        for line in whole.splitlines():
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
            except ValueError:
                if (
                    data[len(whole) :] == b"" or offset
                ):  # a torn line that was ended later is no record: said apart
                    self._tell("inbox.torn", file=self._name(path), bytes=len(line))
                continue
            text = entry.get("content", "")
            token, ident = TOKEN.search(line.decode("utf-8", "replace")), NOTICE_ID.search(text)
            self._tell(
                "inbox", session=path.name.removesuffix(".jsonl"), what=entry.get("kind", ""),
                notice=ident[1] if ident else "", through=entry.get("through"), token=token[1] if token else "",
                digest=hashlib.sha256(line).hexdigest()[:12],
            )  # fmt: skip


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
