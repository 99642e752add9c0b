"""Keys and strict verification: published vectors, forgeries that OpenSSL lets through, key files."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st
from support import curve
from support.crash import crashes, unsynced
from support.keys import ALICE, BOB

from interlink.errors import SetupError, StateError, WireError
from interlink.trust import identity
from interlink.trust.identity import Identity, b64, check_public_key, load_key, match_keys, unb64, write_key

DATA = Path(__file__).parent / "data"
TORSION = curve.torsion()


def cases(name: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads((DATA / name).read_text("utf-8"))["cases"]
    return found


def raw(case: dict[str, object], *names: str) -> list[bytes]:
    return [bytes.fromhex(str(case[name])) for name in names]


def openssl_accepts(public: bytes, signature: bytes, data: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
    except InvalidSignature:
        return False
    return True


# --- published vectors ---


@pytest.mark.req("B1")
@pytest.mark.parametrize("case", cases("rfc8032.json"), ids=lambda c: c["what"])
def test_rfc_8032_vectors(case: dict[str, object]) -> None:
    seed, public, data, signature = raw(case, "seed", "public_key", "message", "signature")
    signer = Identity.from_seed(seed)
    assert signer.public_bytes == public
    assert signer.public == b64(public) and len(signer.public) == 43
    assert unb64(signer.sign(data), 64) == signature and len(signer.sign(data)) == 86
    assert identity.verify_strict(public, signature, data)
    assert check_public_key(signer.public) == public


@pytest.mark.req("G2", "H21")
@pytest.mark.parametrize("case", cases("speccheck.json"), ids=lambda c: c["what"])
def test_published_edge_cases(case: dict[str, object]) -> None:
    public, data, signature = raw(case, "public_key", "message", "signature")
    # Where OpenSSL changes its mind, the host facts (H21) are out of date.
    assert openssl_accepts(public, signature, data) is case["openssl"]
    assert identity.verify_strict(public, signature, data) is case["strict"]


# --- forgeries ---


def test_the_torsion_points_are_the_eight_of_small_order() -> None:
    assert len({curve.encode(point) for point in TORSION}) == 8
    assert all(curve.mul(8, point) == curve.ZERO for point in TORSION)


def forged(public: bytes, point: curve.Point) -> tuple[bytes, bytes]:
    """(message, signature) that nobody signed, valid under a key of small order: R = rB, S = r, k A = 0."""
    r = curve.encode(curve.mul(7, curve.B))
    for n in range(1000):
        data = b"pay %d" % n
        if curve.mul(curve.challenge(r, public, data) % 8, point) == curve.ZERO:
            return data, r + (7).to_bytes(32, "little")
    raise AssertionError("no message found")


@pytest.mark.req("G2", "H21")
@pytest.mark.parametrize("n", range(8))
def test_small_order_keys_are_refused(n: int) -> None:
    public = curve.encode(TORSION[n])
    data, signature = forged(public, TORSION[n])
    assert openssl_accepts(public, signature, data)  # else this test would prove nothing
    assert not identity.verify_strict(public, signature, data)
    with pytest.raises(WireError, match="small order"):
        check_public_key(b64(public))


# Encodings that decode to a point, though no encoder writes them: y not below p, or x = 0 with a sign.
def spellings() -> Iterator[tuple[bytes, curve.Point]]:
    for k in range(19):
        for sign in (0, 1):
            x = curve.x_of(k, sign)
            if x is not None:
                yield curve.encoded(curve.P + k, sign), (x, k)
    yield curve.encoded(1, 1), (0, 1)
    yield curve.encoded(curve.P - 1, 1), (0, curve.P - 1)


SPELLINGS = list(spellings())


@pytest.mark.req("G2", "H21")
@pytest.mark.parametrize("public, point", SPELLINGS, ids=[s[0].hex()[:4] + s[0].hex()[-2:] for s in SPELLINGS])
def test_non_canonical_keys_are_refused(public: bytes, point: curve.Point) -> None:
    with pytest.raises(WireError, match="non-canonical"):
        check_public_key(b64(public))
    if curve.mul(8, point) == curve.ZERO:  # for the others nobody knows a valid signature
        data, signature = forged(public, point)
        assert openssl_accepts(public, signature, data)
        assert not identity.verify_strict(public, signature, data)


def test_there_are_spellings_of_large_order_too() -> None:
    assert len(SPELLINGS) > 10
    assert any(curve.mul(8, point) != curve.ZERO for _, point in SPELLINGS)


@pytest.mark.req("G2", "H21")
def test_small_order_r_under_an_honest_key_is_refused() -> None:
    """R = 0, S = k a: it holds, and whoever has the key can so sign without a secret nonce."""
    data, r = b"hello", curve.encode(curve.ZERO)
    s = curve.challenge(r, ALICE.public_bytes, data) * curve.scalar(bytes(32)) % curve.L
    signature = r + s.to_bytes(32, "little")
    assert openssl_accepts(ALICE.public_bytes, signature, data)
    assert not identity.verify_strict(ALICE.public_bytes, signature, data)


@pytest.mark.req("G2")
@pytest.mark.parametrize("n", range(8))
def test_small_order_r_is_refused(n: int) -> None:
    """Each R of small order, under the key aB + T that makes the equation hold."""
    a, r = 12345, curve.encode(TORSION[n])
    for t in range(8):
        public = curve.encode(curve.add(curve.mul(a, curve.B), TORSION[t]))
        for number in range(40):
            data = b"%d" % number
            k = curve.challenge(r, public, data)
            if (n + k * t) % 8 == 0:
                signature = r + (k * a % curve.L).to_bytes(32, "little")
                assert openssl_accepts(public, signature, data)
                assert not identity.verify_strict(public, signature, data)
                return
    raise AssertionError("no key found")


@pytest.mark.req("G2")
@pytest.mark.parametrize("r, _point", SPELLINGS, ids=[s[0].hex()[:4] + s[0].hex()[-2:] for s in SPELLINGS])
def test_non_canonical_r_is_refused(r: bytes, _point: curve.Point) -> None:
    """With R = 0 in another spelling the equation holds; for the rest the encoding alone is refused."""
    k = curve.challenge(r, ALICE.public_bytes, b"hello")
    s = k * curve.scalar(bytes(32)) % curve.L
    assert not identity.verify_strict(ALICE.public_bytes, r + s.to_bytes(32, "little"), b"hello")


@pytest.mark.req("G2", "H21")
def test_a_signature_has_one_form_only() -> None:
    """S + L satisfies the same equation."""
    good = unb64(ALICE.sign(b"hello"), 64)
    s = int.from_bytes(good[32:], "little")
    assert identity.verify_strict(ALICE.public_bytes, good, b"hello")
    for n in range(1, 16):
        if s + n * curve.L < 2**256:
            other = good[:32] + (s + n * curve.L).to_bytes(32, "little")
            assert not identity.verify_strict(ALICE.public_bytes, other, b"hello")


@pytest.mark.req("G2")
@pytest.mark.parametrize("size", [0, 31, 33, 63, 64, 65])
def test_wrong_lengths_are_refused(size: int) -> None:
    good = unb64(ALICE.sign(b"x"), 64)
    if size != 64:
        assert not identity.verify_strict(ALICE.public_bytes, (good + b"\0")[:size], b"x")
    assert not identity.verify_strict((ALICE.public_bytes + bytes(40))[:size], good, b"x")


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=64, max_size=64), st.binary())
def test_verification_never_raises(public: bytes, signature: bytes, data: bytes) -> None:
    assert identity.verify_strict(public, signature, data) is False


# --- text forms ---


@given(st.binary(min_size=32, max_size=32))
def test_base64_round_trip(data: bytes) -> None:
    assert unb64(b64(data), 32) == data


@given(st.text())
def test_unb64_raises_wire_error_only(text: str) -> None:
    with pytest.raises(WireError):
        unb64(text, 32)


@pytest.mark.req("G2")
@pytest.mark.parametrize(
    "change",
    [
        lambda k: k + "=",
        lambda k: k + "\n",
        lambda k: " " + k,
        lambda k: k[:-1],
        lambda k: k + "A",
        lambda k: k[:-1] + chr(ord(k[-1]) + 1),  # a bit behind the last byte
        lambda k: k.replace("_", "/").replace("-", "+"),
        lambda k: k[:5] + "\ud800" + k[6:],
        lambda k: k[:5] + "é" + k[6:],
        lambda k: "",
    ],
)
def test_a_key_has_one_text_form(change: object) -> None:
    key = next(i.public for i in map(Identity.from_seed, (bytes([n]) * 32 for n in range(99))) if "_" in i.public)
    assert check_public_key(key)
    with pytest.raises(WireError):
        check_public_key(change(key))  # type: ignore[operator]


@pytest.mark.req("G2")
def test_a_key_that_is_no_point_is_refused() -> None:
    """Each point and no other passes; about half of all mistyped keys are none."""
    refused = 0
    for y in range(2, 200):
        key = b64(curve.encoded(y, 0))
        if curve.x_of(y, 0) is None:
            refused += 1
            with pytest.raises(WireError, match="a character is wrong"):
                check_public_key(key)
        else:
            check_public_key(key)
    assert 60 < refused < 140


@pytest.mark.req("G8")
def test_match_keys() -> None:
    a, b = "AAAAAAAA" + "b" * 35, "AAAAAAAA" + "c" * 35
    assert match_keys("AAAAAAAA", [a, b]) == [a, b]
    assert match_keys(a, [a, b]) == [a]
    assert match_keys("AAAAAAAA", [a, a]) == [a]
    assert match_keys("AAAAAAA", [a, b]) == match_keys("", [a, b]) == match_keys("AAAAAAAAb", [a, b]) == []


# --- key files ---


@pytest.mark.req("B1", "M29")
def test_write_then_load(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "id.key"
    before = os.umask(0)
    try:
        write_key(str(path), ALICE)
    finally:
        os.umask(before)
    assert load_key(str(path)).public == ALICE.public
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700
    assert [p.name for p in path.parent.iterdir()] == ["id.key"]


@pytest.mark.req("B1")
def test_an_existing_key_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "id.key"
    write_key(str(path), ALICE)
    before = path.read_bytes()
    with pytest.raises(StateError, match=r"exists and is kept.*--force"):
        write_key(str(path), BOB)
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1
    write_key(str(path), BOB, force=True)
    assert load_key(str(path)).public == BOB.public and len(list(tmp_path.iterdir())) == 1


@pytest.mark.req("B1")
@pytest.mark.parametrize("force", [False, True])
def test_a_crash_leaves_the_old_key_or_the_new_one(tmp_path: Path, force: bool) -> None:
    setup = "from interlink.trust.identity import Identity, write_key"
    act = f"write_key(root + '/keys/id.key', Identity.from_seed(bytes([1]) * 32), force={force})"

    def prepare(root: str) -> None:
        if force:
            write_key(root + "/keys/id.key", ALICE)

    for crash in crashes(tmp_path, act, prepare=prepare, setup=setup, how=("before", "after", "torn", "fail")):
        path = Path(crash.root) / "keys" / "id.key"
        found = load_key(str(path)).public if path.exists() else None
        assert found in (ALICE.public if force else None, BOB.public), crash
        if crash.how == "done":
            assert found == BOB.public and not unsynced(crash.steps)
        if crash.how == "fail":
            assert crash.error is not None and crash.error.startswith("StateError"), crash
            assert crash.step is not None
            if crash.step.name != "unlink":
                assert not list(path.parent.glob(".*")), crash


@pytest.mark.req("B1", "M29")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o610, 0o601, 0o602])
def test_a_key_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "id.key"
    write_key(str(path), ALICE)
    path.chmod(mode)
    with pytest.raises(SetupError, match=f"mode {mode:04o}.*chmod 600"):
        load_key(str(path))
    assert stat.S_IMODE(path.stat().st_mode) == mode  # refused, not mended in silence
    path.chmod(0o400)
    assert load_key(str(path)).public == ALICE.public


@pytest.mark.req("B1", "M29")
@pytest.mark.skipif(os.name == "nt" or os.getuid() != 0, reason="only root can give a file away")
def test_a_key_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "id.key"
    write_key(str(path), ALICE)
    os.chown(path, 12345, -1)
    with pytest.raises(SetupError, match="belongs to user 12345"):
        load_key(str(path))


@pytest.mark.req("B1")
def test_no_key_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=f"interlink-keygen --out {tmp_path}/id.key"):
        load_key(f"{tmp_path}/id.key")


@pytest.mark.req("B1")
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"nonsense",
        b64(bytes(31)).encode(),
        b64(bytes(33)).encode(),
        b64(bytes(64)).encode(),
        b"\xff\xfe",
        b64(bytes(32)).encode() + b"\nsecond line\n",
        b"A" * 5000,
    ],
)
def test_what_is_no_key_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "id.key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(SetupError, match="is not a key file") as caught:
        load_key(str(path))
    assert len(content) < 3 or content.decode("latin-1").strip() not in str(caught.value)  # a secret, perhaps


@pytest.mark.req("B1")
@pytest.mark.parametrize("kind", ["directory", "fifo"])
def test_a_key_that_is_no_file_does_not_hang(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "id.key"
    path.mkdir(mode=0o700) if kind == "directory" else os.mkfifo(path, 0o600)
    with pytest.raises(SetupError, match="not a regular file"):
        load_key(str(path))


@pytest.mark.req("B1")
@pytest.mark.parametrize("ending", ["", "\n", "\r\n", "=\n"])
def test_line_ends_of_a_key_file(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "id.key"
    path.write_bytes((ALICE.seed_text() + ending).encode())
    path.chmod(0o600)
    assert load_key(str(path)).public == ALICE.public


@pytest.mark.req("B1")
def test_where_no_key_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StateError, match="cannot write the key"):
        write_key(str(tmp_path / "file" / "id.key"), ALICE)
    with pytest.raises(StateError, match="cannot write the key"):
        write_key(str(tmp_path / "folder"), ALICE, force=True)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_new_identities_differ() -> None:
    assert Identity.generate().public != Identity.generate().public
