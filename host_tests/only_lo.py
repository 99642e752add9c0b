"""Run a command where the loopback interface is alone: `unshare -n python -m host_tests.only_lo COMMAND...`.

Brings `lo` up, looks that there is no other interface and no way out, and becomes the command.
"""

import errno
import fcntl
import os
import socket
import struct
import sys

SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
OUTSIDE = ("192.0.2.1", 9)  # an address for documentation; without a route it is not tried at all


def main() -> None:
    names = [name for _number, name in socket.if_nameindex()]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        ask = struct.pack("16sh22x", b"lo", 0)
        flags = struct.unpack("16sh22x", fcntl.ioctl(sock, SIOCGIFFLAGS, ask))[1]
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", flags | IFF_UP))
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.settimeout(5)
        code = sock.connect_ex(OUTSIDE)
    if code != errno.ENETUNREACH or any(has_address(name) for name in names if name != "lo"):
        sys.exit(
            f"only_lo: there is a way out: interfaces {names}, connect gave {errno.errorcode.get(code, code)}"
        )
    os.execvp(sys.argv[1], sys.argv[1:])


def has_address(name: str) -> bool:
    """Kernels put tunnels without an address into each new namespace: those are no way out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            fcntl.ioctl(sock, 0x8915, struct.pack("256s", name.encode()))
        except OSError:
            return False
    return True


if __name__ == "__main__":
    main()
