"""Which server serves which host process, so that hooks and server agree on the session (H4, C5).

A host may change the id that it gives its hooks (`/clear`), or give its server another one (`--continue`).
So each server registers under its host process, in `host/<host process>/<server pid>.json`, and holds a lock
beside that file while it lives; a hook looks there first. File names carry boot id, pid and start time, so
that a reused pid is another host. Whoever only looks takes no exclusive lock and removes nothing; the next
server that registers cleans up.

A launcher between host and server (a shell, uv) is seen through: the server registers under it and under
its parent too.

Light on purpose: the listener imports this file.
"""

import os
from collections.abc import Callable, Mapping

from interlink.errors import InterlinkError, SetupError, UsageError
from interlink.state import files
from interlink.state.flock import Flock
from interlink.state.paths import Layout, check_session
from interlink.state.process import UNKNOWN, Process, command_line, parent_of

FALLBACK_SESSION = "main"
LAUNCHERS = frozenset({"sh", "bash", "dash", "zsh", "ash", "env", "uv", "uvx"})
_MAX_LAUNCHERS = 4


class Resolved:
    """The session that a hook works for. `source`: option, environment, server, payload or fallback."""

    __slots__ = ("session", "source")

    def __init__(self, session: str, source: str) -> None:
        self.session = session
        self.source = source

    @property
    def pinned(self) -> bool:
        """True when a person chose it: nothing that a server registers later changes it."""
        return self.source in ("option", "environment")


class Server:
    """One registered server: its session, identity key and process."""

    __slots__ = ("identity", "process", "session")

    def __init__(self, session: str, identity: str, process: Process) -> None:
        self.session = session
        self.identity = identity
        self.process = process


class Registration:
    """A server's entries. Keep it for the server's life; `release` removes them."""

    def __init__(self, layout: Layout, held: list[tuple[str, Flock]]) -> None:
        self._layout = layout
        self._held = held

    def release(self) -> None:
        """Remove the entries. What a killed server leaves is removed by the next one. Raises StateError."""
        if not self._held:
            return
        with _changing(self._layout):
            for path, lock in self._held:
                _remove_entry(path, lock)
                _remove_empty(os.path.dirname(path))
        self._held = []


def channel_mode(environ: Mapping[str, str]) -> bool:
    """True where notices go through the host's channel: the listener then has nothing to do (C10, N1)."""
    return environ.get("INTERLINK_CHANNELS", "").strip().lower() in ("1", "true")


def codex_mode(environ: Mapping[str, str]) -> bool:
    """True where the host is Codex."""
    return environ.get("INTERLINK_HOST", "").strip().lower() == "codex"


def hook_host_pid(environ: Mapping[str, str]) -> int | None:
    """The host's pid as it tells its hooks (CLAUDE_PID); None where it does not."""
    text = environ.get("CLAUDE_PID", "").strip()
    return int(text) if text.isascii() and text.isdigit() and 0 < int(text[:19]) < 1 << 31 else None


def register(layout: Layout, host_pid: int, session: str, identity: str) -> Registration:
    """Register this process as a server of the host process (its parent). Raises StateError.

    Entries of dead servers are removed first. Where the host has ended already there is nothing to register.
    """
    check_session(session)
    files.ensure_root(layout.root)
    files.ensure_dir(layout.host_dir(), layout.root)
    held: list[tuple[str, Flock]] = []
    with _changing(layout):
        _clean(layout)
        try:
            for host in host_chain(host_pid):
                held.append(_enter(layout, host, session, identity))
        except BaseException:
            for path, lock in held:
                _remove_entry(path, lock)
            raise
    return Registration(layout, held)


def servers_of(layout: Layout, host: Process | None) -> list[Server]:
    """The live servers of a host process. Raises StateError where the directory cannot be read."""
    return [] if host is None else _live(_folder(layout, host))


def hosts(layout: Layout) -> list[tuple[Process, list[Server]]]:
    """Every host process with live servers, for `doctor`."""
    found = []
    for name in _list(layout.host_dir()):
        host = Process.parse(name)
        servers = _live(os.path.join(layout.host_dir(), name)) if host else []
        if host and servers:
            found.append((host, servers))
    return found


def session_of(layout: Layout, host: Process | None) -> str | None:
    """The session that all servers of a host serve; None for no server, or for servers of two sessions."""
    sessions = {server.session for server in servers_of(layout, host)}
    return sessions.pop() if len(sessions) == 1 else None


def resolve(
    layout: Layout,
    environ: Mapping[str, str],
    host: Process | None,
    *,
    option: str = "",
    payload: Callable[[], str] = lambda: "",
) -> Resolved:
    """The session of a hook (C5): option, INTERLINK_SESSION, the host's server, the payload's id, `main`.

    Empty = unset. `payload` is called only where the first three give nothing. Raises UsageError for a bad
    option or variable, SetupError for a bad id in the payload, StateError for an unreadable registry.
    """
    for value, source in ((option, "option"), (environ.get("INTERLINK_SESSION", ""), "environment")):
        if value:
            return Resolved(check_session(value), source)
    served = session_of(layout, host)
    if served is not None:
        return Resolved(served, "server")
    given = payload()
    if given:
        try:
            return Resolved(check_session(given), "payload")
        except UsageError as exc:
            raise SetupError(f"the hook payload's {exc}") from exc
    return Resolved(FALLBACK_SESSION, "fallback")


def _changing(layout: Layout) -> Flock:
    """Held while entries are made or removed, so that nobody removes a directory that another just made."""
    return Flock(os.path.join(layout.host_dir(), "register.lock"))


def _clean(layout: Layout) -> None:
    """Remove the entries of servers that have ended, and empty directories."""
    for name in _list(layout.host_dir()):
        folder = os.path.join(layout.host_dir(), name)
        if Process.parse(name) is None:
            continue
        files.remove_stale_temps(folder)
        for stem in {entry.rpartition(".")[0] for entry in _list(folder) if entry.endswith((".json", ".lock"))}:
            path = os.path.join(folder, stem + ".json")
            lock = Flock(_lock_path(path))
            if lock.try_acquire():
                _remove_entry(path, lock)
        _remove_empty(folder)


def host_chain(pid: int) -> list[Process]:
    """This process, and while it is a launcher its parent: the last one is the host."""
    chain: list[Process] = []
    at: int | None = pid
    while at is not None and len(chain) <= _MAX_LAUNCHERS:
        host = Process.of(at)
        if host is None:
            break
        chain.append(host)
        words = command_line(at) or [""]
        if os.path.basename(words[0]).lstrip("-").removesuffix(".exe") not in LAUNCHERS:
            break
        at = parent_of(at)
    return chain


def _enter(layout: Layout, host: Process, session: str, identity: str) -> tuple[str, Flock]:
    import json

    folder = files.ensure_dir(_folder(layout, host), layout.root)
    me = Process.me()
    path = os.path.join(folder, f"{me.pid}.json")
    lock = Flock(_lock_path(path))
    lock.acquire()
    record = {"session": session, "identity": identity, "server": me.text, "host": host.text}
    try:
        files.atomic_write(path, json.dumps(record).encode("utf-8"), durable=False)
    except BaseException:  # kept, it would stand in the way of our own next attempt
        lock.release()
        raise
    return path, lock


def _live(folder: str) -> list[Server]:
    found = []
    for name in sorted(_list(folder)):
        if name.endswith(".json") and not name.startswith("."):
            server = _read(os.path.join(folder, name))
            if server is not None:
                found.append(server)
    return found


def _read(path: str) -> Server | None:
    """A live server's entry; None for one that has ended, or for content that is no entry."""
    import json

    data = files.read_bytes(path)
    try:
        value = json.loads(data or b"")
        session, identity = check_session(value["session"]), str(value["identity"])
        process = Process.parse(value["server"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, InterlinkError):
        return None
    if process is None or not process.alive():
        return None
    # Where the system gives no start time, the lock says whether this pid is still that server.
    if process.start == UNKNOWN and _free(_lock_path(path)):
        return None
    return Server(session, identity, process)


def _free(path: str) -> bool:
    if not os.path.exists(path):
        return True
    lock = Flock(path)
    try:
        return lock.try_acquire(shared=True)
    finally:
        lock.release()


def _folder(layout: Layout, host: Process) -> str:
    return os.path.join(layout.host_dir(), host.text)


def _lock_path(path: str) -> str:
    return path.removesuffix(".json") + ".lock"


def _list(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as exc:
        raise files.explain(exc, f"list {folder}") from exc


def _remove_entry(path: str, lock: Flock) -> None:
    files.remove(path)
    files.remove(lock.path)
    lock.release()


def _remove_empty(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:
        return  # not empty, or gone: both are as they should be
