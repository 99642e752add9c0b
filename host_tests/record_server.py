"""In front of an MCP server's command: `record_server.py LOG COMMAND...` notes what is asked; becomes the command.

One JSON line for the start (its session, names of the host's variables), for each request of the handshake, and
for each `tools/call` (its name, the names in its `_meta`); each with its time (ns, monotonic). A child of this
process hands the bytes on as they are; the server stays the host's own child.
"""

import json
import os
import sys
import time
from typing import Any

HANDSHAKE = ("server/discover", "initialize", "tools/list")
VARIABLES = ("CLAUDE", "AI_AGENT")


def main() -> None:
    log, *command = sys.argv[1:]
    session = os.environ.get("CLAUDE_CODE_SESSION_ID")
    names = sorted(name for name in os.environ if name.startswith(VARIABLES))
    note(log, kind="server", session=session, env=names)
    read, write = os.pipe()
    if os.fork() == 0:
        os.close(read)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the host waits for the end of the server's output
        hand_on(log, write)
        os._exit(0)
    os.close(write)
    os.dup2(read, 0)
    os.close(read)
    os.execvp(command[0], command)


def note(log: str, **line: Any) -> None:
    with open(log, "a", encoding="utf-8") as file:
        file.write(json.dumps({"at": time.monotonic_ns(), **line}) + "\n")


def hand_on(log: str, write: int) -> None:
    """Standard input to `write`, line by line, until either end is closed."""
    for line in sys.stdin.buffer:
        message = json.loads(line)
        method, params = message.get("method"), message.get("params", {})
        if method in HANDSHAKE:
            note(log, kind="asked", method=method, meta=sorted(params.get("_meta") or {}))
        elif method == "tools/call":
            note(log, kind="tool", name=params["name"], meta=sorted(params.get("_meta") or {}))
        try:
            os.write(write, line)
        except BrokenPipeError:
            return


if __name__ == "__main__":
    main()
