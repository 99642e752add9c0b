"""The Ed25519 group in plain integers, to build signatures that no signer makes. Slow, for tests alone.

Points are affine (x, y) on -x^2 + y^2 = 1 + d x^2 y^2 over the field of p = 2^255 - 19 (RFC 8032, 5.1).
"""

import hashlib

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
Point = tuple[int, int]
ZERO: Point = (0, 1)


def x_of(y: int, odd: int) -> int | None:
    """The x with this low bit, None where y belongs to no point."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * pow(2, (P - 1) // 4, P) % P
    if x * x % P != square:
        return None
    return P - x if x & 1 != odd and x else x


def _base() -> Point:
    y = 4 * pow(5, -1, P) % P
    x = x_of(y, 0)
    assert x is not None
    return x, y


def add(a: Point, b: Point) -> Point:
    (x1, y1), (x2, y2) = a, b
    t = D * x1 * x2 * y1 * y2 % P
    x = (x1 * y2 + x2 * y1) * pow(1 + t, -1, P)
    y = (y1 * y2 + x1 * x2) * pow(1 - t, -1, P)
    return x % P, y % P


def mul(n: int, point: Point) -> Point:
    out = ZERO
    while n:
        if n & 1:
            out = add(out, point)
        point = add(point, point)
        n >>= 1
    return out


B = _base()


def encode(point: Point) -> bytes:
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


def encoded(y: int, sign: int) -> bytes:
    """Any y below 2^255 with any sign bit: also what no point encodes to."""
    return (y | sign << 255).to_bytes(32, "little")


def torsion() -> list[Point]:
    """The eight points whose order divides 8, the generator's multiples in turn (0 first)."""
    y = 2
    while True:
        x = x_of(y, 0)
        if x is not None:
            point = mul(L, (x, y))
            if mul(4, point) != ZERO:
                return [mul(n, point) for n in range(8)]
        y += 1


def challenge(r: bytes, a: bytes, data: bytes) -> int:
    """The k of a signature: SHA-512(R, A, message) mod L."""
    return int.from_bytes(hashlib.sha512(r + a + data).digest(), "little") % L


def scalar(seed: bytes) -> int:
    """The secret scalar of a seed."""
    h = bytearray(hashlib.sha512(seed).digest()[:32])
    h[0] &= 248
    h[31] = h[31] & 127 | 64
    return int.from_bytes(h, "little")
