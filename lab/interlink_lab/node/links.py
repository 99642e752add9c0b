"""A TCP proxy of the lab's own, for faults of the network that need no rights: one link a host and relay."""

import asyncio
import socket
import struct
from collections.abc import Callable

MODES = ("up", "refused", "reset", "blackhole", "drop-up", "drop-down", "slow")
CHUNK = 64 * 1024


class _Link:
    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self.target = (host, int(port))
        self.mode = "up"
        self.delay_s = 0.0
        self.rate = 0.0  # bytes a second, 0: unlimited
        self.told = False  # whether the present mode has been seen to take effect
        self.writers: set[asyncio.StreamWriter] = set()
        self.server: asyncio.Server | None = None
        self.port = 0


class Links:
    """Links by name. `up` carries; `refused` takes no connection; `reset` breaks those there are and each new one;
    `blackhole` keeps everything and says nothing; `drop-up` and `drop-down` do so in one direction; `slow` delays
    each piece by `delay_s` and carries at most `rate` bytes a second.
    """

    def __init__(self, emit: Callable[..., None]) -> None:
        self._emit = emit
        self._links: dict[str, _Link] = {}

    async def open(self, name: str, target: str) -> int:
        """Start a link; its port on loopback, kept until it is closed."""
        link = self._links[name] = _Link(target)
        await self._listen(name, link)
        return link.port

    async def _listen(self, name: str, link: _Link) -> None:
        link.server = await asyncio.start_server(
            lambda r, w: self._serve(name, link, r, w), "127.0.0.1", link.port, limit=CHUNK
        )
        link.port = link.server.sockets[0].getsockname()[1]

    async def set(self, name: str, mode: str, delay_s: float = 0.05, rate: float = 0.0) -> None:
        """ValueError for an unknown mode."""
        if mode not in MODES:
            raise ValueError(f"no link mode {mode!r}: one of {', '.join(MODES)}")
        link = self._links[name]
        was, link.mode = link.mode, mode
        link.told = False
        link.delay_s, link.rate = delay_s, rate
        if mode in ("refused", "reset") or was in ("blackhole", "drop-up", "drop-down"):
            # What a hole swallowed would be missing in the stream: such connections end.
            for writer in list(link.writers):
                self._hit(name, link)
                _reset(writer)
        if mode == "refused" and link.server is not None:
            link.server.close()
            link.server = None
        elif mode != "refused" and link.server is None:
            await self._listen(name, link)

    def close(self) -> None:
        for link in self._links.values():
            if link.server is not None:
                link.server.close()
            for writer in list(link.writers):
                writer.close()

    async def _serve(
        self, name: str, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if link.mode == "reset":
            self._hit(name, link)
            _reset(writer)
            return
        try:
            there_reader, there = await asyncio.open_connection(*link.target)
        except OSError as exc:
            self._emit("link", "link.unreachable", link=name, error=str(exc)[:200])
            _reset(writer)
            return
        link.writers |= {writer, there}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._carry(name, link, reader, there, "drop-up"))
                group.create_task(self._carry(name, link, there_reader, writer, "drop-down"))
        except* (OSError, asyncio.IncompleteReadError):
            pass  # one side broke off: both end
        finally:
            link.writers -= {writer, there}
            writer.close()
            there.close()

    def _hit(self, name: str, link: _Link) -> None:
        """Report once a mode that it took effect on something."""
        if not link.told and link.mode != "up":
            link.told = True
            self._emit("link", "link.hit", link=name, mode=link.mode)

    async def _carry(
        self, name: str, link: _Link, source: asyncio.StreamReader, sink: asyncio.StreamWriter, dropped: str
    ) -> None:
        while data := await source.read(CHUNK):
            if link.mode in ("blackhole", dropped):
                self._hit(name, link)
                continue
            if link.mode == "slow":
                self._hit(name, link)
                await asyncio.sleep(link.delay_s + (len(data) / link.rate if link.rate else 0.0))
            sink.write(data)
            await sink.drain()
        raise ConnectionResetError("end of stream")


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
