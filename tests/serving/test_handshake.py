"""Both handshakes, in the orders in which hosts use them; capabilities; a runtime that does not start."""

import sys
from pathlib import Path

import anyio
import pytest
from support.mcp_client import INITIALIZE, RawClient

from interlink.tools.serving import check
from interlink.tools.surface import ToolDef
from interlink_lab.mcp_client import open_client

SERVER = [sys.executable, str(Path(__file__).with_name("sample_server.py"))]
TOOL = ToolDef("a", "A", "Does a", {"type": "object"}, True, False, True, False)
VERSION = "io.modelcontextprotocol/protocolVersion"
ENVELOPE = {
    VERSION: "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "claude-code", "version": "2.1.332"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}, "url": {}}},
}
PROBES = {
    "none": None,
    "empty": {},
    "envelope": {"_meta": ENVELOPE},
    "version alone": {"_meta": {VERSION: "2026-07-28"}},
    "future": {"_meta": {**ENVELOPE, VERSION: "2027-01-01"}},
}


@pytest.mark.req("H9", "H19")
@pytest.mark.parametrize("first", ["none", "envelope"])
def test_a_probe_does_not_lock_the_connection(first: str) -> None:
    """The first request is what an SDK server decides by: each kind of probe leads once."""
    with RawClient(SERVER) as host:
        for name in (first, *PROBES):
            host.request(f"server-discover-probe-{name}", "server/discover", PROBES[name])
            assert host.answer(f"server-discover-probe-{name}")["error"]["code"] in (-32601, -32602), name
        host.request(0, "initialize", {**INITIALIZE, "protocolVersion": "2025-11-25"})
        assert host.answer(0)["result"]["protocolVersion"] == "2025-11-25"
        host.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        host.request(1, "tools/list", {"_meta": {"progressToken": 1}})
        assert len(host.answer(1)["result"]["tools"]) > 3
        host.request(2, "server/discover", PROBES["envelope"])
        assert host.answer(2)["error"]["code"] == -32601
        host.call(3, "echo", {"text": "still here"})
        assert host.answer(3)["result"]["isError"] is False


@pytest.mark.req("H9", "H19")
def test_a_host_that_waits_for_nothing_is_served() -> None:
    """Probe, handshake and first calls in one write."""
    with RawClient(SERVER) as host:
        host.request("p", "server/discover", PROBES["version alone"])
        host.request(0, "initialize", INITIALIZE)
        host.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        host.request(1, "tools/list")
        host.call(2, "echo", {"text": "x"})
        answers = {found["id"]: found for found in (host.message() for _ in range(4))}
        assert answers["p"]["error"]["code"] == -32601
        assert answers[0]["result"]["serverInfo"] == {"name": "sample", "version": "1.2"}
        assert answers[1]["result"]["tools"]
        assert answers[2]["result"]["content"][0]["text"] == "x"


@pytest.mark.req("N1")
def test_capabilities_are_tools_alone_where_the_channel_is_off() -> None:
    with RawClient(SERVER) as host:
        result = host.handshake()["result"]
        assert result["capabilities"] == {"tools": {"listChanged": False}}
        assert result["instructions"] == "i" * 40
        host.call(1, "push", {"content": "x", "meta": {}})
        assert "INTERLINK_CHANNELS=1" in host.answer(1)["result"]["content"][0]["text"]
        for version in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", "junk"):
            host.request(version, "initialize", {**INITIALIZE, "protocolVersion": version})
            agreed = version if version < "2025-11-25" else "2025-11-25"
            assert host.answer(version)["result"]["protocolVersion"] == agreed


@pytest.mark.parametrize(
    ("instructions", "tools", "word"),
    [
        ("i" * 2048, [TOOL], "2,048"),
        ("", [TOOL, TOOL], "same name"),
        ("", [TOOL._replace(input_schema={"properties": {}})], "type object"),
        ("", [TOOL._replace(output_schema={"type": "array"})], "type object"),
    ],
)
def test_what_a_host_would_cut_or_refuse_stops_the_build(
    instructions: str, tools: list[ToolDef], word: str
) -> None:
    with pytest.raises(ValueError, match=word):
        check(instructions, tools)
    check("i" * 2047, [TOOL])


@pytest.mark.req("H7")
def test_a_runtime_that_does_not_start_leaves_the_server_serving() -> None:
    with RawClient(SERVER, {"SAMPLE_ENTER": "fail"}) as host:
        host.handshake()
        host.request(1, "tools/list")
        assert host.answer(1)["result"]["tools"]
        host.call(2, "echo", {"text": "x"})
        assert host.answer(2)["result"]["isError"] is False
        host.close_stdin()
        assert host.wait() == 0
        assert 'event=runtime_failed when=running error=OSError text="no such relay"' in host.log()


@pytest.mark.req("H9")
def test_the_sdk_client_gets_in_with_its_probe(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_client(SERVER, probe=True, stderr=tmp_path / "log") as session:
            assert session.instructions == "i" * 40
            assert await session.text("echo", text="hello") == "hello"
            assert "echo" in [tool.name for tool in (await session.list_tools()).tools]
            await session.send_ping()
        assert session.exit_code == 0

    anyio.run(main)
    assert "event=host_connected" in (tmp_path / "log").read_text()
