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
from typing import Any, NamedTuple

from host_tests.fake_http import FakeServer, Reply, Request, json_reply, stream_reply

OURS = "mcp__plugin_interlink_"  # what this host puts before the names of the plugin's tools
API_KEY = "none"  # what the hosts of these tests are given
_ERROR = {"type": "error", "error": {"type": "invalid_request_error", "message": "scripted"}}


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


class FakeMessages(FakeServer):
    """The server; `requests` are the bodies of the model steps so far.

    It expects what a real host sends: a stream, the key that the tests give, a model, the session's id, tools.
    Ours are among them, or announced for the host's own search (`offered`).
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        self.requests: list[dict[str, Any]] = []
        self.sessions: list[str] = []
        self.sides: list[dict[str, Any]] | None = None  # a list: steps without tools are expected, and kept here
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return self.origin

    def post(self, request: Request) -> Reply:
        if request.path == "/v1/messages/count_tokens":
            return json_reply(200, {"input_tokens": 1})
        if request.path != "/v1/messages":
            self.expect(False, f"POST {request.path}")
            return json_reply(404, _ERROR)
        body = request.body
        self.expect(body.get("stream") is True, "a model step without stream")
        self.expect(request.headers.get("x-api-key") == API_KEY, "a model step with another key")
        self.expect(bool(body.get("model")), "a model step that names no model")
        if not body.get("tools") and self.sides is not None:
            self.sides.append(body)  # such as a title for the session
            return self._answer("side", body, Say("OK"))
        self.expect(bool(body.get("tools")), "a model step without tools")
        with self._lock:
            self.requests.append(body)
            self.sessions.append(request.headers.get("x-claude-code-session-id", ""))
            number = next(self._numbers)
        self.expect(bool(self.sessions[-1]), "a model step without a session id")
        answer = self.model(turn_of(body.get("messages") or []))
        if isinstance(answer, Fail):
            return json_reply(answer.status, _ERROR)
        return self._answer(f"{number:024d}", body, answer)

    def _answer(self, ident: str, body: dict[str, Any], answer: Say | Use) -> Reply:
        message = _message(ident, body.get("model", "fake"), answer)
        return stream_reply("".join(_events(message))) if body.get("stream") else json_reply(200, message)

    def offered(self) -> set[str]:
        """How the last request brought our tools: with their schemas (`tools`), or by name, `deferred`."""
        body = self.requests[-1] if self.requests else {}
        whole = any(OURS in str(tool.get("name")) for tool in body.get("tools") or [])
        named = any(
            OURS in text and "deferred tools" in text
            for message in body.get("messages") or []
            for text in _texts(_blocks(message))
        )
        return {name for name, there in (("tools", whole), ("deferred", named)) if there}

    def tool_results(self) -> list[Result]:
        """What the tools gave in the last request's turn."""
        return turn_of(self.requests[-1]["messages"]).results if self.requests else []


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
