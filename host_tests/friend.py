"""Who writes to the agent under test: a real server of another identity, on a state root of its own."""

from pathlib import Path

from support.keys import ALICE, BOB
from support.mcp_client import RawClient
from support.programs import program

from host_tests.waiting import until
from interlink.settings import Settings
from interlink.trust.identity import write_key
from interlink.trust.peers import PeersFile


class Alice:
    """Alice's session; bob is the user of the host under test."""

    def __init__(self, folder: Path, url: str) -> None:
        config = folder / "config" / "interlink"
        config.mkdir(parents=True)
        write_key(str(config / "id.key"), ALICE)
        PeersFile(str(config / "peers.json"), ALICE.public, Settings()).add("bob", BOB.public)
        env = {"XDG_CONFIG_HOME": str(folder / "config"), "XDG_STATE_HOME": str(folder / "state")}
        self.client = RawClient([*program("interlink-mcp"), "--session", "alice"], {**env, "INTERLINK_URL": url})
        self._calls = 0
        self.client.handshake()

    def call(self, tool: str, **arguments: str) -> str:
        """The text of a tool's answer. AssertionError for an error."""
        self._calls += 1
        self.client.call(self._calls, tool, arguments)
        result = self.client.answer(self._calls)["result"]
        assert not result.get("isError"), result
        return str(result["content"][0]["text"])

    def send(self, session: str, text: str) -> None:
        """Write to one of bob's sessions as soon as the relay knows it."""
        until(lambda: session in self.call("list_peers"), f"bob's session {session} on the relay")
        assert "bus_accepted" in self.call("send_message", to="bob", session=session, text=text)
