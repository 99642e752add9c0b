"""In front of an MCP server's command: `record_server.py LOG COMMAND...` notes tool calls and becomes the command.

One JSON line for each `tools/call`: time (ns, monotonic), the tool's name, the names in its `_meta`. A child of
this process hands the bytes on as they are; the server stays the host's own child.
"""

import json
import os
import sys
import time


def main() -> None:
    log, *command = sys.argv[1:]
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


def hand_on(log: str, write: int) -> None:
    """Standard input to `write`, line by line, until either end is closed."""
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if message.get("method") == "tools/call":
            params = message["params"]
            found = {"at": time.monotonic_ns(), "kind": "tool", "name": params["name"]}
            found["meta"] = sorted(params.get("_meta") or {})
            with open(log, "a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
        try:
            os.write(write, line)
        except BrokenPipeError:
            return


if __name__ == "__main__":
    main()
