"""What a node does on command: programs, signals, files, links. Each operation is a method `do_...`."""

import asyncio
import json
import os
import resource
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from interlink_lab.fixtures.child import ServerChild
from interlink_lab.node import leftovers, raw
from interlink_lab.node.files import FileFaults
from interlink_lab.node.hostproc import HostProcess
from interlink_lab.node.links import Links
from interlink_lab.node.rogue import Rogue
from interlink_lab.node.tail import Tail
from interlink_lab.node.watch import Watch
from interlink_lab.programs import MODULES, Relay, binaries, host_environment, make_identity, program
from interlink_lab.remote import Serving

COMMAND_S = 120.0
# The Rust system would use the messaging socket of the host, which a fixture names and does not serve.
PEERS_OWN = {"INTERLINK_CLAUDE_DELIVERY": "inbox"}
TOKEN = "INTERLINK_LAB_RUN"  # marks every process of a run in its environment


class Node(Serving):
    """One node with a folder of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.bin = folder / "bin"
        self.home = folder / "home"
        self.relay: Relay | None = None
        self.hosts: dict[str, HostProcess] = {}
        self.links = Links(self.emit)
        self.rogue: Rogue | None = None
        self.files = FileFaults(self.home)
        self._seconds: dict[str, ServerChild] = {}
        self._env: dict[str, str] = {}
        self._tail = Tail(self.emit)
        self._watch: Watch | None = None

    async def begin(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        os.chdir(self.folder)  # `python -m` looks in the current folder first: no other copy of the product in it
        os.environ.setdefault(TOKEN, self.folder.name)

    async def end(self) -> None:
        """Everything ends with the node."""
        self.files.mend_all()
        for name in ("full", "sync"):
            self._bend(name, 0)
        for host in self.hosts.values():
            await host.end()
        if self.relay is not None:
            await to_thread.run_sync(self.relay.stop)
        for second in self._seconds.values():
            await second.stop()
        if self.rogue is not None:
            self.rogue.close()
        self.links.close()

    # --- programs -------------------------------------------------------------------------------------

    async def do_prepare(self, url: str = "", env: dict[str, str] | None = None, name: str = "") -> str:
        """Write the launchers, make a key; returns the public key. `url`: the relays as this node reaches them."""
        self.bin.mkdir(parents=True, exist_ok=True)
        for each in MODULES:
            path = self.bin / each
            path.write_text(f'#!/bin/sh\nexec {shlex.join(self._launch(each))} "$@"\n', "utf-8")
            path.chmod(0o755)
        given = {**(PEERS_OWN if binaries() else {}), **(env or {})}
        self._env = {**host_environment(self.home, url, name, **given), TOKEN: os.environ[TOKEN]}
        self._env["PATH"] = f"{self.bin}{os.pathsep}{self._env.get('PATH', os.defpath)}"
        key = self.home / "config" / "interlink" / "id.key"
        if key.exists():
            done = await self.do_command(["interlink-keygen", "--show", "--out", str(key)])
            return str(done["out"]).strip().splitlines()[-1] if done["code"] == 0 else ""
        return await to_thread.run_sync(make_identity, self.home, str(self.bin))

    def _launch(self, name: str) -> list[str]:
        """The program, behind the shim that bends clock and syncs where it is one of this tree's modules."""
        argv = program(name)
        if argv[1:2] != ["-m"]:
            return argv
        return [argv[0], "-m", "interlink_lab.shim", str(self.folder), *argv[2:]]

    async def do_bend(self, clock_ms: int | None = None, sync_ms: int | None = None) -> None:
        """Move the wall clock of this node's programs, or slow their syncs down."""
        for name, value in (("clock", clock_ms), ("sync", sync_ms)):
            if value is not None:
                self._bend(name, value)

    def _bend(self, name: str, value: int) -> None:
        """A number for the shim."""
        temp = self.folder / f".{name}.new"
        temp.write_text(str(value), "ascii")
        temp.replace(self.folder / name)

    async def do_point(self, url: str) -> None:
        """Other relay addresses for what is started from now on."""
        self._env["INTERLINK_URL"] = url

    async def do_trust(self, peers: dict[str, str]) -> None:
        """Exactly these are peers now: petname to key."""
        path = self.home / "config" / "interlink" / "peers.json"
        temp = path.with_suffix(".new")
        temp.write_text(json.dumps({name: {"key": key} for name, key in peers.items()}), "utf-8")
        temp.replace(path)

    async def do_command(
        self, argv: list[str], stdin: str = "", env: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """Run a program of the product to its end: code, out, err."""
        done = await anyio.run_process(
            argv, input=stdin.encode(), check=False, env={**self._env, **(env or {})}, cwd=self.home
        )
        out, err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
        self.emit("command", "command", argv=argv[:6], code=done.returncode)
        return {"code": done.returncode, "out": out, "err": err}

    async def do_relay_start(self, addr: str, args: list[str], env: dict[str, str] | None = None) -> str:
        """Start the relay (again, on its address); returns the address it listens on."""
        if self.relay is None:
            self.relay = Relay(
                self.home, *args, folder=str(self.bin), env={**(env or {}), TOKEN: os.environ[TOKEN]}
            )
            self.relay.addr = addr
        relay = self.relay
        await to_thread.run_sync(relay.start)
        assert relay.process is not None
        self.emit("relay", "start", pid=relay.process.pid, addr=relay.addr)
        self.group.start_soon(self._relay_ended, relay.process)
        self._tail.follow("relay", self.home / "relay.log")
        self._run_tail()
        return relay.addr

    async def _relay_ended(self, process: "subprocess.Popen[str]") -> None:
        while process.poll() is None:
            await anyio.sleep(0.02)
        self.emit("relay", "exit", pid=process.pid, code=process.returncode)

    async def do_relay_stop(self) -> None:
        if self.relay is not None:
            await to_thread.run_sync(self.relay.stop)

    async def do_relay_waiting(self, route: str) -> int | None:
        """How many messages wait in the relay for a route, at the most what one answer holds; None: it does not
        say."""
        assert self.relay is not None
        try:
            return await to_thread.run_sync(raw.waiting, self.relay.url, route)
        except (OSError, ValueError):
            return None

    async def do_host_start(self, name: str, config: dict[str, Any]) -> None:
        """Start a host fixture; `config` as fixtures take it, completed here with what the node knows."""
        old = self.hosts.pop(name, None)
        if old is not None:
            await old.end()
        host = self.hosts[name] = HostProcess(name, self.folder, self._env, config, self.pass_on)
        await host.start(self.group)
        self._tail.follow(f"{name}.server", host.log)
        self._tail.follow("shim", self.folder / "bent.log")
        self._run_tail()
        if self._watch is None:
            self._watch = Watch(self.home / "state" / "interlink", self.emit, self.files.find("peers"))
            self.group.start_soon(self._watch.run)

    async def do_host(self, name: str, op: str, args: dict[str, Any]) -> Any:
        """An operation of a host fixture."""
        return await self.hosts[name].call(op, **args)

    async def do_host_end(self, name: str) -> None:
        """The host ends in good order."""
        await self.hosts[name].end()

    def _role(self, role: str, name: str) -> list[int]:
        if role != "relay":
            return self.hosts[name].pids(role)
        process = self.relay.process if self.relay is not None else None
        return [process.pid] if process is not None and process.poll() is None else []

    async def do_signal(self, role: str, name: str = "", sig: str = "KILL") -> list[int]:
        """Send a signal to the relay, or to a host's `host`, `server` or `listener`; the processes that got it."""
        number = signal.Signals["SIG" + sig]
        sent = []
        for pid in self._role(role, name):
            try:
                (os.killpg if role == "listener" else os.kill)(pid, number)
            except ProcessLookupError:
                continue  # it ended by itself meanwhile
            sent.append(pid)
            if number is signal.SIGSTOP:
                self.group.start_soon(self._stopped, "relay" if role == "relay" else f"{name}.{role}", pid)
        if role == "relay" and number is signal.SIGKILL and self.relay is not None and sent:
            await to_thread.run_sync(self.relay.kill)
        return sent

    async def do_raw_send(
        self, to: str, session: str, text: str, token: str, fields: dict[str, Any] | None = None,
        stranger: bool = False, tamper: bool = False, copies: int = 1,
    ) -> dict[str, object]:  # fmt: skip
        """Sign a message with this node's key (`stranger`: another), give `copies` to each relay; the message."""
        key_file = None if stranger else self.home / "config" / "interlink" / "id.key"
        message = raw.sign(key_file, to, text, fields or {}, tamper)
        for _ in range(copies):
            await self._raw(to, [session], message, token, stranger or tamper)
        return message

    async def do_raw_again(self, to: str, sessions: list[str], message: dict[str, object], token: str) -> None:
        """The same message once more, for each session."""
        await self._raw(to, sessions, message, token, False)

    async def _raw(
        self, to: str, sessions: list[str], message: dict[str, object], token: str, forged: bool
    ) -> None:
        for url in self._env["INTERLINK_URL"].split(","):
            for route in sessions:
                status = await to_thread.run_sync(raw.post, url, f"{to}#{route}", message)
                self.emit(
                    "raw", "raw.send", status=status, session=route, token=token, msg_id=message["msg_id"], to=to,
                    forged=forged,
                )  # fmt: skip

    async def _stopped(self, party: str, pid: int) -> None:
        """Report that a process stands still, once the kernel says so."""
        with anyio.move_on_after(COMMAND_S):
            while (state := leftovers.state(pid)) != "T":
                if state in ("", "Z"):
                    return
                await anyio.sleep(0.01)
            self.emit(party, "stopped", pid=pid)

    async def do_continue(self, pids: list[int]) -> None:
        """SIGCONT for processes that `do_signal` stopped, and for their groups."""
        for pid in pids:
            try:
                if os.getpgid(pid) == pid and pid != os.getpgrp():
                    os.killpg(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                continue  # killed while it stood still

    async def do_second_server(self, name: str, session: str, env: dict[str, str], on: bool) -> bool:
        """Start (or end) another server for a host's session, as a host that lost sight of its first one does."""
        old = self._seconds.pop(name, None)
        if old is not None:
            await old.stop()
        if not on:
            return False
        second = self._seconds[name] = ServerChild(
            ["interlink-mcp"], {**self._env, **env, "CLAUDE_CODE_SESSION_ID": session},
            str(self.folder / f"{name}.second.log"), "claude-code",
            lambda kind, **data: self.emit(f"{name}.second", kind, session=session, **data), cwd=str(self.home),
        )  # fmt: skip
        return await second.start(self.group)

    # --- links, files, looks --------------------------------------------------------------------------

    async def do_link_open(self, name: str, target: str) -> int:
        """A TCP proxy to `target` (host:port); returns its port on this node's loopback."""
        return await self.links.open(name, target)

    async def do_link_set(self, name: str, mode: str, **options: Any) -> None:
        """How the link behaves from now on (`links.MODES`)."""
        await self.links.set(name, mode, **options)

    async def do_rogue_open(self, bind: str, target: str) -> str:
        """A proxy that misbehaves on command, before the relay at `target`; the address that it listens on."""
        self.rogue = Rogue(self.emit)
        return await self.rogue.open(bind, target)

    async def do_rogue_set(self, mode: str, **options: Any) -> None:
        """How the proxy behaves from now on (`rogue.MODES`)."""
        if self.rogue is None:
            raise ValueError("no rogue proxy stands before this relay")
        self.rogue.set(mode, **options)

    async def do_file_fault(self, what: str, path: str = "", **options: Any) -> str:
        """Damage or block a state file (`files.KINDS`); returns which file it was."""
        return await to_thread.run_sync(lambda: self.files.apply(what, path, **options))

    async def do_file_mend(self, path: str) -> bool:
        """Undo a file fault. False, and an event, where a damaged file was changed meanwhile."""
        untouched = await to_thread.run_sync(self.files.mend, path)
        if not untouched:
            self.emit("files", "overwritten", file=path)
        return untouched

    async def do_fill_disk(self, name: str, full: bool = True) -> None:
        """From now on no file of the node's programs grows, as on a full disk; or it does again.

        The relay's database writes behind Python's back: its process gets a limit of the system's in its place.
        """
        if name != "relay":
            self._bend("full", int(full))
            return
        for pid in self._role("relay", name):
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0 if full else hard, hard))

    async def do_look(self) -> None:
        """Look at the state files now, so that the history is up to date."""
        await asyncio.sleep(0)
        self._tail.poll()
        if self._watch is not None:
            self._watch.poll()

    async def do_stop_watching(self) -> None:
        """Look a last time; nothing is looked at any more."""
        await self.do_look()
        if self._watch is not None:
            self._watch.stop()

    async def do_leftovers(self) -> dict[str, Any]:
        """Processes of this run that live beside this node, and locks that are held although nobody lives."""
        mine = {os.getpid()}
        return {
            "processes": leftovers.processes(TOKEN, os.environ[TOKEN], mine),
            "locks": leftovers.held_locks(self.home / "state" / "interlink"),
        }

    def _run_tail(self) -> None:
        if not self._tail.running:
            self._tail.running = True
            self.group.start_soon(self._tail.run)
