"""The server starts whatever is missing and says how to mend it (H7), and ends in order (H18, B3)."""

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.codex_stub import HANG, CodexStub, wait_gone
from support.programs import program
from support.world import Host, World, receipts, until

from interlink.state.locks import holder_pids
from interlink.tools import app
from interlink_lab.mcp_client import Session, ToolFailed, open_client
from interlink_lab.programs import host_environment

EVERY_TOOL: dict[str, dict[str, Any]] = {
    "send_message": {"to": "alice", "text": "x"},
    "receive_messages": {},
    "read_message": {"sender": "k", "msg_id": "m"},
    "acknowledge_messages": {"messages": []},
    "conversation_history": {"peer": "alice"},
    "message_status": {"msg_id": "m"},
    "list_pending": {},
    "list_peers": {},
    "add_peer": {"petname": "a", "key": "k"},
    "remove_peer": {"petname": "a"},
    "discover": {},
    "set_summary": {"summary": "s"},
    "request_pair": {"target": "a"},
    "list_pair_requests": {},
    "accept_pair": {"fingerprint": "f"},
    "reject_pair": {"fingerprint": "f"},
    "cancel_task": {"to": "alice", "task_id": "t"},
    "failed_deliveries": {"action": "list"},
    "get_my_session_id": {},
}


async def answers(session: Session) -> dict[str, tuple[bool, str]]:
    """(an error, the text) of every tool."""
    found = {}
    for tool, arguments in EVERY_TOOL.items():
        try:
            found[tool] = (False, await session.text(tool, **arguments))
        except ToolFailed as exc:
            found[tool] = (True, str(exc))
    return found


async def all_say(session: Session, *words: str) -> None:
    """Every tool is listed, and answers with the same clear error."""
    assert {tool.name for tool in (await session.list_tools()).tools} == set(app.TOOLS)
    assert set(EVERY_TOOL) == set(app.TOOLS) - {app.BIND}
    for tool, (wrong, text) in (await answers(session)).items():
        assert wrong and all(word in text for word in words), f"{tool}: {text}"
        assert "Traceback" not in text and "fault in interlink" not in text, tool


@pytest.mark.req("H7")
def test_without_a_key_every_tool_says_how_to_make_one_and_works_once_it_is_there(world: World) -> None:
    alice, bob = world.pair()
    key = bob.key_file.read_bytes()
    bob.key_file.unlink()

    async def main() -> None:
        async with bob.server(announced=False) as b:
            await all_say(b, str(bob.key_file), "interlink-keygen")
            bob.key_file.write_text("rubbish")
            bob.key_file.chmod(0o600)
            with pytest.raises(ToolFailed, match="is not a key file"):
                await b.text("list_peers")
            bob.key_file.write_bytes(key)
            assert "alice" in await b.text("list_peers")  # at once, without a restart
            await until(lambda: world.announced("s-bob"), "the announcement")
            world.post(bob, alice.signer.message(bob.key, "hello"))
            await until(bob.notices, "the notice")
            assert "hello" in await b.text("receive_messages")
        assert b.exit_code == 0
        assert len(bob.events("not_ready")) <= 2  # told when it changes, not at every try

    anyio.run(main)


@pytest.mark.req("H7", "M17")
def test_a_state_root_that_cannot_be_used_is_told_and_tried_again(world: World) -> None:
    _alice, bob = world.pair()
    (bob.home / "state").write_text("a file in the way")

    async def main() -> None:
        async with bob.server(announced=False) as b:
            await all_say(b, str(bob.home / "state"))
            (bob.home / "state").unlink()
            assert "No unread messages" in await b.text("receive_messages")
            await until(lambda: world.announced("s-bob"), "the announcement")
        assert b.exit_code == 0

    anyio.run(main)


@pytest.mark.req("H7")
@pytest.mark.parametrize(
    ("args", "env", "words"),
    [
        (("--url", "ftp://nowhere"), {}, ("ftp://nowhere",)),
        (("--session", "../up"), {}, ("../up", "A-Z")),
        (("--host", "emacs"), {"INTERLINK_CHANNELS": "1"}, ("emacs", "claude or codex")),
    ],
)
def test_wrong_options_are_every_tools_answer(
    world: World, args: tuple[str, ...], env: dict[str, str], words: tuple[str, ...]
) -> None:
    bob = world.host("bob")

    async def main() -> None:
        async with bob.server("", *args, announced=False, **env) as b:
            await all_say(b, *words)
            with pytest.raises(ToolFailed, match=words[0]):
                await b.text("bind_codex_session", thread_id="01234567-89ab-cdef-0123-456789abcdef")
        assert b.exit_code == 0

    anyio.run(main)


@pytest.mark.req("H7", "G7")
def test_bad_settings_broken_peers_a_dead_relay_and_a_removed_directory_are_no_reason_to_fail(
    world: World, tmp_path: Path
) -> None:
    bob = world.host("bob")
    bob.peers_file.write_text('{"alice": {"key": "short"}}', "utf-8")
    world.relay.stop()
    gone = tmp_path / "gone"
    gone.mkdir()

    async def main() -> None:
        argv = [*program("interlink-mcp"), "--session", "s-bob"]
        env = bob.env(INTERLINK_RECONCILE_S="abc", INTERLINK_POLL_BATCH="1e9", INTERLINK_HEARTBEAT_S="-1")
        shell = ["/bin/sh", "-c", f'cd "{gone}" && rmdir "{gone}" && exec "$@"', "sh", *argv]
        async with open_client(shell, env, stderr=bob.home / "server.log") as b:
            found = await answers(b)
            for tool in (
                "send_message",
                "receive_messages",
                "list_peers",
                "discover",
                "remove_peer",
                "request_pair",
            ):
                wrong, text = found[tool]
                assert wrong, f"{tool}: {text}"
            for tool in ("send_message", "receive_messages", "list_peers", "remove_peer", "conversation_history"):
                assert "peers.json" in found[tool][1] and "alice" in found[tool][1], found[tool]
            assert "no relay answers" in found["discover"][1] and "no relay answers" in found["request_pair"][1]
            assert not found["list_pending"][0] and "down" in found["list_pending"][1]
            assert not found["get_my_session_id"][0] and "s-bob" in found["get_my_session_id"][1]
            bob.trust(world.host("alice"))
            text = await b.text("receive_messages")
            for name in ("INTERLINK_RECONCILE_S='abc'", "INTERLINK_POLL_BATCH", "INTERLINK_HEARTBEAT_S"):
                assert f"Warning: {name}" in text
            assert "no relay answers" in text
            world.relay.start()
            world.post(bob, world.host("alice").signer.message(bob.key, "hello"))
            await until(bob.notices, "the notice")
            assert "hello" in await b.text("receive_messages")
        assert b.exit_code == 0

    anyio.run(main)


@pytest.mark.req("H1")
@pytest.mark.parametrize("argv", [["--nope"], ["extra"], ["--url"], ["-x"]])
def test_a_wrong_command_line_exits_64_with_one_line(argv: list[str], tmp_path: Path) -> None:
    env = host_environment(tmp_path, "", "x")
    done = subprocess.run(
        [*program("interlink-mcp"), *argv], env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert done.returncode == 64 and done.stdout == b"" and done.stderr.count(b"\n") == 1
    assert b"interlink-mcp" in done.stderr and not (tmp_path / "state").exists()


# -- the end --------------------------------------------------------------------------------------------

ENDS: dict[str, Callable[[Session], object]] = {
    "stdin": lambda s: s.process.stdin.aclose(),  # type: ignore[union-attr]
    "SIGTERM": lambda s: os.kill(s.process.pid, signal.SIGTERM),
    "SIGINT": lambda s: os.kill(s.process.pid, signal.SIGINT),
}


@asynccontextmanager
async def codex(host: Host, stub: CodexStub) -> AsyncIterator[Session]:
    # A grace that no busy machine uses up: what is done within it is what counts here.
    env = {"INTERLINK_CODEX_BIN": stub.bin, "INTERLINK_SHUTDOWN_GRACE_S": "30"}
    async with host.server("", "--host", "codex", announced=False, **env) as session:
        await session.text("bind_codex_session", thread_id=THREAD)
        yield session


THREAD = "01234567-89ab-cdef-0123-456789abcdef"


def locked(root: Path) -> list[str]:
    """Lock files below the root that some process holds."""
    return [p.name for p in root.rglob("*lock") if holder_pids(str(p))]


@pytest.mark.req("H18", "B3", "X6")
@pytest.mark.parametrize("how", list(ENDS))
def test_the_end_frees_everything(world: World, tmp_path: Path, how: str) -> None:
    alice, bob = world.pair()
    stub = CodexStub(tmp_path)
    stub.answers(HANG)

    async def main() -> None:
        async with codex(bob, stub) as b:
            await until(lambda: world.announced(THREAD), "the announcement")
            world.post(bob, alice.signer.message(bob.key, "hello"), THREAD)
            await until(lambda: stub.calls, "the queue program to hang")
            assert list((bob.root / "host").rglob("*.json")) and f"{THREAD}.notifier-lock" in locked(bob.root)
            ended = ENDS[how](b)
            if ended is not None:
                await ended  # type: ignore[misc]
            with anyio.fail_after(60):
                code = await b.process.wait()
        assert code == 0
        # everything was done before it went, not left to a timeout
        assert not bob.events("shutdown_forced"), bob.log()
        assert locked(bob.root) == [] and not list((bob.root / "host").rglob("*.json"))
        assert world.roster() == []
        wait_gone(*(pid for call in stub.calls for pid in (call.pid, call.child)))
        async with codex(bob, stub) as b:
            assert len(receipts(await b.text("receive_messages"))) == 1

    anyio.run(main)
