"""Nodes as plain processes on loopback, each with a folder of its own."""

import os
import shutil
import signal
import sys
from pathlib import Path

import anyio
from anyio.abc import Process, TaskGroup

from interlink_lab.backends.base import OnEvent
from interlink_lab.node import leftovers
from interlink_lab.node.node import TOKEN
from interlink_lab.remote import read_process, to_process

END_S = 60.0


class ProcessNode:
    """One node process."""

    def __init__(self, name: str, folder: Path, process: Process, on_event: OnEvent, token: str) -> None:
        self.name = name
        self.folder = folder
        self._process = process
        self._token = token
        self._ended = anyio.Event()

        self.remote = to_process(process, on_event)

    async def read(self) -> None:
        """Feed what it says until it ends."""
        await read_process(self._process, self.remote, f"node {self.name}")
        self._ended.set()

    async def kill(self) -> None:
        """SIGKILL for every process of this node."""
        self._reap()
        await self._ended.wait()

    def _reap(self) -> None:
        for row in leftovers.processes(TOKEN, self._token, {os.getpid()}):
            try:
                os.kill(row["pid"], signal.SIGKILL)
            except ProcessLookupError:
                continue

    async def close(self) -> None:
        if self._process.returncode is None:
            assert self._process.stdin is not None
            await self._process.stdin.aclose()
            with anyio.move_on_after(END_S):
                await self._ended.wait()
            if self._process.returncode is None:
                await self.kill()
        self._reap()  # what outlived its host: the history has it as left over

    async def collect(self, into: Path) -> None:
        shutil.copytree(self.folder, into / self.name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.sock"))


class ProcessBackend:
    """`folder` holds the nodes; `pythonpath`: a copy of the product that they run in place of this tree's."""

    name = "process"
    relay_bind = "127.0.0.1:0"

    def __init__(self, folder: Path, group: TaskGroup, pythonpath: str | None = None) -> None:
        self._folder = folder
        self._group = group
        self._pythonpath = pythonpath
        self._nodes: list[ProcessNode] = []

    async def start_node(self, name: str, on_event: OnEvent) -> ProcessNode:
        folder = self._folder / name
        folder.mkdir(parents=True, exist_ok=True)
        token = f"{name}.{os.getpid()}.{os.urandom(4).hex()}"  # one command may run many scenarios
        env = {**os.environ, TOKEN: token}
        if self._pythonpath is not None:
            env["PYTHONPATH"] = self._pythonpath
        with (folder / "node.log").open("ab") as log:
            # -P: the current folder may hold another copy of the product.
            process = await anyio.open_process(
                [sys.executable, "-P", "-m", "interlink_lab.node", str(folder)], env=env, stderr=log
            )
        node = ProcessNode(name, folder, process, on_event, token)
        self._nodes.append(node)
        self._group.start_soon(node.read)
        return node

    def relay_address(self, node: str, addr: str) -> str:
        return addr

    async def close(self) -> None:
        for node in self._nodes:
            await node.close()
