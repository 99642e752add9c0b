"""A Responses API on the loopback address whose model is a Python function: what a real Codex talks to.

The model's side (`Turn`, `Say`, `Use`) is that of `fake_messages_api`; a tool is named `SERVER.tool` here, since
this host keeps the tools of each MCP server in a namespace; `:NAMESPACE.tool` is one of the host's own.
"""

import itertools
import json
import threading
from typing import Any

from host_tests.fake_http import FakeServer, Reply, Request, json_reply, stream_reply
from host_tests.fake_messages_api import Fail, Model, Result, Say, Turn, Use


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


def turn_of(items: list[dict[str, Any]]) -> Turn:
    """The turn that these items leave the model in."""
    results: list[Result] = []
    for item in reversed(items):
        if item.get("type") == "function_call_output":
            results.insert(0, Result(_text(item.get("output")), False))
        elif item.get("type", "message") == "message" and item.get("role") == "user":
            return Turn(_text(item.get("content")), results)
    return Turn("", results)


class FakeResponses(FakeServer):
    """The server; `requests` are (thread id, body) of the model steps so far, `triggers` what began their turns.

    It expects what a real host sends: the one path, a stream, a model, the thread's id, tools.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.triggers: list[str] = []
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"{self.origin}/v1"

    def turns(self) -> list[Turn]:
        """The turn of each model step so far."""
        return [turn_of(body["input"]) for _thread, body in self.requests]

    def post(self, request: Request) -> Reply:
        body, thread = request.body, request.headers.get("thread-id", "")
        if request.path != "/v1/responses":
            self.expect(False, f"POST {request.path}")
            return json_reply(404, {})
        self.expect(body.get("stream") is True, "a model step without stream")
        self.expect(bool(body.get("model")), "a model step that names no model")
        self.expect(bool(body.get("tools")), "a model step without tools")
        self.expect(bool(thread), "a model step without a thread id")
        with self._lock:
            self.requests.append((thread, body))
            self.triggers.append(_trigger(request))
            number = next(self._numbers)
        answer = self.model(turn_of(body.get("input") or []))
        if isinstance(answer, Fail):
            return json_reply(answer.status, {"error": {"message": "scripted"}})
        done = {"type": "response.output_item.done", "output_index": 0, "item": _item(number, answer)}
        end = {"type": "response.completed", "response": {"id": f"resp_{number}"}}
        return stream_reply("".join(f"data: {json.dumps(event)}\n\n" for event in (done, end)))


def _trigger(request: Request) -> str:
    return str(json.loads(request.headers.get("x-codex-turn-metadata") or "{}").get("turn_trigger", ""))


def _item(number: int, answer: Say | Use) -> dict[str, Any]:
    if isinstance(answer, Say):
        content = [{"type": "output_text", "text": answer.text}]
        return {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": content}
    server, _, tool = answer.tool.partition(".")
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number}",
        "namespace": server[1:] if server.startswith(":") else f"mcp__{server}",
        "name": tool,
        "arguments": json.dumps(answer.arguments),
    }
