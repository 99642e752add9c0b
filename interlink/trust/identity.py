"""Identity = Ed25519 key (B1). Strict verification (G2): what OpenSSL lets through is refused here.

Keys and signatures are base64url without padding: 43 and 86 characters.
"""

import base64
import binascii
import os
import stat
from collections.abc import Iterable

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from interlink.errors import SetupError, StateError, WireError
from interlink.state.files import FILE_MODE, explain, make_dirs, sync_dir, write_all
from interlink.text import fingerprint

KEY_BYTES = 32
SIG_BYTES = 64

_P = 2**255 - 19
_D = -121665 * pow(121666, -1, _P) % _P
_Y_MASK = 2**255 - 1
# y coordinates of the eight points of small order (RFC 8032 curve; the last two are inverse signs of one x).
_SMALL_ORDER_Y = frozenset(
    {
        0,
        1,
        _P - 1,
        0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826,
        0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7,
    }
)


def b64(data: bytes) -> str:
    """base64url, no padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def unb64(text: str, length: int) -> bytes:
    """Exactly `length` bytes from canonical base64url without padding; WireError otherwise."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as exc:
        raise WireError("not base64url without padding") from exc
    if len(raw) != length or b64(raw) != text:
        raise WireError(f"not {length} bytes in canonical base64url")
    return raw


def _bad_point(encoded: bytes) -> bool:
    """True for a non-canonical encoding or a point of small order."""
    y = int.from_bytes(encoded, "little") & _Y_MASK
    return y >= _P or y in _SMALL_ORDER_Y


def _on_curve(encoded: bytes) -> bool:
    """True when some x belongs to this y: (y^2 - 1) / (d y^2 + 1) is a square (Euler's criterion)."""
    y2 = pow(int.from_bytes(encoded, "little") & _Y_MASK, 2, _P)
    return pow((y2 - 1) * (_D * y2 + 1), (_P - 1) // 2, _P) <= 1


def check_public_key(text: str) -> bytes:
    """The 32 bytes of a public key that may be trusted; WireError says what is wrong with any other (G2).

    Refused: malformed, non-canonical, of small order, no point of the curve (half of all typing errors).
    Takes 0.2 ms: for keys that a person gives, not for each message.
    """
    raw = unb64(text, KEY_BYTES)
    if _bad_point(raw):
        raise WireError("a public key of small order or in a non-canonical encoding")
    if not _on_curve(raw):
        raise WireError("no public key: a character is wrong")
    return raw


def match_keys(text: str, keys: Iterable[str]) -> list[str]:
    """The keys that `text` names: that key itself, else every key with this fingerprint.

    More than one: the caller asks for the full key (G8).
    """
    keys = list(dict.fromkeys(keys))
    return [text] if text in keys else [key for key in keys if fingerprint(key) == text]


def verify_strict(public: bytes, signature: bytes, data: bytes) -> bool:
    """Ed25519 verification that also refuses small-order and non-canonical A and R (G2, H21)."""
    if len(public) != KEY_BYTES or len(signature) != SIG_BYTES:
        return False
    if _bad_point(public) or _bad_point(signature[:32]):
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


class Identity:
    """A private key and its public text form."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public_bytes = key.public_key().public_bytes_raw()
        self.public = b64(self.public_bytes)

    @classmethod
    def generate(cls) -> "Identity":
        """A new random identity."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_seed(cls, seed: bytes) -> "Identity":
        """The identity of a 32-byte seed."""
        return cls(Ed25519PrivateKey.from_private_bytes(seed))

    def sign(self, data: bytes) -> str:
        """The signature as 86 base64url characters."""
        return b64(self._key.sign(data))

    def seed_text(self) -> str:
        """The private seed as base64url, for the key file alone."""
        return b64(self._key.private_bytes_raw())


def load_key(path: str) -> Identity:
    """Read a key file: one line, the seed in base64url (B1, M29).

    Raises SetupError: missing (says how to make one), of another user, open to others, unreadable, not a key.
    """
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError as exc:
        raise SetupError(f"no key at {path}: make one with `interlink-keygen --out {path}`") from exc
    except OSError as exc:
        raise SetupError(str(explain(exc, f"read the key {path}"))) from exc
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise SetupError(f"the key {path} is not a regular file")
        if hasattr(os, "getuid") and info.st_uid != os.getuid():
            raise SetupError(f"the key {path} belongs to user {info.st_uid}, not to us: make your own")
        if os.name != "nt" and stat.S_IMODE(info.st_mode) & 0o077:
            raise SetupError(
                f"the key {path} can be read by others (mode {stat.S_IMODE(info.st_mode):04o}): "
                f"if nobody has copied it, run `chmod 600 {path}`; else make a new one"
            )
        text = os.read(fd, 4096).decode("ascii", "replace").strip()
    except OSError as exc:
        raise SetupError(str(explain(exc, f"read the key {path}"))) from exc
    finally:
        os.close(fd)
    try:
        return Identity.from_seed(unb64(text.rstrip("="), KEY_BYTES))
    except WireError as exc:
        raise SetupError(f"{path} is not a key file: {exc}; make one with `interlink-keygen`") from exc


def write_key(path: str, identity: Identity, *, force: bool = False) -> None:
    """Write a key file, 0600, durable; an existing file is kept unless `force` (B1).

    Missing directories are made, 0700. The file appears whole or not at all (a hard link, which never
    overwrites); `force` replaces it in one step, and a symbolic link by a file. Raises StateError.
    """
    path = os.path.abspath(path)
    folder, name = os.path.split(path)
    temp = os.path.join(folder, f".{name}.{os.urandom(4).hex()}.{os.getpid()}.tmp")
    try:
        make_dirs(folder)
        fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        try:
            try:
                if os.name != "nt":
                    os.fchmod(fd, FILE_MODE)  # a umask can take away the owner's bits
                write_all(fd, (identity.seed_text() + "\n").encode("ascii"))
                os.fsync(fd)
            finally:
                os.close(fd)
            if force:
                os.replace(temp, path)
            else:
                _link_new(temp, path)
        finally:
            if os.path.lexists(temp):
                os.unlink(temp)
        sync_dir(folder)
    except OSError as exc:
        raise explain(exc, f"write the key {path}") from exc


def _link_new(temp: str, path: str) -> None:
    try:
        os.link(temp, path)
    except FileExistsError as exc:
        raise StateError(f"{path} exists and is kept: choose another --out, or --force to replace it") from exc
