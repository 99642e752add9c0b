"""Two makes side by side: our programs and the Rust ones, each as one host with a key, a home and a session.

    with Desk(folder, "rust", url, theirs) as rust, Desk(folder, "ours", url) as ours:
        befriend(rust, ours)
        ours.send(rust, "hello")

A `Desk` is driven through MCP alone; what the two makes call differently is hidden here and nowhere else.
"""

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from support.mcp_client import RawClient
from support.relay import Client

from host_tests.waiting import until
from interlink.trust.identity import Identity, write_key
from interlink_lab.programs import Relay, host_environment, make_identity, program
from interlink_lab.wire import Signer

MAKES = ("ours", "theirs")
ID = re.compile(r"msg_id ([0-9a-f]{32})")
_RECORD = re.compile(
    r"^\[(?P<state>[^\]]+)\] Receipt: (?P<receipt>\{.*\})\n"
    r"\[interlink message from (?P<petname>.*)\]:\n"
    r"<interlink (?P<attributes>.*)>\n(?P<body>(?s:.*?))\n</interlink>$",
    re.MULTILINE,
)
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')


class Refused(Exception):
    """A tool answered with an error, of either shape; the text is its answer."""


class Mail(NamedTuple):
    """One record as `receive_messages` shows it."""

    state: str
    receipt: dict[str, str]
    petname: str
    attributes: dict[str, str]
    body: str

    def task(self) -> tuple[str | None, str | None, str | None]:
        """Task id, status, id of the message that it answers."""
        found = self.attributes
        return found.get("task"), found.get("status"), found.get("in_reply_to")


def mails(text: str) -> list[Mail]:
    """The records in an answer of `receive_messages` or `conversation_history`."""
    return [
        Mail(
            m["state"],
            json.loads(m["receipt"]),
            m["petname"],
            dict(_ATTRIBUTE.findall(m["attributes"])),
            m["body"],
        )
        for m in _RECORD.finditer(text)
    ]


def relay(folder: Path, make: str, theirs: Path, *args: str) -> Relay:
    """A relay of one make, not started, with a queue on disk."""
    return Relay(folder, "--db", str(folder / "queue.db"), *args, folder=str(theirs) if make == "theirs" else None)


def http(bus: Relay) -> Client:
    """A plain client of a relay."""
    return Client(int(bus.addr.rpartition(":")[2]))


class Desk:
    """One host. `theirs`: the folder of the Rust programs, None for ours; `key`: a key of the test's own.

    `home`: another desk's home, whose key, peers and state this one then uses. `start_in`: the server's folder.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        url: str,
        theirs: Path | None = None,
        *,
        key: Identity | None = None,
        home: Path | None = None,
        session: str = "",
        args: Sequence[str] = (),
        start_in: str = "",
        **env: str,
    ) -> None:
        self.name = name
        self.session = session or f"session-{name}"
        self.home = home or folder / name
        self.theirs = theirs
        self.args = list(args)
        self.start_in = start_in
        self.env = host_environment(self.home, url, name, INTERLINK_TRUST="tools", **env)
        self._client: RawClient | None = None
        self._calls = 0
        if home is None:
            self._identify(key)
        self.signer = Signer.load(self.config / "id.key")
        self.key = self.signer.public

    def _identify(self, key: Identity | None) -> None:
        self.config.mkdir(parents=True)
        if key is not None:
            (self.home / ".config").symlink_to("config")
            write_key(str(self.config / "id.key"), key)
        else:
            make_identity(self.home, None if self.theirs is None else str(self.theirs))
        self.peers.write_text("{}", encoding="utf-8")

    def __enter__(self) -> "Desk":
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.kill()

    @property
    def config(self) -> Path:
        return self.home / "config" / "interlink"

    @property
    def peers(self) -> Path:
        return self.config / "peers.json"

    @property
    def root(self) -> Path:
        return self.home / "state" / "interlink"

    @property
    def route(self) -> str:
        return f"{self.key}#{self.session}"

    @property
    def client(self) -> RawClient:
        assert self._client is not None, "start() comes first"
        return self._client

    def file(self, room: str) -> Path:
        """The state file of this session in a room that is kept by identity."""
        return self.root / room / self.key / f"{self.session}.json"

    def run(self, name: str, *args: str) -> "subprocess.CompletedProcess[str]":
        """A command of this make to its end."""
        argv = [*program(name, None if self.theirs is None else str(self.theirs)), *args]
        return subprocess.run(argv, env=self._environ(), capture_output=True, text=True, timeout=60, check=False)

    def _environ(self) -> dict[str, str]:
        return {**os.environ, **self.env}

    def start(self) -> None:
        """Start the server and shake hands."""
        argv = program("interlink-mcp", None if self.theirs is None else str(self.theirs))
        if self.start_in:
            argv = ["env", "-C", self.start_in, *argv]
        self._client = RawClient([*argv, "--session", self.session, *self.args], self.env)
        self._client.handshake()

    def kill(self) -> None:
        """SIGKILL, and wait; nothing where it does not run."""
        client, self._client = self._client, None
        if client is not None:
            with client:
                pass

    def leave(self) -> None:
        """Close stdin, as a host does that ends, and wait for the server's own end."""
        client, self._client = self.client, None
        assert client.process.stdin is not None
        client.process.stdin.close()
        assert client.process.wait(60) == 0, client.log()

    def call(self, tool: str, **arguments: object) -> str:
        """The text of a tool's answer. Refused for an error."""
        self._calls += 1
        self.client.call(self._calls, tool, arguments)
        answer = self.client.answer(self._calls)
        if "error" in answer:
            raise Refused(answer["error"]["message"])
        result = answer["result"]
        text = str(result["content"][0]["text"])
        if result.get("isError"):
            raise Refused(text)
        return text

    def trust(self, other: "Desk") -> None:
        """Make the other one a peer, by its name."""
        self.call("add_peer", petname=other.name, key=other.key)

    def trusted(self) -> dict[str, str]:
        """Petname -> key."""
        found = json.loads(self.peers.read_text("utf-8"))
        return {petname: row["key"] for petname, row in found.items()}

    def sees(self, other: "Desk") -> bool:
        """The other's session is on the roster that this one reads."""
        return other.session in self.call("discover")

    def send(self, to: "Desk", text: str, **fields: object) -> str:
        """Write to the other's session; the message's id once a relay has it."""
        petname = "self" if to.key == self.key else to.name
        ident = self.post(petname, text, session=to.session, **fields)
        self.accepted(ident)
        return ident

    def post(self, petname: str, text: str, **fields: object) -> str:
        """`send_message`; the message's id."""
        answer = self.call("send_message", to=petname, text=text, **fields)
        found = ID.search(answer)
        assert found is not None, answer
        return found[1]

    def accepted(self, ident: str) -> None:
        """Wait until a relay has the message."""
        until(
            lambda: "bus_accepted" in self.call("message_status", msg_id=ident), f"{self.name}'s message accepted"
        )

    def fetch(self) -> list[Mail]:
        """What is unread."""
        return mails(self.call("receive_messages", limit=100))

    def got(self, *idents: str) -> list[Mail]:
        """Unread records with these ids, in their order, as soon as all are there."""

        def there() -> list[Mail] | None:
            found = {mail.receipt["msg_id"]: mail for mail in self.fetch()}
            return [found[ident] for ident in idents] if set(idents) <= set(found) else None

        found: list[Mail] = until(there, f"{len(idents)} messages at {self.name}")
        return found

    def acknowledge(self, *found: Mail) -> int:
        """How many were newly acknowledged."""
        receipts = [mail.receipt for mail in found]
        number = re.search(r"\d+", self.call("acknowledge_messages", messages=receipts))
        assert number is not None
        return int(number[0])

    def records(self) -> list[dict[str, Any]]:
        """The mailbox file's records."""
        path = self.file("mailbox")
        return list(json.loads(path.read_bytes())["records"]) if path.exists() else []


def befriend(*desks: Desk) -> None:
    """Each one is a peer of each other one, and sees its session."""
    for one in desks:
        for other in desks:
            if one.key != other.key:
                one.trust(other)
    for one in desks:
        for other in desks:
            if one is not other:
                until(lambda one=one, other=other: one.sees(other), f"{one.name} sees {other.name}")
