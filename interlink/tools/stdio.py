"""The standard streams as lines of bytes, and the one way out of the process. No SDK in here (H17, H18).

Three daemon threads, none of which the end of the process waits for:
  reader   reads file 0, splits at byte 0x0A alone, keeps no line over the cap
  writer   writes whole lines to file 1, one after the other
  ending   wakes on the first of: a signal, end of stdin, a broken stdout; tells the event loop to clean up,
           and ends the process itself when that takes longer than the grace time
While they run, file 0 is the null device and file 1 is stderr, so that no print and no child touches the wire.
"""

import asyncio
import contextlib
import os
import select
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from interlink import log
from interlink.tools.frames import HEAD_BYTES, TAIL_BYTES

_CHUNK = 1 << 16
_LOG_WAIT_S = 0.2
STDIN_CLOSED = "stdin closed"
STDOUT_CLOSED = "stdout closed"
_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)
)


def claim() -> tuple[int | None, int | None]:
    """Take files 0 and 1 for the wire and put the null device and stderr in their places.

    Answers the two new descriptors; None for one that was closed from the start.
    """
    # Python says by None that a file was closed at its start; by now that number may be anybody's.
    from_host = None if sys.__stdin__ is None else _move(0, _null())
    to_host = None if sys.__stdout__ is None else _move(1, _null() if sys.__stderr__ is None else os.dup(2))
    return from_host, to_host


def _null() -> int:
    return os.open(os.devnull, os.O_RDWR)


def _move(fd: int, stand_in: int) -> int:
    wire = _dup_above_std(fd)
    os.dup2(stand_in, fd)
    os.close(stand_in)
    return wire


def _dup_above_std(fd: int) -> int:
    if os.name == "posix":
        import fcntl

        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    return os.dup(fd)


def quiet_signals() -> None:
    """From here until `Ending.catch_signals`: SIGINT and SIGTERM end the process at once with 0, no traceback.

    For the first line of a program that is about to import for most of a second.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(0))


class Ending:
    """Decides that the process ends, and that it does end within `grace_s` seconds (H18).

    `on_begin(why)` is called once, in the event loop. When the process is still there `grace_s` later it ends
    with exit code 0, whatever hangs: a full pipe, a thread, a lock, a clean-up.
    """

    def __init__(self, grace_s: float, on_begin: Callable[[str], None]) -> None:
        self._grace_s = grace_s
        self._on_begin = on_begin
        self._loop = asyncio.get_running_loop()
        self._why = ""
        # Bytes through a socket: all that a signal handler may touch, and it works while the loop is blocked.
        self._bell, self._rope = socket.socketpair()
        self._rope.setblocking(False)
        threading.Thread(target=self._run, name="ending", daemon=True).start()

    def begin(self, why: str) -> None:
        """Begin the end; from any thread. Only the first call counts."""
        self._why = self._why or why
        with contextlib.suppress(BlockingIOError):  # full of earlier calls
            self._rope.send(b"\0")

    def catch_signals(self) -> None:
        """SIGINT, SIGTERM and SIGHUP begin the end. Main thread only; nobody else may use set_wakeup_fd."""
        signal.set_wakeup_fd(self._rope.fileno(), warn_on_full_buffer=False)
        for number in _SIGNALS:
            if number != getattr(signal, "SIGHUP", None) or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, _woken)

    def ignore_signals(self) -> None:
        """For the last steps: a second signal must not turn an orderly end into a traceback."""
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def _run(self) -> None:
        code = 255
        while code != 0 and code not in _SIGNALS:
            code = self._bell.recv(1)[0]
        why = self._why if code == 0 else signal.Signals(code).name
        with contextlib.suppress(RuntimeError):  # the loop is closed: it is over already
            self._loop.call_soon_threadsafe(self._on_begin, why)
        time.sleep(self._grace_s)
        # stderr may be a full pipe as well, so the last line gets a moment and no more.
        fields = {"why": why, "after_s": self._grace_s}
        last = threading.Thread(target=log.event, args=("shutdown_forced",), kwargs=fields, daemon=True)
        last.start()
        last.join(_LOG_WAIT_S)
        os._exit(0)


def _woken(_number: int, _frame: object) -> None:
    """A handler must exist for the byte to be sent; the rest is done by `Ending`."""


class Line(NamedTuple):
    """One line without its newline. `size` in bytes; of an overlong one `head` and `tail` are its ends."""

    head: bytes
    size: int
    tail: bytes | None = None  # None: `head` is the whole line

    @property
    def held(self) -> int:
        """Bytes that it takes in memory, and one so that blank lines count."""
        return len(self.head) + len(self.tail or b"") + 1


class Splitter:
    """Chunks in, lines out; holds at most one line of `max_bytes` (H17)."""

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._kept = bytearray()
        self._size = 0
        self._tail: bytes | None = None

    def feed(self, chunk: bytes) -> list[Line]:
        """The lines that this chunk completes."""
        *ends, rest = chunk.split(b"\n")
        lines = []
        for part in ends:
            self._add(part)
            lines.append(self._take())
        self._add(rest)
        return lines

    def last(self) -> list[Line]:
        """What stood after the last newline, at the end of the stream."""
        return [self._take()] if self._size else []

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._tail is not None:
            self._tail = (self._tail + part)[-TAIL_BYTES:]
        elif self._size <= self._max:
            self._kept += part
        else:
            self._kept += part  # at most a chunk too many, for this one moment
            self._tail = bytes(self._kept[-TAIL_BYTES:])
            self._kept = self._kept[:HEAD_BYTES]

    def _take(self) -> Line:
        line = Line(bytes(self._kept), self._size, self._tail)
        self._kept, self._size, self._tail = bytearray(), 0, None
        return line


class LineReader:
    """Lines of a descriptor, for one task. `fd` None: ended from the start."""

    def __init__(self, fd: int | None, max_bytes: int, ending: Ending) -> None:
        self._fd = fd
        self._splitter = Splitter(max_bytes)
        self._ending = ending
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[Line | None] = asyncio.Queue()
        self._room = threading.Condition()
        self._free = 2 * max_bytes  # bytes that may lie in the queue; then the pipe fills and the host waits
        self._stopped = False
        threading.Thread(target=self._run, name="stdin", daemon=True).start()

    async def next(self) -> Line | None:
        """The next line; None at the end of the stream or after `stop`. One task at a time."""
        line = None if self._stopped else await self._lines.get()
        if line is None or self._stopped:
            self._stopped = True
            return None
        with self._room:
            self._free += line.held
            self._room.notify()
        return line

    def stop(self) -> None:
        """No further line is given out."""
        self._stopped = True
        self._lines.put_nowait(None)

    def _run(self) -> None:
        try:
            self._read()
        except OSError as exc:
            log.event("stdin_failed", error=exc)
        self._ending.begin(STDIN_CLOSED)
        self._put(None)

    def _read(self) -> None:
        while self._fd is not None:
            try:
                chunk = os.read(self._fd, _CHUNK)
            except BlockingIOError:  # the host set the flag on a stream that we share
                select.select([self._fd], [], [])
                continue
            for line in self._splitter.feed(chunk) if chunk else self._splitter.last():
                with self._room:
                    self._room.wait_for(lambda: self._free > 0)
                    self._free -= line.held
                self._put(line)
            if not chunk:
                return

    def _put(self, line: Line | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)


class _Out:
    """A line on its way out. `taken`: it has begun; `dropped`: it never shall."""

    __slots__ = ("data", "done", "dropped", "taken")

    def __init__(self, data: bytes, done: "asyncio.Future[bool] | None") -> None:
        self.data = data
        self.done = done
        self.dropped = False
        self.taken = False


class LineWriter:
    """Whole lines to a descriptor, in the order of the calls. `fd` None: broken from the start."""

    def __init__(self, fd: int | None, ending: Ending) -> None:
        self._fd = fd
        self._ending = ending
        self._loop = asyncio.get_running_loop()
        self._lines: deque[_Out] = deque()
        self._more = threading.Condition()
        self._waiting: set[asyncio.Future[bool]] = set()
        self._released = False
        self._broken: OSError | None = None
        threading.Thread(target=self._run, name="stdout", daemon=True).start()

    def post(self, data: bytes) -> None:
        """Queue one line (newline included) and do not wait."""
        self._queue(_Out(data, None))

    async def write(self, data: bytes, *, keep: bool = True) -> bool:
        """Queue one line and wait: True once the system took all of it, False when the end begins before.

        Cancelled while it waits: a line that has begun is finished; one that has not is still sent when
        `keep`, else never. OSError: nobody reads the other end any more.
        """
        if self._broken is not None:
            raise self._broken
        if self._released:
            self.post(data)
            return False
        done: asyncio.Future[bool] = self._loop.create_future()
        out = _Out(data, done)
        self._waiting.add(done)
        self._queue(out)
        try:
            return await done
        finally:
            self._waiting.discard(done)
            if not keep:
                with self._more:
                    out.dropped = not out.taken

    def release(self) -> None:
        """The end begins: whoever waits for a line goes on; lines are still written while there is time."""
        self._released = True
        for done in self._waiting:
            if not done.done():
                done.set_result(False)

    async def drain(self, timeout_s: float) -> None:
        """Returns when all lines are out, or after `timeout_s`."""
        done: asyncio.Future[bool] = self._loop.create_future()
        self._queue(_Out(b"", done))
        await asyncio.wait({done}, timeout=timeout_s)
        if done.done():
            done.exception()  # a broken pipe began the end: nothing more to say

    def _queue(self, out: _Out) -> None:
        with self._more:
            self._lines.append(out)
            self._more.notify()

    def _run(self) -> None:
        while True:
            with self._more:
                self._more.wait_for(lambda: bool(self._lines))
                out = self._lines.popleft()
                if out.dropped:
                    continue
                out.taken = True
            error: OSError | None = self._broken
            if error is None:
                try:
                    self._write(out.data)
                except OSError as exc:
                    error = self._broken = exc
                    self._ending.begin(STDOUT_CLOSED)
            if out.done is not None:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(_settle, out.done, error)

    def _write(self, data: bytes) -> None:
        if self._fd is None:
            raise BrokenPipeError("stdout is closed")
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:
                select.select([], [self._fd], [])


def _settle(done: "asyncio.Future[bool]", error: OSError | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(True)
    else:
        done.set_exception(error)
