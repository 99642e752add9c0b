"""The relay's process: socket, signals, start and orderly end around `server.Relay`."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import uvicorn

from interlink import log
from interlink.errors import InterlinkError, SetupError, UsageError, WireError
from interlink.relay.metrics import Metrics
from interlink.relay.protocol import BoundedHttp
from interlink.relay.queue import Queue
from interlink.relay.roster import Roster
from interlink.relay.server import Relay
from interlink.relay.waiters import Waiters
from interlink.settings import MIB, Settings
from interlink.state import files
from interlink.state.locks import Lock

BACKLOG = 2048


class Options(NamedTuple):
    """What the command line decided. `db` None: in memory."""

    host: str
    port: int
    db: str | None
    token: str | None


def run(options: Options, settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Raises InterlinkError when it cannot start."""
    factory = None
    if sys.platform != "win32":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_serve(options, settings))


async def _serve(options: Options, settings: Settings) -> None:
    asyncio.get_running_loop().set_exception_handler(_report)
    with contextlib.ExitStack() as stack:
        if options.db is not None:
            lock = Lock(options.db + ".lock", timeout_s=settings.shutdown_grace_s)
            stack.enter_context(_only_relay(lock))
        listener = stack.enter_context(listen(options.host, options.port))
        metrics = Metrics()
        waiters = Waiters(settings.waiters_max)
        queue = Queue(options.db, settings, waiters.wake, metrics.commit)
        try:
            roster = Roster(settings)
            _load_roster(options.db, roster)
            relay = Relay(queue, waiters, roster, metrics, settings, options.token)
            server = _Server(_config(relay, settings), waiters)
            _announce_start(options, listener, queue)
            saving = asyncio.create_task(_keep_roster(options.db, roster, settings.relay_roster_save_s))
            gc.collect()
            gc.freeze()
            await server.serve(sockets=[listener])
            saving.cancel()
        finally:
            await queue.close()
        _save_roster(options.db, roster)
        log.event("relay_stopped")


def _config(relay: Relay, settings: Settings) -> uvicorn.Config:
    _more_files()
    logger = logging.getLogger("uvicorn.error")
    logger.handlers, logger.propagate = [_Faults(logging.ERROR)], False
    return uvicorn.Config(
        relay.app(),
        http=BoundedHttp,
        ws="none",
        lifespan="off",
        loop="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=True,  # clients tell by it how far the clocks are apart
        timeout_keep_alive=int(settings.relay_keep_alive_s),
        timeout_graceful_shutdown=max(1, int(settings.shutdown_grace_s)),
    )


class _Faults(logging.Handler):
    """uvicorn's errors as events: a defect in an endpoint is a fault, the rest is said as it is.

    What clients do wrong is below this handler's level: it is answered and counted, not logged.
    """

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            log.event("relay_http", what=record.getMessage().strip())
        elif not isinstance(error, asyncio.CancelledError):  # cut off at the end of the time for stopping
            log.event("relay_fault", what=record.getMessage().strip(), error=repr(error))


class _Server(uvicorn.Server):
    """uvicorn with two differences: long polls are answered when it stops, and a signal ends it with exit 0."""

    def __init__(self, config: uvicorn.Config, waiters: Waiters) -> None:
        super().__init__(config)
        self._waiters = waiters

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.handle_exit)
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._waiters.stop()
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket. Raises UsageError for a name that is no address, SetupError where it is taken."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as exc:
        raise UsageError(f"{host!r} is not an address of this machine: use for example 127.0.0.1:9440") from exc
    sock = socket.socket(family, kind, proto)
    try:
        if os.name == "posix":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # clients whose machine is gone
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as exc:
        sock.close()
        reason = os.strerror(exc.errno) if exc.errno else str(exc)
        raise SetupError(
            f"cannot listen on {show_address(address)}: {reason}; stop the other program or choose another --addr"
        ) from exc
    return sock


def show_address(address: Any) -> str:
    """`host:port`, an IPv6 host in brackets."""
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _announce_start(options: Options, listener: socket.socket, queue: Queue) -> None:
    address = listener.getsockname()
    stats = queue.stats()
    if options.db is None:
        log.event(
            "relay_memory_only", warning="nothing is kept on disk: a restart loses all messages; give a --db"
        )
    if not is_loopback(address[0]):
        log.event(
            "relay_open_address",
            addr=show_address(address),
            warning="other machines can reach this relay; traffic is not encrypted"
            if options.token
            else "ANYONE who can reach this address can read what waits, fill the queues and forge presence: "
            "use --token-file, and an encrypted network",
        )
    # The last line of the start: who waits for it may connect now.
    log.event(
        "relay_listening",
        addr=show_address(address),
        db=options.db or ":memory:",
        token="required" if options.token else "none",
        queued=stats.messages,
        queued_bytes=stats.bytes,
    )


def is_loopback(host: str) -> bool:
    """True for an address that only this machine can reach."""
    return host == "::1" or host.startswith("127.") or host.startswith("::ffff:127.")


@contextlib.contextmanager
def _only_relay(lock: Lock) -> Iterator[None]:
    try:
        lock.acquire()
    except InterlinkError as exc:
        raise SetupError(f"another relay uses this queue ({exc}): stop it, or choose another --db") from exc
    try:
        yield
    finally:
        lock.release()


def _report(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    log.event("relay_fault", error=repr(context.get("exception")), what=context.get("message"))


def _more_files() -> None:
    """A connection is a file: use what the system allows."""
    if os.name == "posix":
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(ValueError, OSError):  # some systems promise more than they give
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# The roster's copy on disk


def _roster_path(db: str) -> str:
    return db + ".roster"


def _load_roster(db: str | None, roster: Roster) -> None:
    if db is None:
        return
    try:
        data = files.read_bytes(_roster_path(db), limit=256 * MIB)
        if data:
            roster.load(data, time.time_ns() // 1_000_000)
    except (InterlinkError, WireError) as exc:
        log.event(
            "relay_roster_unreadable", error=exc, warning="starts empty; live sessions announce themselves again"
        )


def _save_roster(db: str | None, roster: Roster) -> None:
    if db is None or not roster.changed:
        return
    try:
        files.atomic_write(_roster_path(db), roster.dump(time.time_ns() // 1_000_000), durable=False)
    except InterlinkError as exc:
        log.event("relay_roster_not_saved", error=exc)


async def _keep_roster(db: str | None, roster: Roster, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        _save_roster(db, roster)
