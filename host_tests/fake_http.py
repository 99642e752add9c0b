"""The HTTP half of the scripted APIs: a server on the loopback address that says what was wrong with a request.

    class Fake(FakeServer):
        def post(self, request: Request) -> Reply: ...

    with Fake() as api: ...        # at the end: AssertionError if a request was not what it should be

`problems` are requests that no host of ours should send: another path, no stream, no key. They are kept and
raised at the end, in the test's own thread.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

GUARD_S = 60.0  # against hangs, never a measure


class Request(NamedTuple):
    """One POST. `path` without its query; header names in lower case."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Reply(NamedTuple):
    """Status, content type, text."""

    status: int
    kind: str
    text: str


def json_reply(status: int, value: object) -> Reply:
    return Reply(status, "application/json", json.dumps(value))


def stream_reply(events: str) -> Reply:
    return Reply(200, "text/event-stream", events)


class FakeServer:
    """Starts and ends with `with`. `post` runs in a thread of its own for each request."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.api = self
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(GUARD_S)
        assert kind is not None or not self.problems, self.problems

    @property
    def origin(self) -> str:
        """Scheme, address and port."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def expect(self, holds: bool, what: str) -> None:
        """Keep it as a problem unless it holds."""
        if not holds and what not in self.problems:
            self.problems.append(what)

    def post(self, request: Request) -> Reply:
        """The answer to one POST."""
        raise NotImplementedError


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    api: FakeServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        # An interrupted turn closes its connection, which is the host's affair. Anything else is the test's.
        self.api.expect(isinstance(error, ConnectionError), f"no answer was given: {error!r}")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._send(Reply(200, "text/plain", ""))

    def do_GET(self) -> None:
        self.server.api.expect(False, f"GET {self.path}")
        self._send(json_reply(404, {}))

    def do_POST(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.path.partition("?")[0], headers, json.loads(self._body() or b"{}"))
        self._send(self.server.api.post(request))

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        parts = []
        while size := int(self.rfile.readline().strip() or b"0", 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _send(self, reply: Reply) -> None:
        data = reply.text.encode("utf-8")
        self.send_response(reply.status)
        self.send_header("content-type", reply.kind)
        self.send_header("content-length", str(len(data)))
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = True
