"""`interlink` as a process, with a key and peers of this test's own.

me()                                    # our key file (BOB's) and the peer alice, where the programs look for them
done = interlink("inbox", "--json")     # Done(code, out, err)
"""

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from support.forks import forks
from support.keys import ALICE, BOB
from support.listener import until
from support.mail import Desk
from support.programs import program

from interlink.hosts import registry
from interlink.settings import Settings
from interlink.state.paths import Layout, config_dir, state_root
from interlink.trust.identity import Identity, write_key
from interlink.trust.peers import PeersFile

HANG_S = 60  # a guard, never a measure
ME = BOB.public


class Done(NamedTuple):
    """One finished run."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def interlink(*args: str, stdin: bytes | str = b"", env: Mapping[str, str] | None = None) -> Done:
    """Run `interlink` to its end, in a process of its own (see `forks`)."""
    data = stdin.encode("utf-8") if isinstance(stdin, str) else stdin
    code, out, err = forks().run(args, data, {**os.environ, **(env or {})})
    return Done(code, out.decode("utf-8"), err.decode("utf-8"))


def fresh(*args: str, stdin: bytes | str = b"", env: Mapping[str, str] | None = None) -> Done:
    """The same from the start of an interpreter."""
    data = stdin.encode("utf-8") if isinstance(stdin, str) else stdin
    done = subprocess.run(
        [*program("interlink"), *args],
        input=data,
        capture_output=True,
        timeout=HANG_S,
        env={**os.environ, **(env or {})},
    )
    return Done(done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8"))


def ok(*args: str, stdin: bytes | str = b"", env: Mapping[str, str] | None = None) -> Done:
    """As `interlink`; AssertionError unless it exits 0."""
    done = interlink(*args, stdin=stdin, env=env)
    assert done.code == 0, done
    return done


def each(*lines: Sequence[str]) -> list[Done]:
    """Run several command lines, with the word `text` on standard input."""
    return [interlink(*line, stdin="text") for line in lines]


def key_path() -> str:
    return os.path.join(config_dir(os.environ), "id.key")


def peers_path() -> str:
    return os.path.join(config_dir(os.environ), "peers.json")


def me(identity: Identity = BOB, **peers: Identity) -> str:
    """Write our key and the peers (alice, unless others are named); returns the state root, made."""
    write_key(key_path(), identity)
    file = PeersFile(peers_path(), identity.public, Settings())
    for name, peer in (peers or {"alice": ALICE}).items():
        file.add(name, peer.public)
    root = state_root(os.environ)
    os.makedirs(root, mode=0o700, exist_ok=True)
    return root


def layout() -> Layout:
    return Layout(state_root(os.environ))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def desk(session: str = "s1", **changed: Any) -> Desk:
    """A mailbox of ours, by the wall clock."""
    return Desk(state_root(os.environ), session, now=now_ms(), **changed)


def tree(root: str) -> dict[str, tuple[int, int, bytes]]:
    """Every file below the root: mode, mtime (ns), content."""
    found = {}
    for folder, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = os.path.join(folder, name)
            info = os.stat(path)
            data = b""
            if name in names:
                with open(path, "rb") as file:
                    data = file.read()
            found[os.path.relpath(path, root)] = (info.st_mode, info.st_mtime_ns, data)
    return found


@contextmanager
def mcp_server(
    session: str, *args: str, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A real `interlink-mcp` of this process's host (this test), registered and notifying."""
    with open(os.path.join(os.environ["HOME"], f"server-{session}.log"), "wb") as log:
        process = subprocess.Popen(
            [*program("interlink-mcp"), "--session", session, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env={**os.environ, "INTERLINK_URL": "http://127.0.0.1:9", **(env or {})},
        )
    try:
        until(lambda: _serves(process, session), f"a server of {session}")
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()


def _serves(process: "subprocess.Popen[bytes]", session: str) -> bool:
    assert process.poll() is None, f"the server ended with {process.returncode}"
    servers = [one for _host, found in registry.hosts(layout()) for one in found]
    return any(one.process.pid == process.pid and one.session == session for one in servers)
