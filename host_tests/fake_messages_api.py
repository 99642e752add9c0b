"""A Messages API on the loopback address whose model is a Python function: what a real Claude Code talks to.

    def model(turn: Turn) -> Say | Use: ...

    with FakeMessages(model) as api:
        env["ANTHROPIC_BASE_URL"] = api.url

A turn is what the host sent since it last gave the floor to the model: the text that began it, and the results of
the tools that were called in it. The server keeps no state of its own: each request carries the conversation.
"""

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Say(NamedTuple):
    """The model ends its turn with this text."""

    text: str


class Use(NamedTuple):
    """The model calls a tool."""

    tool: str
    arguments: dict[str, Any]


class Fail(NamedTuple):
    """The API answers with an error."""

    status: int


class Result(NamedTuple):
    """What a tool call of this turn gave."""

    text: str
    failed: bool


class Turn(NamedTuple):
    """`prompt`: the last text before the model's first word of this turn; `results`: of its calls so far."""

    prompt: str
    results: list[Result]


Answer = Say | Use | Fail
Model = Callable[[Turn], Answer]


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or [])


def _texts(blocks: list[dict[str, Any]]) -> list[str]:
    """The texts of a message without those that the host adds about tokens."""
    found = [str(block.get("text", "")) for block in blocks if block.get("type") == "text"]
    return [text for text in found if "<total_tokens>" not in text]


def _result(block: dict[str, Any]) -> Result:
    content = block.get("content")
    parts = [content] if isinstance(content, str) else _texts(list(content or []))
    return Result("\n".join(parts), bool(block.get("is_error")))


def turn_of(messages: list[dict[str, Any]]) -> Turn:
    """The turn that these messages leave the model in."""
    results: list[Result] = []
    for message in reversed(messages):
        if message.get("role") != "user":
            continue
        blocks = _blocks(message)
        returned = [_result(block) for block in blocks if block.get("type") == "tool_result"]
        results = returned + results
        if not returned:
            # Several inputs of the host are merged into one message: the last text is the newest.
            return Turn((_texts(blocks) or [""])[-1], results)
    return Turn("", results)


class FakeMessages:
    """The server; `requests` are the bodies of the model steps so far."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.requests: list[dict[str, Any]] = []
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.api = self
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> "FakeMessages":
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, body: dict[str, Any]) -> tuple[str, Answer]:
        """(id of this step, what the model does now)."""
        with self._lock:
            self.requests.append(body)
            number = next(self._numbers)
        return f"{number:024d}", self.model(turn_of(body.get("messages") or []))

    def tool_results(self) -> list[Result]:
        """What the tools gave in the last request's turn."""
        return turn_of(self.requests[-1]["messages"]).results if self.requests else []


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    api: FakeMessages

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # an interrupted turn closes its connection: the host's affair


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._send(200, b"", "text/plain")

    def do_GET(self) -> None:
        self._error(404)

    def do_POST(self) -> None:
        body = json.loads(self._body() or b"{}")
        path = self.path.partition("?")[0]
        if path == "/v1/messages/count_tokens":
            self._json(200, {"input_tokens": 1})
            return
        if path != "/v1/messages":
            self._error(404)
            return
        assert isinstance(self.server, _Server)
        ident, answer = self.server.api.answer(body)
        if isinstance(answer, Fail):
            self._error(answer.status)
            return
        message = _message(ident, body.get("model", "fake"), answer)
        if body.get("stream"):
            self._send(200, "".join(_events(message)).encode("utf-8"), "text/event-stream")
        else:
            self._json(200, message)

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        parts = []
        while size := int(self.rfile.readline().strip() or b"0", 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _json(self, status: int, value: object) -> None:
        self._send(status, json.dumps(value).encode("utf-8"), "application/json")

    def _error(self, status: int) -> None:
        self._json(status, {"type": "error", "error": {"type": "invalid_request_error", "message": "scripted"}})

    def _send(self, status: int, data: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = True


def _message(ident: str, model: str, answer: Say | Use) -> dict[str, Any]:
    block: dict[str, Any] = (
        {"type": "text", "text": answer.text}
        if isinstance(answer, Say)
        else {
            "type": "tool_use",
            "id": f"toolu_{ident}",
            "name": answer.tool,
            "input": answer.arguments,
        }
    )
    return {
        "id": f"msg_{ident}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [block],
        "stop_reason": "end_turn" if isinstance(answer, Say) else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _events(message: dict[str, Any]) -> Iterator[str]:
    """The message as the stream that brings it."""
    (block,) = message["content"]
    if block["type"] == "text":
        empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
    else:
        empty = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    start = {**message, "content": [], "stop_reason": None}
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield _event("message_start", message=start)
    yield _event("content_block_start", index=0, content_block=empty)
    yield _event("content_block_delta", index=0, delta=delta)
    yield _event("content_block_stop", index=0)
    yield _event("message_delta", delta=stop, usage={"output_tokens": 1})
    yield _event("message_stop")


def _event(kind: str, **fields: object) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"
