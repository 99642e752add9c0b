"""A Responses API on the loopback address whose model is a Python function: what a real Codex talks to.

The model's side (`Turn`, `Say`, `Use`) is that of `fake_messages_api`; a tool is named `SERVER.tool` here, since
this host keeps the tools of each MCP server in a namespace.
"""

import itertools
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

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


class FakeResponses:
    """The server; `requests` are (thread id, body) of the model steps so far."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.api = self
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> "FakeResponses":
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def turns(self) -> list[Turn]:
        """The turn of each model step so far."""
        return [turn_of(body["input"]) for _thread, body in self.requests]

    def step(self, thread: str, body: dict[str, Any]) -> tuple[int, str]:
        """(status, body) of the answer to one step of the model."""
        with self._lock:
            self.requests.append((thread, body))
            number = next(self._numbers)
        answer = self.model(turn_of(body.get("input") or []))
        if isinstance(answer, Fail):
            return answer.status, json.dumps({"error": {"message": "scripted"}})
        done = {"type": "response.output_item.done", "output_index": 0, "item": _item(number, answer)}
        end = {"type": "response.completed", "response": {"id": f"resp_{number}"}}
        return 200, "".join(f"data: {json.dumps(event)}\n\n" for event in (done, end))


def _item(number: int, answer: Say | Use) -> dict[str, Any]:
    if isinstance(answer, Say):
        content = [{"type": "output_text", "text": answer.text}]
        return {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": content}
    server, _, tool = answer.tool.partition(".")
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number}",
        "namespace": f"mcp__{server}",
        "name": tool,
        "arguments": json.dumps(answer.arguments),
    }


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    api: FakeResponses

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # an interrupted turn closes its connection: the host's affair


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._send(404, "{}", "application/json")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        if not self.path.startswith("/v1/responses"):
            self._send(404, "{}", "application/json")
            return
        assert isinstance(self.server, _Server)
        status, text = self.server.api.step(self.headers.get("thread-id", ""), body)
        self._send(status, text, "text/event-stream" if status == 200 else "application/json")

    def _send(self, status: int, text: str, kind: str) -> None:
        data = text.encode("utf-8")
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = True
