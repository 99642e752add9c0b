"""`./dev demo --codex`: the Codex path, with a recording stub in place of the Codex program.

A hook binds the thread, a message from the other host puts a notice into the thread's queue, a failure is saved
and cleared by the next success, the agent fetches and acknowledges.
"""

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import anyio

from interlink_lab import codex_stub
from interlink_lab.demo import Demo, StepFailed, receipts, server, until
from interlink_lab.mcp_client import Session, ToolFailed, open_client
from interlink_lab.programs import Relay, host_environment, make_identity, program

THREAD = "01900000-1234-7000-8000-123456789abc"


async def codex_job(demo: Demo) -> None:
    """The steps."""
    folder = demo.folder
    stub = folder / "stub"
    codex = codex_stub.install(stub, "1 Error: database is locked", "1 Error: database is locked", "ok")
    relay = Relay(folder / "relay")
    relay.start()
    try:
        keys = {who: make_identity(folder / who) for who in ("alice", "bob")}
        for who, peer in (("alice", "bob"), ("bob", "alice")):
            peers = folder / who / "config" / "interlink" / "peers.json"
            peers.write_text(json.dumps({peer: {"key": keys[peer]}}), encoding="utf-8")
        demo.step("relay and two identities; bob's host is Codex (a stub that records `codex queue`)")
        env = host_environment(folder / "bob", relay.url, name="bob", INTERLINK_CODEX_BACKOFF_S="0.2")
        argv = [*program("interlink-mcp"), "--host", "codex", "--codex-bin", str(codex)]
        async with (
            server(folder, "alice", relay.url) as alice,
            open_client(argv, env, stderr=folder / "bob" / "server.log", name="codex") as bob,
        ):
            await _bound(demo, bob)
            await _delivered(demo, stub, alice, bob)
    finally:
        relay.stop()


async def _bound(demo: Demo, bob: Session) -> None:
    try:
        text = await bob.text("receive_messages")
    except ToolFailed as exc:
        demo.check("not bound" in str(exc), "an answer that says how to bind", exc)
    else:
        raise StepFailed(f"an unbound session read mail: {text}")
    demo.step("unbound: nothing is announced, polled or sent, and the tools say so")
    text = await bob.text("bind_codex_session", thread_id=THREAD)
    demo.check(text == "{}", "{} (anything else would land in the model's context)", text)
    try:
        await bob.text("bind_codex_session", thread_id=THREAD.replace("0", "f"))
    except ToolFailed:
        demo.step(f"a hook bound thread {THREAD}; a second thread is refused")
    else:
        raise StepFailed("the server was bound to a second thread")


async def _delivered(demo: Demo, stub: Path, alice: Session, bob: Session) -> None:
    async def announced() -> bool:
        return THREAD in await alice.text("list_peers")

    await until(announced, "bob's thread on the roster")
    await alice.text("send_message", to="bob", text="Please review the change. – alice")
    demo.step("alice sent a message")

    async def queued() -> bool:
        return len(codex_stub.calls(stub)) >= 3

    await until(queued, "three runs of the queue program")
    argv = codex_stub.calls(stub)[-1]["argv"]
    demo.check(argv[:3] == ["queue", "--thread", THREAD], "codex queue --thread ID --message=...", argv)
    demo.check("Please review" not in " ".join(argv), "a notice without the message", argv)
    demo.step("`codex queue` failed twice, was tried again, and took the notice (no text of the message in it)")
    found = receipts(await bob.text("receive_messages"))
    demo.check(len(found) == 1, "one message", found)

    async def host_queued() -> bool:
        return "host_queued" in await bob.text("message_status", msg_id=found[0]["msg_id"])

    await until(host_queued, "state host_queued")
    text = await bob.text("failed_deliveries", action="list")
    demo.check(text == "[]", "no failed delivery left", text)
    demo.step("the message is host_queued: in Codex's queue; whether a turn runs is not claimed")
    text = await bob.text("acknowledge_messages", messages=found)
    demo.check(text.startswith("1 newly"), "1 newly acknowledged", text)
    demo.check("No unread" in await bob.text("receive_messages"), "nothing unread", "unread mail")
    demo.step("fetched and acknowledged")


def main() -> None:
    """Run it; exit 1 when a step is not as it should be."""
    demo = Demo(Path(tempfile.mkdtemp(prefix="interlink-demo-")))
    try:
        anyio.run(codex_job, demo)
    except* StepFailed as group:
        for failed in group.exceptions:
            print(f"NOT AS IT SHOULD BE after step {demo.number}: {failed}")
        print(f"the files are kept in {demo.folder}")
        sys.exit(1)
    shutil.rmtree(demo.folder)
    print(f"All {demo.number} steps as they should be, in {time.monotonic() - demo.started:.1f} s.")


if __name__ == "__main__":
    main()
