"""A small server for the tests of the serving room. Run as a program; the environment says how it behaves.

SAMPLE_TRACE      file for one line at each step of the body: entering, entered, leaving, left
SAMPLE_CHANNEL=1  declare the channel
SAMPLE_ENTER      what entering does: "fail", "hang", or nothing
SAMPLE_LEAVE      what leaving does: "hang", "fail", or nothing
SAMPLE_PUSH       pushes this content once the host has shaken hands
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from interlink import log
from interlink.errors import UsageError
from interlink.settings import load
from interlink.tools.serving import Answer, Call, Closed, Connection, ToolDef, serve

ENV = os.environ
OBJECT = {"type": "object"}
FORM = {"type": "object", "properties": {"confirm": {"type": "boolean"}}, "required": ["confirm"]}


def trace(text: str) -> None:
    if path := ENV.get("SAMPLE_TRACE"):
        with open(path, "a") as f:
            f.write(f"{text}\n")


@asynccontextmanager
async def body(connection: Connection) -> AsyncIterator[None]:
    trace("entering")
    match ENV.get("SAMPLE_ENTER"):
        case "fail":
            raise OSError("no such relay")
        case "hang":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                trace("entering cancelled")
                raise
    pusher = asyncio.create_task(push(connection, ENV["SAMPLE_PUSH"])) if "SAMPLE_PUSH" in ENV else None
    trace("entered")
    try:
        yield
    finally:
        trace("leaving")
        if pusher is not None:
            pusher.cancel()
        match ENV.get("SAMPLE_LEAVE"):
            case "fail":
                raise OSError("nothing to unregister from")
            case "hang":
                await asyncio.Event().wait()
        await asyncio.sleep(0.02)
        trace("left")


async def push(connection: Connection, content: str) -> None:
    try:
        await connection.push_channel(content, {"sender": "Interlink", "msg_id": "n1"})
        trace("pushed")
    except Closed:
        trace("push refused")


async def call(one: Call) -> Answer:
    a = one.arguments
    connection = one.connection
    match one.name:
        case "echo":
            return Answer(a.get("text"), a.get("structured"), is_error=a.get("is_error", False))
        case "repeat":
            trace("repeating")
            return Answer(str(a["text"]) * int(a["times"]))
        case "seen":
            return Answer(None, {"arguments": a, "meta": one.meta})
        case "host":
            return Answer(f"{connection.client_name} {connection.client_version} {connection.can_elicit}")
        case "surrogate":
            return Answer("a\ud800b", {"k\ud800": ["\udfff", {"x": "\ud83d"}], "n": float("nan")})
        case "refuse":
            raise UsageError("no peer \ud800: see list_peers")
        case "crash":
            raise {"value": ValueError, "exit": SystemExit}[a.get("how", "value")]("secret 4711")
        case "unwritable":
            deep: dict[str, object] = {}
            for _ in range(400):
                deep = {"in": deep}
            return Answer("x", deep)
        case "wait":
            trace(f"waiting {a['tag']}")
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                trace(f"cancelled {a['tag']}")
                raise
        case "brief":
            await asyncio.sleep(0.1)
            return Answer("done")
        case "block":
            trace("blocking")
            time.sleep(3600)  # noqa: ASYNC251 - what a tool must not do
        case "noise":
            print("print")
            os.write(1, b"os.write\n")
            await (await asyncio.create_subprocess_exec("echo", "child", stdin=None)).wait()
            sys.stdout.flush()
            return Answer(f"stdin={sys.stdin.read()!r}")
        case "flood":
            trace("blocking")
            for _ in range(4000):
                log.event("flood", text="x" * 300)
            return Answer("written")
        case "push":
            try:
                await asyncio.wait_for(connection.push_channel(a["content"], a["meta"]), a.get("timeout", 10))
            except TimeoutError:
                trace("push timed out")
                return Answer("timeout")
            return Answer("pushed")
        case "elicit":
            return Answer(repr(await connection.elicit("Trust \ud800bob?", FORM, a.get("timeout", 10))))
    raise AssertionError(one.name)


def tool(name: str, **flags: bool) -> ToolDef:
    given = {"read_only": True, "destructive": False, "idempotent": True, "open_world": False, **flags}
    return ToolDef(name, name.title(), f"Does {name}", OBJECT, **given)


NAMES = "echo repeat seen host surrogate refuse crash unwritable wait brief block noise flood push elicit".split()
TOOLS = [
    *map(tool, NAMES),
    tool("bind_codex_session", hidden=True),
    ToolDef("send", "Send", "Sends", OBJECT, False, True, False, True, {"type": "object", "required": ["a"]}),
]


def main() -> None:
    instructions = "i" * 40
    settings = load(ENV)
    channel = ENV.get("SAMPLE_CHANNEL") == "1"
    asyncio.run(serve("sample", "1.2", instructions, TOOLS, call, channel=channel, settings=settings, body=body))


if __name__ == "__main__":
    main()
