"""A recording `codex` for the lab: writes each call down, answers what a script says. It is no Codex.

    python -m interlink_lab.codex_stub FOLDER      writes FOLDER/codex, an executable

`FOLDER/answers` holds one answer a line, used in turn, the last one for ever: `ok`, `hang`, or `CODE TEXT`.
`FOLDER/calls.jsonl` gets one object a call: argv, pid, time (ms).
"""

import json
import sys
from pathlib import Path
from typing import Any

SCRIPT = """#!{python} -S
import json, os, sys, time
folder = {folder!r}
with open(folder + "/calls.jsonl", "a") as f:
    f.write(json.dumps({{"argv": sys.argv[1:], "pid": os.getpid(), "ms": int(time.time() * 1000)}}) + "\\n")
with open(folder + "/calls.jsonl") as f:
    number = sum(1 for _ in f)
answers = open(folder + "/answers").read().splitlines() or ["ok"]
answer = answers[min(number, len(answers)) - 1]
if answer == "hang":
    time.sleep(600)
if answer != "ok":
    code, _, text = answer.partition(" ")
    sys.stderr.write(text + "\\n")
    sys.exit(int(code))
print("Queued message 00000000-0000-0000-0000-000000000000 for thread.")
"""


def install(folder: Path, *answers: str) -> Path:
    """Make the stub in a folder; returns the executable."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "answers").write_text("\n".join(answers or ("ok",)) + "\n", "utf-8")
    program = folder / "codex"
    program.write_text(SCRIPT.format(python=sys.executable, folder=str(folder)), "utf-8")
    program.chmod(0o755)
    return program


def calls(folder: Path) -> list[dict[str, Any]]:
    """What was called so far, in order."""
    path = folder / "calls.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


if __name__ == "__main__":
    print(install(Path(sys.argv[1])))
