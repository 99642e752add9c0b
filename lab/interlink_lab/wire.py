"""A second, independent making of signed messages, from docs/protocol.md alone (for loads and forgeries)."""

import base64
import json
import secrets
import time
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def b64(data: bytes) -> str:
    """base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def unb64(text: str) -> bytes:
    """The bytes of `b64`."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Signer:
    """One identity. `Signer.load(path)` reads a key file of the product."""

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = b64(self._key.public_key().public_bytes_raw())

    @classmethod
    def load(cls, path: Path) -> "Signer":
        return cls(unb64(path.read_text("ascii").strip()))

    @classmethod
    def fresh(cls) -> "Signer":
        return cls(secrets.token_bytes(32))

    def message(self, to: str, text: str, **fields: object) -> dict[str, object]:
        """A signed message; `fields` replace or add members (`ts`, `msg_id`, `task_id`, `status`, ...)."""
        msg: dict[str, object] = {
            "from": self.public,
            "to": to,
            "text": text,
            "ts": time.time_ns() // 1_000_000,
            "msg_id": secrets.token_hex(16),
            "kind": "message",
        }
        msg |= {k: v for k, v in fields.items() if v is not None}
        msg["sig"] = b64(self._key.sign(signed_bytes(msg)))
        return msg


def signed_bytes(msg: dict[str, object]) -> bytes:
    """What the signature covers."""
    parts = [b"interlink-v2\0", unb64(str(msg["from"])), unb64(str(msg["to"]))]
    ts = msg["ts"]
    assert isinstance(ts, int)
    parts.append(ts.to_bytes(8, "little"))
    for name in ("kind", "msg_id", "text", "status", "task_id", "in_reply_to"):
        raw = str(msg.get(name, "")).encode("utf-8")
        parts += [len(raw).to_bytes(4, "little"), raw]
    return b"".join(parts)


def send_body(route: str, msg: dict[str, object]) -> bytes:
    """The body of a POST /send."""
    return json.dumps({"to": route, "payload": msg}, ensure_ascii=False).encode("utf-8")
