"""In front of a hook's command: `record_hook.py LOG COMMAND...` notes what the host gave, and becomes the command.

One JSON line: time (ns, monotonic), event, session, source where there is one, names in the payload, names of
CLAUDE* variables. The command reads the same payload; its parent and its environment are those that the host gave.
"""

import json
import os
import sys
import time


def main() -> None:
    log, *command = sys.argv[1:]
    at = time.monotonic_ns()
    payload = sys.stdin.buffer.read()
    table = json.loads(payload)
    line = {"at": at, "kind": "hook", "event": table["hook_event_name"], "session": table["session_id"]}
    if "source" in table:
        line["source"] = table["source"]
    line["payload"] = sorted(table)
    line["env"] = sorted(name for name in os.environ if name.startswith("CLAUDE"))
    with open(log, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    read, write = os.pipe()  # a payload fits into a pipe: far less than 64 KiB
    os.write(write, payload)
    os.close(write)
    os.dup2(read, 0)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
