"""The room that keeps the MCP SDK: `serve` runs one server over stdin and stdout until its host leaves.

    await serve("interlink", "1.0", INSTRUCTIONS, TOOLS, call, channel=False, settings=settings, body=body)

Importing this takes most of a second and some 45 MB, so only the server does (`surface` has the types alone).
What the SDK would get wrong is mended here and in `frames` and `stdio`: see H17 to H20 of the requirements.
The SDK serves the handshake form alone (`serve_loop`): a `server/discover` probe before `initialize` is answered
"method not found" and never locks the connection to the newer protocol (H9, H19).
"""

import asyncio
import difflib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import mcp_types as t
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_loop
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from interlink import log
from interlink.errors import InterlinkError, SetupError
from interlink.settings import Settings
from interlink.text import clean_line, shown_name, utf8
from interlink.tools.frames import clean
from interlink.tools.stdio import STDIN_CLOSED, Ending, LineReader, LineWriter, claim
from interlink.tools.streams import CLEANED, Inbound, Outbound, failure
from interlink.tools.surface import Answer, Call, Closed, Connection, ToolDef

__all__ = ["Answer", "Call", "Closed", "Connection", "ToolDef", "check", "serve"]

CHANNEL = "claude/channel"
CHANNEL_METHOD = "notifications/claude/channel"
INSTRUCTIONS_MAX_CHARS = 2048
NAME_CHARS = 64
NOT_UNICODE = (
    "The arguments hold text that is not valid Unicode (a lone surrogate such as \\ud800, or bytes that are "
    "not UTF-8). Nothing was done. Send the text again without it."
)

Handler = Callable[[Call], Awaitable[Answer]]
Body = Callable[[Connection], AbstractAsyncContextManager[object]]
_Context = ServerRequestContext[Any, Any]


async def serve(
    name: str,
    version: str,
    instructions: str,
    tools: Sequence[ToolDef],
    call: Handler,
    *,
    channel: bool,
    settings: Settings,
    body: Body,
) -> None:
    """Serve until stdin closes, a signal comes, or stdout breaks; then clean up and return (H18).

    `call` answers each tool call, many at a time; it is cancelled when the host cancels the call. InterlinkError
    becomes an error answer with its text, any other exception one that tells nothing of it. `body(connection)` is
    entered beside the first handshake and left, with its clean-up, when serving ends; should it fail, that is
    logged and serving goes on (H7). `channel` declares `claude/channel` (N1).

    Call it once, in the main thread, as the last thing a program does: the process is ended with exit code 0
    `settings.shutdown_grace_s` after the end began, whether this has returned or not.
    ValueError as of `check`.
    """
    server, connection = _build(name, version, instructions, tools, call)
    options = server.create_initialization_options(experimental_capabilities={CHANNEL: {}} if channel else None)
    _quiet_sdk_log()

    def on_begin(why: str) -> None:
        log.event("server_ending", why=why)
        if why != STDIN_CLOSED:  # there the lines before the end are served first
            reader.stop()
            writer.release()

    ending = Ending(settings.shutdown_grace_s, on_begin)
    ending.catch_signals()
    from_host, to_host = claim()
    writer = LineWriter(to_host, ending)
    reader = LineReader(from_host, settings.request_line_max_bytes, ending)
    inbound = Inbound(reader, writer, settings)
    outbound = Outbound(writer, inbound)
    connection.open(outbound, channel)
    holding = _Holding(body, connection)
    try:
        await serve_loop(server, inbound, outbound, lifespan_state={}, init_options=options)
    finally:
        ending.begin("serving ended")
        connection.close()
        await holding.leave()
        await writer.drain(settings.shutdown_settle_s)
        ending.ignore_signals()


class _Holding:
    """Enters the body in a task of its own and leaves it there."""

    def __init__(self, body: Body, connection: Connection) -> None:
        self._leave = asyncio.Event()
        self._entered = False
        self._task = asyncio.create_task(self._hold(body, connection), name="body")

    async def leave(self) -> None:
        """Returns when the clean-up is done; a body that is still being entered is cancelled."""
        self._leave.set()
        if not self._entered:
            self._task.cancel()
        await asyncio.wait({self._task})

    async def _hold(self, body: Body, connection: Connection) -> None:
        try:
            async with body(connection):
                self._entered = True
                await self._leave.wait()
        except Exception as exc:  # noqa: BLE001 - the host would remember a server that ends at its start (H7)
            log.event("runtime_failed", when="ending" if self._leave.is_set() else "running", **failure(exc))


class _Connection:
    """`Connection` over the SDK's session."""

    def __init__(self) -> None:
        self._session: ServerSession | None = None
        self._initialized = asyncio.Event()
        self._outbound: Outbound | None = None
        self._channel = False
        self._closed = False

    def open(self, outbound: Outbound, channel: bool) -> None:
        self._outbound, self._channel = outbound, channel

    def close(self) -> None:
        self._closed = True
        self._initialized.set()

    def see(self, session: ServerSession) -> None:
        """Any request's session is good for the whole connection; a host may call before it says `initialized`."""
        self._session = self._session or session

    async def on_initialized(self, ctx: _Context, _params: t.NotificationParams) -> None:
        self.see(ctx.session)
        if not self._initialized.is_set():
            log.event("host_connected", client=self.client_name, version=self.client_version)
        self._initialized.set()

    @property
    def client_name(self) -> str:
        info = self._info()
        return clean_line(info.name, NAME_CHARS) if info else ""

    @property
    def client_version(self) -> str:
        info = self._info()
        return clean_line(info.version, NAME_CHARS) if info else ""

    def _info(self) -> t.Implementation | None:
        params = self._session.client_params if self._session else None
        return params.client_info if params else None

    @property
    def can_elicit(self) -> bool:
        capabilities = self._session.client_capabilities if self._session else None
        asked = capabilities.elicitation if capabilities else None
        # Hosts before the form/url split declare an empty object and mean forms.
        return asked is not None and (asked.form is not None or asked.url is None)

    async def initialized(self) -> None:
        await self._initialized.wait()
        if self._closed:
            raise Closed("the server is ending")

    async def push_channel(self, content: str, meta: Mapping[str, str]) -> None:
        if not self._channel or self._outbound is None:
            raise SetupError("the host's channel is off: set INTERLINK_CHANNELS=1 where the server is started")
        await self.initialized()
        # A plain JSON-RPC notification: the SDK's own type would drop `content` and rename `meta` (H20).
        params = {"content": utf8(content), "meta": {utf8(k): utf8(v) for k, v in meta.items()}}
        await self._outbound.push(t.JSONRPCNotification(jsonrpc="2.0", method=CHANNEL_METHOD, params=params))

    async def elicit(self, message: str, schema: dict[str, Any], timeout_s: float) -> dict[str, Any] | None:
        if self._session is None or not self.can_elicit:
            return None
        params = t.ElicitRequestFormParams(message=utf8(message), requested_schema=clean(schema))
        try:
            with anyio.move_on_after(timeout_s):
                result = await self._session.send_request(t.ElicitRequest(params=params), t.ElicitResult)
                return dict(result.content or {}) if result.action == "accept" else None
        except (MCPError, ValidationError) as exc:
            log.event("elicit_failed", **failure(exc))
        return None


def check(instructions: str, tools: Sequence[ToolDef]) -> None:
    """ValueError for what a host would cut or refuse."""
    if len(instructions) >= INSTRUCTIONS_MAX_CHARS:
        raise ValueError(f"instructions of {len(instructions)} characters: hosts cut them at 2,048")
    if len({tool.name for tool in tools}) != len(tools):
        raise ValueError("two tools have the same name")
    for tool in tools:
        for schema in (tool.input_schema, tool.output_schema):
            if schema is not None and schema.get("type") != "object":
                raise ValueError(f"{tool.name}: a schema must have type object")


def _build(
    name: str, version: str, instructions: str, tools: Sequence[ToolDef], call: Handler
) -> tuple["Server[Any]", _Connection]:
    check(instructions, tools)
    listed = t.ListToolsResult(tools=[_tool(tool) for tool in tools])
    names = [tool.name for tool in tools]
    shown = [tool.name for tool in tools if not tool.hidden]
    connection = _Connection()

    async def on_list(_ctx: _Context, _params: t.PaginatedRequestParams | None) -> t.ListToolsResult:
        return listed

    async def on_call(ctx: _Context, params: t.CallToolRequestParams) -> t.CallToolResult:
        if ctx.request is CLEANED:
            return _result(Answer(NOT_UNICODE, is_error=True))
        if params.name not in names:
            return _result(Answer(_unknown(params.name, shown), is_error=True))
        connection.see(ctx.session)
        meta = (ctx.params or {}).get("_meta")
        one = Call(params.name, params.arguments or {}, dict(meta) if isinstance(meta, dict) else {}, connection)
        try:
            return _result(await call(one))
        except InterlinkError as exc:
            return _result(Answer(str(exc), is_error=True))
        except (Exception, SystemExit) as exc:  # noqa: BLE001 - one call fails, the server lives; told to the log alone
            log.event("tool_failed", tool=params.name, **failure(exc))
            text = (
                f"{params.name} failed by a fault in interlink ({type(exc).__name__}); a part of it may have been "
                "done. The server's log on stderr (event=tool_failed) says where."
            )
            return _result(Answer(text, is_error=True))

    server: Server[Any] = Server(
        name, version=version, instructions=instructions, on_list_tools=on_list, on_call_tool=on_call
    )
    server.add_notification_handler("notifications/initialized", t.NotificationParams, connection.on_initialized)
    return server, connection


def _tool(tool: ToolDef) -> t.Tool:
    return t.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=t.ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.read_only,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.idempotent,
            open_world_hint=tool.open_world,
        ),
        _meta={"ui": {"visibility": ["app"]}} if tool.hidden else None,
    )


def _unknown(name: str, shown: Sequence[str]) -> str:
    near = difflib.get_close_matches(name[:NAME_CHARS], shown, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"There are: {', '.join(shown)}."
    return f"There is no tool {shown_name(name, NAME_CHARS)}. {hint}"


def _result(answer: Answer) -> t.CallToolResult:
    content: list[t.ContentBlock] = []
    if answer.text is not None:
        content.append(t.TextContent(text=utf8(answer.text)))
    structured = None if answer.structured is None else clean(answer.structured)
    return t.CallToolResult(content=content, structured_content=structured, is_error=answer.is_error)


class _OneLine(logging.Handler):
    """The log of libraries, one event a line, without tracebacks."""

    def emit(self, record: logging.LogRecord) -> None:
        exc = record.exc_info[1] if record.exc_info else None
        fields = {} if exc is None else failure(exc)
        fields.pop("text", None)  # a validation error of the SDK's holds the body
        log.event("library", logger=record.name, level=record.levelname, message=record.getMessage(), **fields)


def _quiet_sdk_log() -> None:
    root = logging.getLogger()
    root.handlers[:] = [_OneLine(logging.WARNING)]
    root.setLevel(logging.WARNING)
