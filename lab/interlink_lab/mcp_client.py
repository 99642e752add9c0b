"""A host, as far as MCP goes: starts a server process over stdio and talks to it with the SDK's own client.

async with open_client(["interlink-mcp"], env) as session:
    result = await session.call_tool("list_peers", {})
    print(await session.text("send_message", to="bob", text="hello"))
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as t
from anyio.abc import Process
from mcp.client.extension import NotificationBinding
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from pydantic import BaseModel

from interlink_lab.tokens import CHANNEL

CHANNEL_METHOD = f"notifications/{CHANNEL}"
PROBED_VERSION = "2026-07-28"
LEAVE_S = 10.0
PUSHES = 10_000  # kept until somebody asks for them

Person = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any] | None]]


class Push(BaseModel):
    """One notice that came through the channel."""

    content: str
    meta: dict[str, str]


class ToolFailed(Exception):
    """A tool answered with an error; the text is its answer."""


class Session(ClientSession):
    """The SDK's client session, and what a test wants beside it.

    `process`: the server. `exit_code`: how it ended, once the block is left; None when it had to be killed.
    """

    def __init__(
        self, process: Process, read: Any, write: Any, person: Person | None, info: t.Implementation
    ) -> None:
        self.process = process
        self.exit_code: int | None = None
        self._take_push, self._pushes = anyio.create_memory_object_stream[Push](PUSHES)
        self._person = person
        super().__init__(
            read,
            write,
            client_info=info,
            elicitation_callback=self._elicited if person else None,
            notification_bindings=[
                NotificationBinding(method=CHANNEL_METHOD, params_type=Push, handler=self._take_push.send)
            ],
        )

    async def _elicited(self, context: ClientRequestContext, params: t.ElicitRequestParams) -> t.ElicitResult:
        assert self._person is not None
        schema = params.requested_schema if isinstance(params, t.ElicitRequestFormParams) else {}
        content = await self._person(params.message, schema)
        return t.ElicitResult(action="decline" if content is None else "accept", content=content)

    async def text(self, tool: str, /, **arguments: object) -> str:
        """Call a tool and return its text. Raises ToolFailed for an error answer."""
        result = await self.call_tool(tool, arguments)
        text = "\n".join(block.text for block in result.content if isinstance(block, t.TextContent))
        if result.is_error:
            raise ToolFailed(text)
        return text

    async def push(self, timeout_s: float = 20) -> Push:
        """The next notice that came through the channel. TimeoutError after `timeout_s` seconds."""
        with anyio.fail_after(timeout_s):
            return await self._pushes.receive()

    async def __aexit__(self, *exc: Any) -> bool | None:
        try:
            return await super().__aexit__(*exc)
        finally:
            self._take_push.close()
            self._pushes.close()


@asynccontextmanager
async def open_client(
    argv: Sequence[str],
    env: Mapping[str, str] | None = None,
    *,
    cwd: str | os.PathLike[str] | None = None,
    stderr: str | os.PathLike[str] | None = None,
    person: Person | None = None,
    probe: bool = False,
    name: str = "claude-code",
    version: str = "0",
) -> AsyncIterator[Session]:
    """Start the server, shake hands, and at the end close its stdin and wait; kill it after LEAVE_S.

    `env`: its whole environment (None: this process's). `stderr`: a file to append its log to (None: ours).
    `person`: answers forms, called with message and schema; it declines by None. Without it the client
    declares no forms. `probe`: ask `server/discover` first, as newer hosts do.
    MCPError: the server refused the handshake or ended before it.
    """
    log = os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if stderr else None
    try:
        process = await anyio.open_process(list(argv), env=None if env is None else dict(env), cwd=cwd, stderr=log)
    finally:
        if log is not None:
            os.close(log)
    session = None
    try:
        async with _lines(process) as (read, write):
            info = t.Implementation(name=name, version=version)
            async with Session(process, read, write, person, info) as session:
                if probe:
                    await _probe(session)
                await session.initialize()
                yield session
    finally:
        with anyio.CancelScope(shield=True):
            code = await _leave(process)
        if session is not None:
            session.exit_code = code


async def _probe(session: ClientSession) -> None:
    try:
        await session.send_discover(PROBED_VERSION)
    except MCPError:
        return  # the server knows the older handshake alone, which comes next


async def _leave(process: Process) -> int | None:
    """Close stdin, read stdout to its end, wait; kill what does not go. The exit code, None when killed."""
    assert process.stdin is not None and process.stdout is not None
    code: int | None = None
    with anyio.move_on_after(LEAVE_S):
        try:
            await process.stdin.aclose()
            async for _ in process.stdout:
                pass
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            pass  # it ended with bytes under way
        code = await process.wait()
    if code is None:
        process.kill()
        await process.wait()
    await process.aclose()
    return code


@asynccontextmanager
async def _lines(process: Process) -> AsyncIterator[tuple[Any, Any]]:
    """The SDK's stream pair over the process's stdin and stdout."""
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None and stdout is not None
    to_session, read = anyio.create_memory_object_stream[SessionMessage | Exception](16)
    write, from_session = anyio.create_memory_object_stream[SessionMessage](0)

    async def reading() -> None:
        rest = b""
        async with to_session:
            async for chunk in stdout:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    message = t.jsonrpc_message_adapter.validate_json(line, by_name=False)
                    try:
                        await to_session.send(SessionMessage(message))
                    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                        return  # nobody listens any more

    async def writing() -> None:
        async for item in from_session:
            data = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
            try:
                await stdin.send(data)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                await to_session.aclose()  # the server is gone: nobody must wait for its answers
                return

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(reading)
            group.start_soon(writing)
            yield read, write
            group.cancel_scope.cancel()
    finally:
        for stream in (to_session, read, write, from_session):
            stream.close()
