"""The product's programs as the lab starts them: by command, with an environment of their own.

`INTERLINK_LAB_BIN` names a folder with other binaries of the same names (another build, the Rust system);
without it the modules of this tree run in this interpreter.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

OTHER = "INTERLINK_LAB_BIN"
MODULES = {
    "interlink": "interlink.cli.main",
    "interlink-mcp": "interlink.cli.mcp",
    "interlink-bus": "interlink.cli.bus",
    "interlink-keygen": "interlink.cli.keygen",
    "interlinked": "interlink.cli.interlinked",
}
END_S = 20.0
GUARD_S = 60.0  # against hangs, never a measure
_KEY = re.compile(r"^(?:public key : )?([A-Za-z0-9_-]{43})$", re.MULTILINE)


def binaries(folder: str | None = None) -> str | None:
    """The folder with other binaries: `folder`, else INTERLINK_LAB_BIN; None for this tree."""
    return folder or os.environ.get(OTHER) or None


def use_binaries(folder: str | None) -> None:
    """From now on programs are of this folder, None or "": of this tree. ValueError for a folder without them."""
    for name in ("interlink-mcp", "interlink-bus", "interlink-keygen") if folder else ():
        if not os.access(os.path.join(str(folder), name), os.X_OK):
            raise ValueError(f"{OTHER}: no program {name} in {folder}")
    os.environ.pop(OTHER, None)
    if folder:
        os.environ[OTHER] = os.path.abspath(folder)  # a node has a current folder of its own


def program(name: str, folder: str | None = None) -> list[str]:
    """The argument vector that starts a program: from `folder`, else INTERLINK_LAB_BIN, else this tree."""
    folder = binaries(folder)
    if folder is not None:
        return [str(Path(folder) / name)]
    return [sys.executable, "-m", MODULES[name]]


def host_environment(home: Path, url: str, name: str, **more: str) -> dict[str, str]:
    """The environment of one host: a home, a state root and a configuration of its own, nothing of ours."""
    home.mkdir(parents=True, exist_ok=True)
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "PYTHONPATH", "LANG", "SYSTEMROOT", "TMPDIR")}
    return {
        **kept,
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "INTERLINK_URL": url,
        "INTERLINK_NAME": name,
        **more,
    }


def make_identity(home: Path, folder: str | None = None) -> str:
    """Make the host's key where the product looks for it; returns the public key.

    The Rust system looks in HOME/.config alone and wants a peers file, so both are there.
    """
    config = home / "config" / "interlink"
    config.mkdir(parents=True, exist_ok=True)
    if not (home / ".config").exists():
        (home / ".config").symlink_to("config")
    argv = [*program("interlink-keygen", folder), "--out", str(config / "id.key")]
    done = subprocess.run(argv, env=host_environment(home, "", ""), capture_output=True, text=True, check=True)
    found = _KEY.search(done.stdout)
    if found is None:
        raise RuntimeError(f"no public key in what interlink-keygen says: {done.stdout[:200]!r}")
    if binaries(folder) is not None and not (config / "peers.json").exists():
        (config / "peers.json").write_text("{}", encoding="utf-8")
    return found[1]


def read_inbox(state: Path, session: str) -> list[dict[str, Any]]:
    """The records of a session's inbox file (JSON lines)."""
    path = state / "interlink" / "inbox" / f"{session}.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line.strip()]


class Relay:
    """One real relay process on a port of its own, which it keeps over restarts.

    Other binaries (`folder`, else INTERLINK_LAB_BIN) may not say where they listen, and may keep nothing over a
    restart by themselves: they get a free port and a queue file below `home`.
    """

    def __init__(
        self, home: Path, *args: str, folder: str | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        self.home = home
        self.addr = "127.0.0.1:0"
        self._args = args
        self._folder = folder
        self._env = dict(env or {})
        self.process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://{self.addr}"

    def start(self) -> None:
        """Start it and return once it listens. RuntimeError with its words where it does not."""
        self.home.mkdir(parents=True, exist_ok=True)
        env = host_environment(self.home, "", "", **self._env)
        args = self._args
        other = binaries(self._folder) is not None
        if other:
            if self.addr.endswith(":0"):
                self.addr = f"127.0.0.1:{free_port()}"
            if not {"--db", "--memory"} & set(args):
                env.setdefault("INTERLINK_DB", str(self.home / "queue.db"))
            args = tuple(arg for arg in args if arg != "--memory")
        argv = [*program("interlink-bus", self._folder), "--addr", self.addr, *args]
        log = (self.home / "relay.log").open("a", encoding="utf-8")
        self.process = subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log if other else subprocess.DEVNULL,
            stderr=log if other else subprocess.PIPE,
            text=True,
        )
        if other:
            log.close()
            self._await_port()
            return
        assert self.process.stderr is not None
        said = []
        for line in self.process.stderr:
            said.append(line)
            log.write(line)
            if "event=relay_listening" in line:
                self.addr = line.split(" addr=", 1)[1].split()[0]
                break
        else:
            raise RuntimeError("the relay did not start: " + "".join(said))
        _drain(self.process, log)

    def _await_port(self) -> None:
        assert self.process is not None
        host, port = self.addr.split(":")
        end = time.monotonic() + GUARD_S
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            with socket.socket() as probe:
                if probe.connect_ex((host, int(port))) == 0:
                    return
            time.sleep(0.01)
        said = (self.home / "relay.log").read_text("utf-8", "replace")
        raise RuntimeError(f"the relay does not listen on {self.addr}: {said[-2000:]}")

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, and wait; SIGKILL after a while."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    """A port on 127.0.0.1 that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _drain(process: "subprocess.Popen[str]", log: Any) -> None:
    """Keep reading what a process says into its log, so that it never blocks."""

    def copy() -> None:
        assert process.stderr is not None
        with log:
            for line in process.stderr:
                log.write(line)
                log.flush()

    threading.Thread(target=copy, daemon=True).start()
