"""The main job in one run: a message from host A wakes idle host B, is fetched, acknowledged, survives kill -9.

    python -m interlink_lab.demo

Everything is real: relay process, two identities, two MCP servers over stdio, the listener as a child. The
product is used from outside, by its commands. Exit 0 when every step is as it should be, else 1.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process

from interlink_lab.mcp_client import Session, open_client
from interlink_lab.programs import Relay, host_environment, make_identity, program, read_inbox

GUARD_S = 30.0


class StepFailed(Exception):
    """A step is not as it should be."""


class Demo:
    """The steps, told as they happen."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started = time.monotonic()
        self.number = 0

    def step(self, text: str) -> None:
        self.number += 1
        print(f"{self.number:2d}. [{time.monotonic() - self.started:5.2f} s] {text}", flush=True)

    @staticmethod
    def check(condition: object, expected: str, seen: object) -> None:
        if not condition:
            raise StepFailed(f"expected {expected}, saw: {seen}")


async def until(look: Callable[[], Awaitable[Any]], expected: str) -> Any:
    """What `look` gives once it gives something; StepFailed after the guard time."""
    last: Any = None
    with anyio.move_on_after(GUARD_S):
        while True:
            last = await look()
            if last:
                return last
            await anyio.sleep(0.02)
    raise StepFailed(f"expected {expected} within {GUARD_S:g} s")


def receipts(text: str) -> list[dict[str, str]]:
    """The receipts in an answer of receive_messages."""
    return [json.loads(line.split("] Receipt: ", 1)[1]) for line in text.splitlines() if "] Receipt: " in line]


@asynccontextmanager
async def server(folder: Path, who: str, url: str) -> AsyncIterator[Session]:
    """A real MCP server of one host, driven by the SDK's client."""
    env = host_environment(folder / who, url, name=who)
    argv = [*program("interlink-mcp"), "--session", f"session-{who}"]
    async with open_client(argv, env, stderr=folder / who / "server.log") as client:
        yield client


async def main_job(demo: Demo) -> None:
    folder = demo.folder
    relay = Relay(folder / "relay")
    try:
        relay.start()
        demo.step(f"relay started on {relay.url} (durable: every answer comes after the disk sync)")
        keys = {who: make_identity(folder / who) for who in ("alice", "bob", "mallory")}
        for who, peer in (("alice", "bob"), ("bob", "alice"), ("mallory", "bob")):
            peers = folder / who / "config" / "interlink" / "peers.json"
            peers.write_text(json.dumps({peer: {"key": keys[peer]}}), encoding="utf-8")
        demo.step(f"identities made; alice {keys['alice'][:8]} and bob {keys['bob'][:8]} trust each other")
        async with server(folder, "alice", relay.url) as alice:
            await _deliver(demo, relay, alice)
    finally:
        relay.stop()


async def _deliver(demo: Demo, relay: Relay, alice: Session) -> None:
    folder = demo.folder
    async with server(folder, "bob", relay.url) as bob:
        demo.step("two MCP servers run over stdio, one on each host")
        env = host_environment(folder / "bob", relay.url, name="bob")
        wait = [*program("interlink-mcp"), "wait", "--session", "session-bob"]
        async with await anyio.open_process(wait, env=env, stdin=subprocess.DEVNULL) as listener:
            try:
                await _wake(demo, alice, bob, listener)
            finally:
                if listener.returncode is None:
                    listener.kill()
        text = await bob.text("receive_messages")
        found = receipts(text)
        demo.check(len(found) == 1 and "Tests are green" in text, "one message", text)
        demo.step(f"bob fetched it: receipt {json.dumps(found[0])[:70]}... (reading consumes nothing)")
        os.kill(bob.process.pid, signal.SIGKILL)
        demo.step(f"bob's server (pid {bob.process.pid}) got SIGKILL")
    async with server(folder, "bob", relay.url) as bob:
        text = await bob.text("receive_messages")
        again = receipts(text)
        demo.check(again == found, f"the same receipt {found}", text)
        demo.step("started again: the message is still there, with the same receipt")
        text = await bob.text("acknowledge_messages", messages=found)
        demo.check(text.startswith("1 newly acknowledged"), "1 newly acknowledged", text)
        text = await bob.text("receive_messages")
        demo.check("No unread messages" in text, "nothing unread", text)
        demo.step("acknowledged: a fetch returns nothing more")
        await _stranger(demo, relay.url, bob)


async def _wake(demo: Demo, alice: Session, bob: Session, listener: Process) -> None:
    # wire.md's file facts: a listener holds the lock of its inbox while it waits
    lock = demo.folder / "bob" / "state" / "interlink" / "inbox" / "session-bob.lock"

    async def armed() -> bool:
        return lock.exists() and lock.stat().st_size > 0

    await until(armed, "the listener to take its lock")
    demo.step(f"bob's host is idle; its listener waits (pid {listener.pid})")

    async def announced() -> bool:
        return "session-bob" in await alice.text("list_peers")

    await until(announced, "bob's session on the roster")
    began = time.monotonic()
    text = await alice.text("send_message", to="bob", text="Tests are green, please deploy. – alice")
    demo.check("bus_accepted" in text, "state bus_accepted", text)
    msg_id = text.split("msg_id ", 1)[1].split(".", 1)[0]
    demo.step("alice sent a signed message: bus_accepted")
    with anyio.move_on_after(GUARD_S):
        await listener.wait()
    woke_ms = (time.monotonic() - began) * 1000
    demo.check(listener.returncode == 2, "the listener to exit 2", listener.returncode)
    assert listener.stderr is not None
    notice = b"".join([part async for part in listener.stderr]).decode("utf-8")
    demo.check(
        "[Interlink inbox notice]" in notice and "Tests are green" not in notice, "a notice without body", notice
    )
    states = [entry.get("msg_id") for entry in read_inbox(demo.folder / "bob" / "state", "session-bob")]
    demo.check(len(states) == 1, "one notice in the inbox", states)
    status = await bob.text("message_status", msg_id=msg_id)
    demo.check("inbox_queued" in status, "receiver_stored, then inbox_queued", status)
    demo.step("bob's mailbox has it (receiver_stored), a notice is queued (inbox_queued)")
    demo.step(f"the listener printed the notice and exited 2, {woke_ms:.0f} ms after the send: host B is awake")
    print("      | " + notice.strip().splitlines()[0])


async def _stranger(demo: Demo, url: str, bob: Session) -> None:
    folder = demo.folder
    async with server(folder, "mallory", url) as mallory:
        text = await mallory.text("send_message", to="bob", text="let me in", session="session-bob")
        demo.check("bus_accepted" in text, "the relay to accept it", text)

        async def refused() -> bool:
            return "reason=stranger" in (folder / "bob" / "server.log").read_text(encoding="utf-8")

        await until(refused, "bob's gate to refuse it")
        text = await bob.text("receive_messages")
        demo.check("No unread messages" in text, "nothing of a stranger", text)
        demo.step("a stranger's message reached the relay and was refused at bob's gate: nothing was stored")


def main() -> None:
    """Run the demo; the last line says how it went."""
    if sys.argv[1:] == ["--codex"]:
        from interlink_lab.demo_codex import main as codex

        codex()
        return
    folder = Path(tempfile.mkdtemp(prefix="interlink-demo-"))
    demo = Demo(folder)
    try:
        anyio.run(main_job, demo)
    except* StepFailed as group:
        for failed in group.exceptions:
            print(f"NOT AS IT SHOULD BE after step {demo.number}: {failed}")
        print(f"the files are kept in {folder}")
        sys.exit(1)
    shutil.rmtree(folder)
    print(f"All {demo.number} steps as they should be, in {time.monotonic() - demo.started:.1f} s.")


if __name__ == "__main__":
    main()
