"""Stands in front of a program and writes down what is asked of it: `recorder.py LOG calls|runs PROGRAM ARGS...`.

`calls`: an MCP server; each tools/call is a line `{"at", "pid", "name", "arguments", "meta"}` before the server
sees it. `runs`: any program; its arguments are a line `{"at", "pid", "argv"}`, then it takes this process over.
`at`: ns on the monotonic clock.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def note(log: str, **what: Any) -> None:
    line = json.dumps({"at": time.monotonic_ns(), "pid": os.getpid(), **what}) + "\n"
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, line.encode("utf-8"))
    os.close(file)


def noted(log: Path) -> list[dict[str, Any]]:
    """What is in the log so far."""
    return [json.loads(line) for line in log.read_text("utf-8").splitlines()] if log.exists() else []


def _calls(log: str, argv: list[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    child = subprocess.Popen(argv, stdin=subprocess.PIPE)
    assert child.stdin is not None
    try:
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if message.get("method") == "tools/call":
                asked = message["params"]
                given, meta = asked.get("arguments"), asked.get("_meta") or {}
                note(log, name=asked["name"], arguments=given, meta=meta)
            child.stdin.write(line)
            child.stdin.flush()
        child.stdin.close()
        return child.wait()
    finally:
        child.terminate()
        child.wait()


if __name__ == "__main__":
    _log, _mode, *_argv = sys.argv[1:]
    if _mode == "calls":
        sys.exit(_calls(_log, _argv))
    note(_log, argv=_argv[1:])
    os.execv(_argv[0], _argv)
