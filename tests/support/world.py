"""Whole hosts for tests: a real relay process, real servers over stdio, real listeners, real files.

async with world.host("bob").server() as bob:
    await bob.text("receive_messages")
"""

import http.client
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio

from interlink_lab.mcp_client import Person, Session, open_client
from interlink_lab.programs import Relay, host_environment, program
from interlink_lab.wire import Signer, send_body

GUARD_S = 60.0  # against hangs, never a measure


async def until(look: Callable[[], Any], what: str = "") -> Any:
    """What `look` (plain or async) gives once it gives something. TimeoutError after the guard time."""
    with anyio.move_on_after(GUARD_S):
        while True:
            found = look()
            if isinstance(found, Awaitable):
                found = await found
            if found:
                return found
            await anyio.sleep(0.02)
    raise TimeoutError(f"waited {GUARD_S:g} s for {what or look}")


async def holds(look: Callable[[], Any], seconds: float) -> None:
    """Assert that `look` stays true for so long."""
    with anyio.move_on_after(seconds):
        while True:
            assert look()
            await anyio.sleep(0.02)


def receipts(text: str) -> list[dict[str, str]]:
    """The receipts in an answer of receive_messages."""
    return [json.loads(line.split("] Receipt: ", 1)[1]) for line in text.splitlines() if "] Receipt: " in line]


def sent_id(answer: str) -> str:
    """The msg_id in an answer of send_message."""
    return answer.split("msg_id ", 1)[1].split(".", 1)[0].split(":", 1)[0]


class Host:
    """One host: home, key, peers, state root."""

    def __init__(self, world: "World", name: str, seed: int) -> None:
        self.world = world
        self.name = name
        self.home = world.folder / name
        self.signer = Signer(bytes([seed]) * 32)
        self.key = self.signer.public
        self.extra: dict[str, str] = {}
        config = self.home / "config" / "interlink"
        config.mkdir(parents=True)
        self.key_file = config / "id.key"
        self.peers_file = config / "peers.json"
        self._write_key(bytes([seed]) * 32)

    def _write_key(self, seed: bytes) -> None:
        from interlink_lab.wire import b64

        self.key_file.write_text(b64(seed) + "\n", "ascii")
        self.key_file.chmod(0o600)

    def trust(self, *others: "Host") -> None:
        """Exactly these are peers now, under their names."""
        temp = self.peers_file.with_suffix(".new")
        temp.write_text(json.dumps({o.name: {"key": o.key} for o in others}), "utf-8")
        temp.replace(self.peers_file)

    def env(self, **more: str) -> dict[str, str]:
        url = self.world.url
        return {**host_environment(self.home, url, self.name), **self.extra, **more}

    @property
    def root(self) -> Path:
        return self.home / "state" / "interlink"

    def log(self) -> str:
        path = self.home / "server.log"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def events(self, name: str) -> list[dict[str, str]]:
        """The log's events of this name, in order, as their fields."""
        found = []
        for line in self.log().splitlines():
            fields = dict(part.split("=", 1) for part in line.split(" ") if "=" in part)
            if fields.get("event") == name:
                found.append(fields)
        return found

    @asynccontextmanager
    async def server(
        self,
        session: str | None = None,
        *args: str,
        person: Person | None = None,
        announced: bool = True,
        **more: str,
    ) -> AsyncIterator[Session]:
        """A server of this host, `session` pinned (default `s-NAME`, "" for none), on the roster."""
        pin = f"s-{self.name}" if session is None else session
        argv = [*program("interlink-mcp"), *(("--session", pin) if pin else ()), *args]
        async with open_client(argv, self.env(**more), stderr=self.home / "server.log", person=person) as client:
            if announced and self.world.relay.process is not None:
                await until(
                    lambda: f'"{pin}"' in self.world.http("GET", "/roster")[1].decode(), f"{pin} announced"
                )
            yield client

    def listener(self, session: str | None = None, *args: str, **more: str) -> "subprocess.Popen[bytes]":
        pin = f"s-{self.name}" if session is None else session
        argv = [*program("interlink-mcp"), "wait", *(("--session", pin) if pin else ()), *args]
        return subprocess.Popen(
            argv,
            env=self.env(**more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def listens_on(self, session: str | None = None) -> str:
        """The route of a session of this host, in a relay."""
        return f"{self.key}#{session or 's-' + self.name}"

    def trusted(self) -> dict[str, str]:
        """Petname to key, as the peers file says."""
        if not self.peers_file.exists():
            return {}
        return {name: entry["key"] for name, entry in json.loads(self.peers_file.read_bytes()).items()}

    def knock(self, to: "Host", name: str = "", session: str | None = None, **fields: object) -> dict[str, object]:
        """A signed knock of this host at another, as it goes over the wire."""
        fields = {"kind": "pair_request", "reply_to": self.listens_on(session), **fields}
        return self.signer.message(to.key, name or self.name, **fields)

    def mailbox_path(self, session: str | None = None) -> Path:
        return self.root / "mailbox" / self.key / f"{session or 's-' + self.name}.json"

    def records(self, session: str | None = None) -> list[dict[str, Any]]:
        """The records of the mailbox file; it parses at every moment."""
        path = self.mailbox_path(session)
        return list(json.loads(path.read_bytes())["records"]) if path.exists() else []

    def pairing_notices(self, session: str | None = None) -> list[str]:
        """The texts of the pairing notices in the inbox file."""
        return [n["content"] for n in self.notices(session) if n["kind"] == "pairing"]

    def notices(self, session: str | None = None) -> list[dict[str, Any]]:
        """The records of the inbox file."""
        path = self.root / "inbox" / f"{session or 's-' + self.name}.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


class World:
    """A relay and named hosts. Ends what it started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.relay = Relay(folder / "relay")
        self.relay.start()
        self.urls = [self.relay.url]
        self._hosts: dict[str, Host] = {}
        self._children: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        return ",".join(self.urls)

    def host(self, name: str) -> Host:
        if name not in self._hosts:
            self._hosts[name] = Host(self, name, 10 + len(self._hosts))
        return self._hosts[name]

    def pair(self, first: str = "alice", second: str = "bob") -> tuple[Host, Host]:
        """Two hosts that trust each other."""
        a, b = self.host(first), self.host(second)
        a.trust(b)
        b.trust(a)
        return a, b

    def close(self) -> None:
        self.relay.stop()

    def post(self, to: Host, msg: dict[str, object], session: str | None = None) -> None:
        """Put a message into the relay's queue for a host's session, as any program may."""
        status, body = self.http("POST", "/send", send_body(f"{to.key}#{session or 's-' + to.name}", msg))
        assert status == 202, body

    def http(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(*self.relay.addr.split(":"), timeout=GUARD_S)  # type: ignore[arg-type]
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def roster(self) -> list[dict[str, Any]]:
        """The relay's roster."""
        return list(json.loads(self.http("GET", "/roster")[1])["roster"])

    def announced(self, session: str) -> bool:
        """Whether a session is on the roster."""
        return any(entry["session"]["session_id"] == session for entry in self.roster())

    def waiting_for(self, host: Host, session: str | None = None) -> int:
        """Messages that wait in the relay for a session; none is consumed. At most 256."""
        route = quote(host.listens_on(session), safe="")
        answer = json.loads(self.http("GET", f"/recv?me={route}&timeout_ms=0&max=256")[1])
        return len(answer.get("messages", ()))

    def queued(self) -> int:
        """Messages that wait in the relay, by its metrics."""
        text = self.http("GET", "/metrics")[1].decode()
        for line in text.splitlines():
            if line.startswith("interlink_relay_queued_messages "):
                return int(float(line.split()[1]))
        raise AssertionError("no gauge of queued messages in:\n" + text)


def kill(session: Session) -> None:
    """SIGKILL a server."""
    os.kill(session.process.pid, signal.SIGKILL)
