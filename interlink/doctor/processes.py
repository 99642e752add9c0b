"""Servers and listeners that run now: do they belong together, and to this state root (H4, N2)?"""

import os
from collections.abc import Iterator, Mapping

from interlink.doctor.finding import BROKEN, OK, WARN, Finding, Process, Scene, first_lines
from interlink.errors import InterlinkError
from interlink.hosts import registry
from interlink.listener.lock import read_holder
from interlink.session import known
from interlink.state import process
from interlink.state.paths import is_session, state_root
from interlink.text import count

PROGRAM = "interlink-mcp"
MODULE = "interlink.cli.mcp"
NAME = "processes"
SHOWN_PIDS = 20  # all of them are in the data
SHOWN_ROOTS = 3


def find_processes() -> list[Process] | None:
    """This user's servers and listeners, from /proc; None where the system has none."""
    if not os.path.isdir("/proc/self"):
        return None
    found = []
    for name in os.listdir("/proc"):
        if name.isascii() and name.isdigit() and int(name) != os.getpid():
            one = _process(int(name))
            if one is not None:
                found.append(one)
    return sorted(found, key=lambda p: p.pid)


def _process(pid: int) -> Process | None:
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.getuid():
            return None
    except OSError:
        return None  # it has just ended
    words = process.command_line(pid) or []
    at = next((i for i, w in enumerate(words[:6]) if os.path.basename(w) == PROGRAM or w == MODULE), None)
    if at is None:
        return None
    listener = words[at + 1 : at + 2] == ["wait"]
    environ = _environ(pid)
    if environ is None:
        return Process(pid, listener, None, frozenset(), False, False)
    try:
        root: str | None = state_root(environ)
    except InterlinkError:
        root = None
    codex = registry.codex_mode(environ) or _option(words, "--host") == "codex"
    return Process(pid, listener, root, _hosts(pid, listener, environ), registry.channel_mode(environ), codex)


def _hosts(pid: int, listener: bool, environ: Mapping[str, str]) -> frozenset[int]:
    """A hook is told its host; a server has it for a parent, perhaps behind launchers."""
    if listener:
        told = registry.hook_host_pid(environ)
        return frozenset() if told is None else frozenset((told,))
    parent = process.parent_of(pid)
    return frozenset(host.pid for host in registry.host_chain(parent)) if parent is not None else frozenset()


def _option(words: list[str], name: str) -> str:
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == name:
            return following
        if word.startswith(name + "="):
            return word.partition("=")[2]
    return ""


def _environ(pid: int) -> dict[str, str] | None:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            data = file.read()
    except OSError:
        return None  # another user's, or gone
    pairs = (item.decode("utf-8", "replace").partition("=") for item in data.split(b"\0") if item)
    return {name: value for name, _, value in pairs}


def check_processes(scene: Scene) -> Iterator[Finding]:
    """Servers and listeners that miss each other, registration, channels."""
    if scene.processes is None or scene.layout is None:
        yield Finding(OK, NAME, "this system does not show other processes: roots could not be compared")
        return
    mine = os.path.realpath(scene.layout.root)
    yield from _apart(scene.processes, mine)
    here = [p for p in scene.processes if not p.listener and not _elsewhere(p, mine)]
    yield from _unregistered(here, scene)
    yield from _channels(scene, here)


def check_elsewhere(scene: Scene) -> Iterator[Finding]:
    """What runs with other state roots, all in one finding: there may be many, and usually they are in order."""
    if scene.processes is None or scene.layout is None:
        return
    mine = os.path.realpath(scene.layout.root)
    found = [p for p in scene.processes if _elsewhere(p, mine)]
    if not found:
        return
    by_pid = {p.pid: str(p.root) for p in found}
    roots = sorted(set(by_pid.values()))
    listeners = sum(p.listener for p in found)
    what = f"{count(len(found) - listeners, 'server')} and {count(listeners, 'listener')}"
    yield Finding(
        WARN,
        NAME,
        f"with another state root than this shell's {scene.layout.root}: {what}, "
        f"pid {first_lines(map(str, by_pid), SHOWN_PIDS)} ({first_lines(roots, SHOWN_ROOTS)})",
        f"in order if they are not of this installation; to look there: "
        f"XDG_STATE_HOME={os.path.dirname(roots[0])} interlink doctor",
        {"pids": list(by_pid), "roots": {str(pid): root for pid, root in by_pid.items()}},
    )


def _elsewhere(one: Process, mine: str) -> bool:
    """Whether it is known to use another state root."""
    return one.root is not None and os.path.realpath(one.root) != mine


def _apart(processes: list[Process], mine: str) -> Iterator[Finding]:
    """A listener and a server of one host that use different roots, one of them ours, never meet."""
    for listener in (p for p in processes if p.listener and p.root is not None):
        for server in (p for p in processes if not p.listener and p.host_pids & listener.host_pids):
            host = min(server.host_pids & listener.host_pids)
            roots = {os.path.realpath(root) for root in (server.root, listener.root) if root is not None}
            if len(roots) == 2 and mine in roots:
                yield Finding(
                    BROKEN,
                    NAME,
                    f"host {host}: its server {server.pid} uses the state root {server.root}, "
                    f"its listener {listener.pid} {listener.root}",
                    "give both the same XDG_STATE_HOME (and HOME)",
                    {"host": host, "server": server.pid, "listener": listener.pid},
                )


def _unregistered(servers: list[Process], scene: Scene) -> Iterator[Finding]:
    registered = {r.process.pid for r in scene.running}
    for one in (p for p in servers if p.pid not in registered and p.root is not None):
        why = (
            "its hooks have not bound it: review and trust them in Codex, or wait for the first turn"
            if one.codex
            else "it waits for something (key, state root): its tools say what"
        )
        text = f"server {one.pid} runs, but serves no session"
        yield Finding(WARN, NAME, text, why, {"pid": one.pid, "codex": one.codex})


def _channels(scene: Scene, servers: list[Process]) -> Iterator[Finding]:
    users = [str(p.pid) for p in servers if p.channels]
    if not users and not registry.channel_mode(scene.environ):
        return
    who = f"server {first_lines(users)}" if users else "this shell (INTERLINK_CHANNELS)"
    yield Finding(
        OK,
        "channel",
        f"{who} pushes notices through the host's channel",
        "a host with channels off takes no push and says nothing: start it with `interlinked`, or unset "
        "INTERLINK_CHANNELS and let the Stop hook's listener wake it",
        {"servers": users},
    )


def check_pairs(scene: Scene) -> Iterator[Finding]:
    """Per host process: the session of its server and that of its listener."""
    if scene.layout is None:
        return
    listening = _listening(scene)
    for host, servers in registry.hosts(scene.layout):
        sessions = sorted({s.session for s in servers})
        if len(sessions) > 1:
            yield Finding(
                WARN,
                "host",
                f"host {host.pid} has servers of {len(sessions)} sessions: {first_lines(sessions)}",
                "its hooks go by their own session id: pin INTERLINK_SESSION, or keep one server a host",
                {"host": host.pid, "sessions": sessions},
            )
            continue
        for session, pid in listening.get(host, ()):
            text = f"host {host.pid}: server for session {sessions[0]}, listener {pid} for session {session}"
            data = {"host": host.pid, "server_session": sessions[0], "listener_session": session}
            if session == sessions[0]:
                yield Finding(OK, "host", text, data=data)
            else:
                advice = (
                    "they never meet: pin INTERLINK_SESSION for both, or neither; it follows after a second else"
                )
                yield Finding(BROKEN, "host", text, advice, data)


def _listening(scene: Scene) -> dict[process.Process, list[tuple[str, int]]]:
    """host process -> (session, listener pid) of its living listeners, by what they wrote into their lock."""
    assert scene.layout is not None
    found: dict[process.Process, list[tuple[str, int]]] = {}
    names = known.listed(scene.layout.inbox_dir())
    for session in sorted(n[:-5] for n in names if n.endswith(".lock") and is_session(n[:-5])):
        holder = read_holder(scene.layout.inbox(session, "lock"))
        if holder is not None and holder.host is not None and holder.listener.alive():
            found.setdefault(holder.host, []).append((session, holder.listener.pid))
    return found
