"""Load for a relay: many keep-alive connections that send, or poll and acknowledge, for a bounded time.

Plain asyncio streams and hand-made HTTP, so that the generator costs less than what it measures. It shares
the machine with the relay: its own work is part of every number.

    python -m interlink_lab.load --addr 127.0.0.1:9440 --senders 64 --seconds 3
"""

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import NoReturn
from urllib.parse import quote

EXIT_USAGE = 64


@dataclass
class Result:
    """Outcome of one run. `latencies_ms`: one a request that was answered as wished."""

    seconds: float
    latencies_ms: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    broken: int = 0  # connections that ended early

    @property
    def rate(self) -> float:
        """Requests a second that were answered as wished."""
        return len(self.latencies_ms) / self.seconds if self.seconds else 0.0

    def percentile(self, share: float) -> float:
        """Latency in ms below which `share` (0 to 1) of the requests stayed; 0 where there were none."""
        if not self.latencies_ms:
            return 0.0
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def line(self) -> str:
        """One line for a person."""
        answered = " ".join(f"{status}:{count}" for status, count in sorted(self.statuses.items()))
        return (
            f"{self.rate:.0f}/s p50={self.percentile(0.5):.2f} p99={self.percentile(0.99):.2f} "
            f"max={self.percentile(1):.2f} ms answers {answered} broken={self.broken}"
        )


class Connection:
    """One keep-alive connection that speaks just enough HTTP."""

    def __init__(self, host: str, port: int, token: str | None = None) -> None:
        self._host = host
        self._port = port
        self._auth = f"Authorization: Bearer {token}\r\n" if token else ""
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        """Connect. Raises OSError."""
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port, limit=1 << 24)

    def post(self, path: str, body: bytes) -> bytes:
        """The bytes of a POST, to be made once and sent often."""
        head = f"POST {path} HTTP/1.1\r\nHost: relay\r\n{self._auth}Content-Type: application/json\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def get(self, path: str) -> bytes:
        """The bytes of a GET."""
        return f"GET {path} HTTP/1.1\r\nHost: relay\r\n{self._auth}\r\n".encode()

    async def call(self, request: bytes) -> tuple[int, bytes]:
        """Send a request, return (status, body). Raises OSError or asyncio.IncompleteReadError."""
        assert self._reader is not None and self._writer is not None, "open() comes first"
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        lowered = head.lower()
        at = lowered.find(b"content-length:")
        length = int(lowered[at + 15 : lowered.find(b"\r", at)]) if at >= 0 else 0
        body = await self._reader.readexactly(length) if length else b""
        return int(head[9:12]), body

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def message(route: str, size: int) -> bytes:
    """The body of a send whose payload has about `size` bytes."""
    return json.dumps({"to": route, "payload": {"text": "x" * max(0, size - 11)}}).encode()


async def send(
    host: str,
    port: int,
    *,
    senders: int,
    seconds: float,
    size: int = 512,
    routes: int = 0,
    token: str | None = None,
) -> Result:
    """Senders that each send, one request after the other, for `seconds`. `routes` 0: a route a sender."""
    result = Result(0)
    began = time.perf_counter()
    end = began + seconds

    async def sender(number: int) -> None:
        connection = Connection(host, port, token)
        try:
            await connection.open()
            request = connection.post("/send", message(f"load#{number % routes if routes else number}", size))
            while (start := time.perf_counter()) < end:
                status, _ = await connection.call(request)
                result.statuses[status] += 1
                if status == 202:
                    result.latencies_ms.append((time.perf_counter() - start) * 1000)
        except (OSError, asyncio.IncompleteReadError):
            result.broken += 1
        finally:
            connection.close()

    await asyncio.gather(*(sender(number) for number in range(senders)))
    result.seconds = time.perf_counter() - began
    return result


async def drain(host: str, port: int, *, routes: int, batch: int = 256, token: str | None = None) -> Result:
    """Receive and acknowledge all that waits for `load#0` and on. A latency: one poll with its ack."""
    result = Result(0)
    began = time.perf_counter()

    async def receiver(number: int) -> None:
        connection = Connection(host, port, token)
        route = f"load#{number}"
        poll = connection.get(f"/recv?me={quote(route, safe='')}&timeout_ms=0&max={batch}")
        try:
            await connection.open()
            while True:
                start = time.perf_counter()
                _, body = await connection.call(poll)
                answer = json.loads(body)
                if answer["status"] == "timeout":
                    return
                acks = [item["ack"] for item in answer["messages"]]
                status, _ = await connection.call(
                    connection.post("/ack", json.dumps({"me": route, "acks": acks}).encode())
                )
                result.statuses[status] += len(acks)
                result.latencies_ms.append((time.perf_counter() - start) * 1000)
        except (OSError, asyncio.IncompleteReadError):
            result.broken += 1
        finally:
            connection.close()

    await asyncio.gather(*(receiver(number) for number in range(routes)))
    result.seconds = time.perf_counter() - began
    return result


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"{self.prog}: {message}\n")


def main() -> None:
    """`python -m interlink_lab.load`: one run of senders, then, with --drain, receive it all."""
    parser = _Parser(description=__doc__)
    parser.add_argument("--addr", default="127.0.0.1:9440")
    parser.add_argument("--senders", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--drain", action="store_true")
    args = parser.parse_args()
    host, _, port = args.addr.rpartition(":")

    async def both() -> None:
        sent = await send(host, int(port), senders=args.senders, seconds=args.seconds, size=args.size)
        sys.stdout.write(f"send  {args.senders} senders: {sent.line()}\n")
        if args.drain:
            drained = await drain(host, int(port), routes=args.senders)
            total = sum(drained.statuses.values())
            sys.stdout.write(f"drain {total} messages in {drained.seconds:.2f} s: {drained.line()}\n")

    if sys.platform != "win32":
        import uvloop

        uvloop.run(both())
    else:
        asyncio.run(both())


if __name__ == "__main__":
    main()
