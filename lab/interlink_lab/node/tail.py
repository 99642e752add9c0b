"""Follows the logs of servers and relays: each line `event=... key=value` becomes an event of the history."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

LOOK_S = 0.025
_PART = re.compile(r'([A-Za-z_]+)=("(?:[^"\\]|\\.)*"|\S*)')


def fields(line: str) -> dict[str, str]:
    """The key=value parts of a log line; quotes are taken off."""
    return {key: value[1:-1] if value[:1] == '"' else value for key, value in _PART.findall(line)}


class Tail:
    """Log files under a party's name. Lines that are no events are reported as `says`."""

    def __init__(self, emit: Callable[..., None]) -> None:
        self._emit = emit
        self._files: dict[Path, tuple[str, int]] = {}
        self.running = False

    def follow(self, party: str, path: Path) -> None:
        """Report this file's lines, from where it was left."""
        if path not in self._files:
            self._files[path] = (party, 0)

    def poll(self) -> None:
        """Report what is new."""
        for path, (party, offset) in list(self._files.items()):
            try:
                if path.stat().st_size <= offset:
                    continue
                with path.open("rb") as file:
                    file.seek(offset)
                    data = file.read()
            except OSError:
                continue  # not there yet
            whole = data[: data.rfind(b"\n") + 1]
            self._files[path] = (party, offset + len(whole))
            for line in whole.decode("utf-8", "replace").splitlines():
                found: dict[str, Any] = fields(line)
                name = found.pop("event", None)
                if name is None:
                    if line.strip():
                        self._emit(party, "says", text=line[:300])
                    continue
                found.pop("ts", None)
                self._emit(party, "log", event=name, fields=found)

    async def run(self) -> None:
        """Follow, for ever."""
        while True:
            self.poll()
            await anyio.sleep(LOOK_S)
