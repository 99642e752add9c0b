"""Real listeners (`interlink-mcp wait`), the host processes that they watch, and servers that register there."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from support.programs import program

from interlink import inbox
from interlink.state.locks import holder_pids
from interlink.state.paths import Layout, state_root

HANG_S = 60  # a guard against hanging tests, never a measure
FAST = {"INTERLINK_LISTENER_POLL_S": "0.1"}
KEY = "A" * 43
OTHER_KEY = "B" * 43


def layout() -> Layout:
    """The layout of this test's own state root."""
    return Layout(state_root(os.environ))


def until(condition: Callable[[], object], what: str) -> None:
    """Return as soon as the condition holds."""
    end = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < end, f"still waiting for: {what}"
        time.sleep(0.005)


def notice(number: int = 1, through: int | None = None, text: str = "") -> dict[str, object]:
    """An inbox record of a notice."""
    content = text or f'[Interlink inbox notice] receive_messages(notification_id="n{number}")'
    record: dict[str, object] = {"sender": "Interlink", "msg_id": f"n{number}", "content": content}
    return record if through is None else {**record, "through": through}


def legacy(body: str, sender: str = "alice", **fields: object) -> dict[str, object]:
    """An inbox record with its body in the line, as earlier versions wrote it."""
    return {"sender": sender, "msg_id": "m1", "content": body, **fields}


def put(*records: Mapping[str, object], session: str = "s1") -> None:
    """Append to a session's inbox, each one synced."""
    for record in records:
        inbox.append(layout(), session, record)


def cursor(session: str = "s1") -> bytes | None:
    """The cursor file's bytes, None where there is none."""
    try:
        with open(layout().inbox(session, "cursor"), "rb") as f:
            return f.read()
    except FileNotFoundError:
        return None


def size(session: str = "s1") -> bytes:
    """The inbox file's size as a cursor would say it."""
    return b"%d" % os.path.getsize(layout().inbox(session))


class Wait:
    """One `interlink-mcp wait`.

    `payload`: what is written to its standard input, which stays open unless `close`. `env` is added to this
    process's environment. `stderr` may be a descriptor; otherwise `end` returns what was printed.
    """

    def __init__(
        self,
        *args: str,
        payload: bytes | None = b'{"session_id":"s1"}',
        close: bool = False,
        env: Mapping[str, str] | None = None,
        command: Sequence[str] | None = None,
        stdin: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
    ) -> None:
        self.proc = subprocess.Popen(
            [*(command or [*program("interlink-mcp"), "wait"]), *args],
            env={**os.environ, **FAST, **(env or {})},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
        if self.proc.stdin is not None:
            if payload is not None:
                self.proc.stdin.write(payload)
                self.proc.stdin.flush()
            if close:
                self.proc.stdin.close()

    @property
    def pid(self) -> int:
        return self.proc.pid

    def listening(self, session: str = "s1") -> "Wait":
        """Returns once it holds the session's lock."""
        path = layout().inbox(session, "lock")

        def there() -> bool:
            assert self.proc.poll() is None, f"it ended with {self.proc.returncode}: {self.end()}"
            return self.pid in (holder_pids(path) or [])

        until(there, f"a listener of {session}")
        return self

    def end(self) -> tuple[int, str, str]:
        """Exit code, standard error, standard output, once it has ended."""
        stdin, self.proc.stdin = self.proc.stdin, None  # communicate would close it
        try:
            out, err = self.proc.communicate(timeout=HANG_S)
            return self.proc.returncode, (err or b"").decode(), (out or b"").decode()
        finally:
            self.proc.stdin = stdin
            self.stop()

    def stop(self) -> None:
        """End it whatever it does; for the end of a test."""
        if self.proc.poll() is None:
            self.proc.kill()
            self.proc.wait()
        for stream in (self.proc.stdin, self.proc.stdout, self.proc.stderr):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass  # it ended before it read its payload


@contextmanager
def waiting(*args: str, session: str = "s1", **options: object) -> Iterator[Wait]:
    """A listener that holds its lock, ended with the block."""
    one = Wait(*args, **options)  # type: ignore[arg-type]
    try:
        yield one.listening(session)
    finally:
        one.stop()


def wait_once(*args: str, **options: object) -> tuple[int, str, str]:
    """Run one listener to its end."""
    return Wait(*args, **options).end()  # type: ignore[arg-type]


class Child:
    """A process that says a line when it is ready and ends when its input closes."""

    def __init__(self, code: str, *args: str, command: Sequence[str] = ()) -> None:
        self.proc = subprocess.Popen(
            [*(command or [sys.executable]), "-c", code, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.proc.stdout is not None
        self.said = self.proc.stdout.readline().strip()
        assert self.said, f"the process ended with {self.proc.wait()}"

    @property
    def pid(self) -> int:
        return self.proc.pid

    def kill(self, *, reap: bool = True) -> None:
        """SIGKILL. Without `reap` it stays a zombie."""
        self.proc.send_signal(signal.SIGKILL)
        if reap:
            self.stop()

    def stop(self) -> None:
        """Let it end in good order."""
        if self.proc.stdin is not None and not self.proc.stdin.closed:
            self.proc.stdin.close()
        self.proc.wait(HANG_S)
        if self.proc.stdout is not None:
            self.proc.stdout.close()


_HOST = "import sys; print('ready', flush=True); sys.stdin.read()"
_SERVER = """
import os, sys
from interlink.hosts import registry
from interlink.state.paths import Layout, state_root
host, session, identity = int(sys.argv[1]) or os.getppid(), *sys.argv[2:4]
held = registry.register(Layout(state_root(os.environ)), host, session, identity)
print(os.getpid(), flush=True)
sys.stdin.read()
held.release()
"""


@contextmanager
def host(*arguments: str) -> Iterator[Child]:
    """A process that stands for the host; `arguments` end its command line."""
    child = Child(_HOST, *arguments)
    try:
        yield child
    finally:
        child.stop()


@contextmanager
def server(host_pid: int, session: str, identity: str = KEY, command: Sequence[str] = ()) -> Iterator[Child]:
    """A process that registers as a server of the host process (0: of its parent)."""
    child = Child(_SERVER, str(host_pid), session, identity, command=command)
    try:
        yield child
    finally:
        child.stop()


def of(child: Child) -> dict[str, str]:
    """The environment of this host's hooks."""
    return {"CLAUDE_PID": str(child.pid)}
