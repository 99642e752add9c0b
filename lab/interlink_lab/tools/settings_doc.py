"""`docs/configuration.md` from the table in `interlink/settings.py`; `--check` says whether it is up to date."""

import sys
from pathlib import Path

from interlink.settings import ALIASES, TABLE, Settings, env_name
from interlink_lab.tools.repo import ROOT

PATH = ROOT / "docs" / "configuration.md"

HEAD = """# Configuration

## Server and commands
Options win over variables; an empty value is unset; a leading `~/` in a path is your home.

| variable | option | what | default |
|---|---|---|---|
| `INTERLINK_URL` | `--url` | relay addresses, comma-separated | `http://127.0.0.1:9440` |
| `INTERLINK_KEY` | `--key` | key file | `~/.config/interlink/id.key` |
| `INTERLINK_PEERS` | `--peers` | peers file | `~/.config/interlink/peers.json` |
| `INTERLINK_NAME` | `--name` | the name that sessions announce | `user@host` |
| `INTERLINK_SESSION` | `--session` | pin the session id, for server and hooks alike | from the host |
| `INTERLINK_TOKEN_FILE` | `--token-file` | file with the relays' shared token | none |
| `INTERLINK_HOST` | `--host` | `claude` or `codex` | `claude` |
| `INTERLINK_CODEX_BIN` | `--codex-bin` | the Codex program | `codex` |
| `INTERLINK_CLAUDE_BIN` | | the program that `interlinked` starts | `claude` |
| `INTERLINK_CHANNELS` | | `1` or `true`: notices through Claude's native channel | off |
| `INTERLINK_TRUST` | | `tools`: agents may change who is trusted without asking you | ask |
| `XDG_STATE_HOME`, `XDG_CONFIG_HOME` | | where state and configuration are | `~/.local/state`, `~/.config` |

Relay: `interlink-bus --addr` (`INTERLINK_ADDR`, `127.0.0.1:9440`), `--db` (`INTERLINK_DB`), `--queue-cap`
(`INTERLINK_QUEUE_CAP`), `--max-bytes`, `--token-file`, `--memory` (a restart loses all).

## Intervals, bounds and schedules
Each by a variable of the environment. A bad value is reported (log, tools, `interlink doctor`) and the
default stays in force. Names end in their unit; `_s` takes fractions.

| variable | default | range | what |
|---|---|---|---|
"""


def _number(value: float) -> str:
    """As a person reads it: 1 048 576 and 0.01, never 1.04858e+06."""
    return f"{int(value):,}".replace(",", " ") if value == int(value) else f"{value:g}"


def render() -> str:
    """The whole document."""
    rows = []
    for name, (low, high, what) in TABLE.items():
        default = getattr(Settings, name)
        shown = ", ".join(f"{n:g}" for n in default) if isinstance(default, tuple) else _number(default)
        also = f" (also `{ALIASES[name]}`)" if name in ALIASES else ""
        rows.append(f"| `{env_name(name)}`{also} | {shown} | {_number(low)} to {_number(high)} | {what} |")
    return HEAD + "\n".join(rows) + "\n"


def main() -> None:
    """Write the file, or compare it."""
    text = render()
    if sys.argv[1:] == ["--check"]:
        if not PATH.exists() or PATH.read_text("utf-8") != text:
            sys.exit("docs/configuration.md is not what settings.py says: run `just spec`")
        return
    Path(PATH).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
