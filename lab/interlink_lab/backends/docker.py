"""Nodes as containers on a private network of the run; each is reached over its standard input and output."""

import functools
import io
import os
import socket
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import anyio
from anyio import from_thread, to_thread
from anyio.abc import TaskGroup
from docker.errors import APIError, NotFound  # type: ignore[import-not-found]

from interlink_lab.backends import engine as engines
from interlink_lab.backends import image
from interlink_lab.backends.base import OnEvent
from interlink_lab.backends.engine import NoEngine
from interlink_lab.remote import Remote

__all__ = ["DockerBackend", "DockerNode", "NoEngine", "prepare", "why_not"]

T = TypeVar("T")
END_S = 60.0  # against hangs, never a measure
HOME = "/var/lib/interlink"
FOLDER = f"{HOME}/node"
PRODUCT = f"{HOME}/product"  # a copied tree that is run in place of the image's
OTHER = f"{HOME}/other-bin"  # binaries of INTERLINK_LAB_BIN
USER_ID = 10001
RELAY_PORT = 9440
_HEAD = struct.Struct(">BxxxL")  # one piece of the engine's stream: which file, how many bytes
_START = ["sh", "-c", 'exec python -m interlink_lab.node "$0" 2>>"$0/node.log"', FOLDER]


class DockerNode:
    """One container. Beside what every node can: `disconnect`, `connect`, `start_again` after a `kill`."""

    def __init__(self, backend: "DockerBackend", name: str, container: Any, on_event: OnEvent) -> None:
        self.name = name
        self.container = container
        self._backend = backend
        self._on_event = on_event
        self._ended = anyio.Event()
        self._socket: Any = None
        self._sending = anyio.Lock()
        self.remote = Remote(self._send, on_event)

    async def start(self) -> None:
        """Attach to it, then start it, so that nothing of what it says is missed."""
        await _thread(self._attach_and_start)
        self._backend.group.start_soon(self._read, self._socket, self.remote, self._ended)

    def _attach_and_start(self) -> None:
        self._socket = self.container.attach_socket(params={"stdin": 1, "stdout": 1, "stream": 1})
        self.container.start()

    async def _send(self, line: bytes) -> None:
        async with self._sending:  # lines are whole
            await _thread(lambda: self._socket._sock.sendall(line))

    async def _read(self, attached: Any, remote: Remote, ended: anyio.Event) -> None:
        """Feed what it says until it ends. The thread ends with the socket."""

        def feed(lines: list[bytes]) -> None:
            for line in lines:
                remote.feed(line)

        def read() -> None:
            rest = b""
            while data := _piece(attached._sock):
                *lines, rest = (rest + data).split(b"\n")
                if lines:
                    from_thread.run_sync(feed, lines)

        try:
            await to_thread.run_sync(read, abandon_on_cancel=True, limiter=self._backend.readers)
        except OSError:
            pass  # closed by us
        remote.lost(f"node {self.name} has ended")
        ended.set()

    # --- the machine ----------------------------------------------------------------------------------

    async def kill(self) -> None:
        """SIGKILL for the whole container: a machine that loses power. Its files stay."""

        def kill() -> None:
            try:
                self.container.kill(signal="SIGKILL")
            except APIError as exc:
                if exc.status_code not in (404, 409):  # it had ended before
                    raise
            self.container.wait(timeout=END_S)

        await _thread(kill)
        with anyio.move_on_after(END_S):
            await self._ended.wait()
        self._close_socket()

    async def start_again(self) -> None:
        """Boot it after a kill: the same files and address, no process, a new `remote`."""
        self._ended = anyio.Event()
        self.remote = Remote(self._send, self._on_event)
        await self.start()

    async def disconnect(self) -> None:
        """Take it off the network: its name is gone, its connections get no answer."""
        await _thread(lambda: self._backend.network.disconnect(self.container, force=True))

    async def connect(self) -> None:
        """Put it on the network again, under its name."""
        await _thread(lambda: self._backend.network.connect(self.container, aliases=[self.name]))

    async def close(self) -> None:
        """Its input ends, and with it the node and what it runs; the container is removed by the backend."""
        if not self._ended.is_set() and self._socket is not None:
            self._shut(socket.SHUT_WR)
            with anyio.move_on_after(END_S):
                await self._ended.wait()
            if not self._ended.is_set():
                await self.kill()
        self._close_socket()

    def _shut(self, how: int) -> None:
        try:
            self._socket._sock.shutdown(how)
        except OSError:
            pass  # the engine has closed it

    def _close_socket(self) -> None:
        if self._socket is not None:
            self._shut(socket.SHUT_RDWR)  # wakes the reader
            self._socket._response.close()
            self._socket = None

    async def collect(self, into: Path) -> None:
        """Its files (no sockets) as `into/NAME`."""

        def copy() -> None:
            pieces, _ = self.container.get_archive(FOLDER)
            with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as tar:
                _unpack(tar, into / self.name)

        await _thread(copy)


class DockerBackend:
    """`folder`: where nodes' files are collected. `product`: a copied tree that they run in place of ours."""

    name = "docker"
    relay_bind = f"0.0.0.0:{RELAY_PORT}"

    def __init__(self, folder: Path, group: TaskGroup, product: Path | None = None) -> None:
        self.group = group
        self.readers = anyio.CapacityLimiter(1000)  # each node's reader holds a thread for as long as it lives
        self.network: Any = None
        self._folder = folder
        self._product = product
        self._nodes: list[DockerNode] = []
        self._engine: Any = None
        self._image = ""
        self.token = os.urandom(4).hex()
        self._labels = {engines.RUN: self.token, engines.OWNER: engines.owner()}

    async def open(self) -> None:
        """Image and network, and away with what killed runs left. NoEngine."""

        def make() -> None:
            self._engine = engines.client()
            engines.sweep_orphans(self._engine)
            self._image = image.ensure(self._engine)
            self.network = engines.make_network(self._engine, f"interlink-lab-{self.token}", self._labels)

        try:
            await _thread(make)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.close()
            raise

    async def start_node(self, name: str, on_event: OnEvent) -> DockerNode:
        node = DockerNode(self, name, await _thread(lambda: self._create(name)), on_event)
        self._nodes.append(node)
        await node.start()
        return node

    def _create(self, name: str) -> Any:
        other = os.environ.get("INTERLINK_LAB_BIN")
        environment = {}
        if self._product is not None:
            environment["PYTHONPATH"] = PRODUCT
        if other:
            environment["INTERLINK_LAB_BIN"] = OTHER
        api = self._engine.api
        made = api.create_container(
            self._image,
            _START,
            name=f"interlink-lab-{self.token}-{name}",
            hostname=name,
            labels=self._labels,
            environment=environment,
            stdin_open=True,
            host_config=api.create_host_config(
                network_mode=self.network.name,
                init=True,
                cap_drop=["ALL"],
                security_opt=["no-new-privileges"],
                log_config={"Type": "none", "Config": {}},  # its words are kept by node.log and by the history
            ),
            networking_config=api.create_networking_config(
                {self.network.name: api.create_endpoint_config(aliases=[name])}
            ),
        )
        container = self._engine.containers.get(made["Id"])
        for source, place in ((self._product, PRODUCT), (Path(other) if other else None, OTHER)):
            if source is not None:
                container.put_archive(HOME, _packed(source, Path(place).name))
        return container

    def relay_address(self, node: str, addr: str) -> str:
        return f"{node}:{addr.rpartition(':')[2]}"  # a proxy of the lab's before it has another port

    async def close(self) -> None:
        """End the nodes, keep their files, remove containers and network: all that has the run's label."""
        if self._engine is None:
            return
        try:
            async with anyio.create_task_group() as group:
                for node in self._nodes:
                    group.start_soon(node.close)
            for node in self._nodes:
                try:
                    await node.collect(self._folder)
                except NotFound:
                    continue  # somebody else removed it: nothing is left to keep
        finally:
            await _thread(lambda: engines.sweep(self._engine, self.token))
            await _thread(self._engine.close)


async def prepare() -> None:
    """The image of this tree. NoEngine."""

    def make() -> None:
        engine = engines.client()
        try:
            image.ensure(engine)
        finally:
            engine.close()

    await _thread(make)


async def _thread(do: Callable[[], T]) -> T:
    """A call of the engine, in a thread; waited for also when the run is cancelled (each has a time limit)."""
    return await to_thread.run_sync(do)


def _piece(sock: Any) -> bytes:
    """The next piece of an attached stream; empty at its end."""
    head = _exactly(sock, _HEAD.size)
    return _exactly(sock, _HEAD.unpack(head)[1]) if head else b""


def _exactly(sock: Any, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        data = sock.recv(min(size - len(found), 1 << 20))
        if not data:
            return b""  # a piece that is cut short is of a node that was killed
        found += data
    return bytes(found)


def _packed(source: Path, name: str) -> bytes:
    """A folder as a tar, owned by the image's user."""

    def owned(entry: tarfile.TarInfo, /) -> tarfile.TarInfo | None:
        if entry.name.endswith((".pyc", "__pycache__")):
            return None
        entry.uid = entry.gid = USER_ID
        entry.uname = entry.gname = ""
        return entry

    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        tar.add(source, name, filter=owned)
    return data.getvalue()


def _unpack(tar: tarfile.TarFile, into: Path) -> None:
    """The plain files of an archive of one folder; links and all else of a node are left where they are."""
    for entry in tar.getmembers():
        parts = Path(entry.name).parts[1:]
        if ".." in parts:
            continue
        target = into.joinpath(*parts)
        if entry.isdir():
            target.mkdir(parents=True, exist_ok=True)
        elif file := tar.extractfile(entry) if entry.isfile() else None:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read())


@functools.cache
def why_not() -> str:
    """Why no engine can be used here; empty where one can."""
    try:
        engines.client().close()
    except NoEngine as exc:
        return str(exc)
    return ""
