"""What every measurement needs: two hosts and a relay of one implementation, and looks at their files."""

import asyncio
import json
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from interlink_lab.load import Connection
from interlink_lab.programs import Relay, host_environment, make_identity, program
from interlink_lab.wire import Signer, send_body

GUARD_S = 120.0  # against hangs, never a measure
DRAIN_GUARD_S = 900.0  # a peer that writes its whole mailbox for each message takes minutes for thousands


def percentile(values: list[float], share: float) -> float:
    """The value below which `share` of them lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def median(values: list[float]) -> float:
    return statistics.median(values)


def disk_sync_ms(folder: Path, rounds: int = 200) -> dict[str, float]:
    """How long the disk takes to make 4 KiB durable: rewritten in place, and as a new file renamed into place."""
    path = folder / "sync-probe"
    data = os.urandom(4096)
    inplace, replaced = [], []
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range(rounds):
        os.pwrite(fd, data, 0)
        began = time.perf_counter()
        os.fdatasync(fd)
        inplace.append((time.perf_counter() - began) * 1000)
    os.close(fd)
    for _ in range(rounds // 4):
        began = time.perf_counter()
        temp = folder / "sync-probe.tmp"
        fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.write(fd, data)
        os.fsync(fd)
        os.close(fd)
        os.replace(temp, path)
        folder_fd = os.open(folder, os.O_RDONLY)
        os.fsync(folder_fd)
        os.close(folder_fd)
        replaced.append((time.perf_counter() - began) * 1000)
    path.unlink()
    return {"sync_ms": median(inplace), "sync_p99_ms": percentile(inplace, 0.99), "replace_ms": median(replaced)}


def wait_for(look: Callable[[], Any], what: str, every_s: float = 0.002, guard_s: float = GUARD_S) -> Any:
    """What `look` gives once it gives something. TimeoutError after the guard time."""
    end = time.monotonic() + guard_s
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(every_s)
    raise TimeoutError(f"waited {guard_s:g} s for {what}")


def lock_held(path: Path) -> bool:
    """Somebody holds a kernel lock on this file, by the kernel's table (no lock is taken)."""
    try:
        inode = path.stat().st_ino
        table = Path("/proc/locks").read_text("ascii")
    except FileNotFoundError:
        return False
    return any(f":{inode} " in line for line in table.splitlines())


class Rig:
    """A relay and two hosts, alice and bob, that trust each other. `folder`: the binaries; None: ours."""

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder
        self.home = Path(tempfile.mkdtemp(prefix="interlink-bench-"))
        db = str(self.home / "relay" / "queue.db")
        if folder is None:
            self.relay = Relay(self.home / "relay", "--db", db)
        else:
            self.relay = Relay(self.home / "relay", "--db", db, "--queue-cap", "100000", folder=folder)
        self.relay.start()
        self.keys = {who: make_identity(self.home / who, folder) for who in ("alice", "bob")}
        for who, peer in (("alice", "bob"), ("bob", "alice")):
            peers = self.home / who / "config" / "interlink" / "peers.json"
            peers.write_text(json.dumps({peer: {"key": self.keys[peer]}}), "utf-8")
        self.alice = Signer.load(self.home / "alice" / "config" / "interlink" / "id.key")

    def close(self) -> None:
        self.relay.stop()
        shutil.rmtree(self.home, ignore_errors=True)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.relay.addr.split(":")
        return host, int(port)

    def env(self, who: str, session: str) -> dict[str, str]:
        return host_environment(self.home / who, self.relay.url, who, INTERLINK_SESSION=session)

    def server_argv(self) -> list[str]:
        return program("interlink-mcp", self.folder)

    def start_listener(self, session: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [*program("interlink-mcp", self.folder), "wait", "--session", session],
            env=self.env("bob", session),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def listener_lock(self, session: str) -> Path:
        return self.home / "bob" / "state" / "interlink" / "inbox" / f"{session}.lock"

    def mailbox(self, session: str) -> Path:
        return self.home / "bob" / "state" / "interlink" / "mailbox" / self.keys["bob"] / f"{session}.json"

    def stored(self, session: str) -> int:
        """Messages with a body in bob's mailbox file."""
        try:
            return self.mailbox(session).read_bytes().count(b'"sig":')
        except FileNotFoundError:
            return 0

    def enqueue(self, session: str, count: int, size: int = 1024) -> None:
        """Put signed messages of alice into bob's queue, 16 at a time."""
        route = f"{self.keys['bob']}#{session}"
        bodies = [send_body(route, self.alice.message(self.keys["bob"], "x" * size)) for _ in range(count)]

        async def run() -> None:
            async def sender() -> None:
                connection = Connection(*self.address)
                await connection.open()
                while bodies:
                    status, answer = await connection.call(connection.post("/send", bodies.pop()))
                    if status != 202:
                        raise RuntimeError(f"the relay answered {status}: {answer[:200]!r}")
                connection.close()

            await asyncio.gather(*(sender() for _ in range(min(16, count))))

        asyncio.run(run())

    def wait_stored(self, session: str, count: int, every_s: float) -> float:
        """When (perf_counter) the mailbox held `count` messages; looks only when the file changed."""
        seen: list[Any] = [None]
        path = self.mailbox(session)

        def there() -> float | None:
            try:
                info = path.stat()
            except FileNotFoundError:
                return None
            sig = (info.st_ino, info.st_size, info.st_mtime_ns)
            if sig == seen[0]:
                return None
            seen[0] = sig
            now = time.perf_counter()
            return now if self.stored(session) >= count else None

        found = wait_for(there, f"{count} messages in the mailbox", every_s, DRAIN_GUARD_S)
        assert isinstance(found, float)
        return found


def pause(pid: int) -> None:
    """Stop a process (SIGSTOP), so that work piles up for it."""
    os.kill(pid, signal.SIGSTOP)


def go_on(pid: int) -> None:
    """Let a stopped process go on."""
    os.kill(pid, signal.SIGCONT)
