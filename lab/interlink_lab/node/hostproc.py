"""A host fixture as a child of the node: started, called, killed; its events are passed on under its name."""

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process, TaskGroup

from interlink_lab.history import Event, now_ns
from interlink_lab.remote import Remote, read_process, to_process

END_S = 30.0
PLUGIN_HOOKS = "hosts/claude/plugin/hooks/hooks.json"


class HostProcess:
    """One host. Its processes are known from what it reports, also when it is gone."""

    def __init__(
        self,
        name: str,
        folder: Path,
        env: dict[str, str],
        config: dict[str, Any],
        on_event: Callable[[Event], None],
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._env = env
        self._on_event = on_event
        self._process: Process | None = None
        self._remote: Remote | None = None
        self._ended = anyio.Event()
        self._listeners: set[int] = set()
        self._server: int | None = None
        work = folder / f"{name}.work"
        work.mkdir(parents=True, exist_ok=True)
        self.kind: str = config.pop("kind")
        self._config = {"env": {}, "log": str(self.log), "cwd": str(work), "hooks": plugin_hooks(), **config}
        self._file = folder / f"{name}.json"

    async def start(self, group: TaskGroup) -> None:
        """Start the fixture. It answers calls once its server is up."""
        self._file.write_text(json.dumps(self._config), "utf-8")
        argv = [sys.executable, "-m", f"interlink_lab.fixtures.{self.kind}", str(self._file)]
        with (self.log.parent / f"{self.name}.fixture.log").open("ab") as log:
            self._process = await anyio.open_process(argv, env=self._env, stderr=log)
        process = self._process

        self._remote = to_process(process, self._event)
        group.start_soon(self._read, process, self._remote)

    async def _read(self, process: Process, remote: Remote) -> None:
        code = await read_process(process, remote, f"host {self.name}")
        self._ended.set()
        self._on_event(
            {
                "at_ns": now_ns(),
                "n": 0,
                "party": f"{self.name}.host",
                "kind": "exit",
                "pid": process.pid,
                "code": code,
            }
        )

    def _event(self, event: Event) -> None:
        party, kind = event["party"], event["kind"]
        if party == "listener" and kind == "start":
            self._listeners.add(event["pid"])
        elif party == "listener" and kind == "exit":
            self._listeners.discard(event["pid"])
        elif party == "server" and kind == "start":
            self._server = event["pid"]
        elif party == "server" and kind == "exit":
            self._server = None
        self._on_event({**event, "party": f"{self.name}.{party}"})

    async def call(self, op: str, **args: Any) -> Any:
        """RemoteFailed where the host is gone or cannot."""
        assert self._remote is not None
        return await self._remote.call(op, **args)

    def pids(self, role: str) -> list[int]:
        """The processes of a role that are known to run. ValueError for no role of a host."""
        process = self._process
        if role == "host":
            return [process.pid] if process is not None and process.returncode is None else []
        if role == "server":
            return [self._server] if self._server is not None else []
        if role == "listener":
            return sorted(self._listeners)
        raise ValueError(f"a host has no {role!r}: host, server or listener")

    async def end(self) -> None:
        """Close its stdin and wait; kill what does not go."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        await process.stdin.aclose()
        with anyio.move_on_after(END_S):
            await self._ended.wait()
        if process.returncode is None:
            process.kill()
            await self._ended.wait()


def plugin_hooks() -> str:
    """The hooks file of the product's Claude plugin, as it is shipped."""
    found = importlib.util.find_spec("interlink")
    assert found is not None and found.submodule_search_locations
    return str(Path(found.submodule_search_locations[0]) / PLUGIN_HOOKS)
