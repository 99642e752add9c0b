"""The container engine as the lab uses it: a client, what marks things as a run's own, and clearing them away."""

import fcntl
import ipaddress
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from docker.client import from_env  # type: ignore[import-not-found]
from docker.errors import APIError, DockerException, NotFound  # type: ignore[import-not-found]
from docker.types import IPAMConfig, IPAMPool  # type: ignore[import-not-found]

RUN = "interlink.lab.run"  # label of containers and networks: the run's token
OWNER = "interlink.lab.owner"  # label: the process that runs it
CALL_S = 120
SUBNETS = ipaddress.ip_network("10.199.0.0/16")
SUBNET_BITS = 27  # 29 nodes a run
ROOT = Path(__file__).resolve().parents[3]


class NoEngine(Exception):
    """No engine answers, or it cannot do what the lab needs; the text says how to mend it."""


def client() -> Any:
    """A client of the engine that DOCKER_HOST names, else the local one. NoEngine."""
    try:
        found = from_env(timeout=CALL_S)
        found.ping()
    except DockerException as exc:
        raise NoEngine(
            f"no container engine answers ({exc}): start one, as root with docker/start-engine"
        ) from exc
    return found


def cache() -> Path:
    """Where the lab keeps wheels and locks: INTERLINK_LAB_CACHE, else .cache/lab of this checkout."""
    folder = Path(os.environ.get("INTERLINK_LAB_CACHE") or ROOT / ".cache" / "lab").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def locked(name: str) -> Iterator[None]:
    """One process at a time; a kernel lock, gone with its holder."""
    fd = os.open(cache() / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


# --- whose is it --------------------------------------------------------------------------------------


def owner() -> str:
    """This process, so that another one can tell whether it still lives: boot, process namespace, pid, start."""
    return f"{_where()}:{os.getpid()}:{_started(os.getpid())}"


def _where() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return f"{boot}:{Path('/proc/self/ns/pid').readlink()}"


def _started(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()[19]
    except OSError:
        return ""


def is_orphan(mark: str) -> bool:
    """Whether the process of an owner mark has ended; never for one that cannot be seen from here."""
    where, _, rest = mark.rpartition(":")
    where, _, pid = where.rpartition(":")
    return where == _where() and pid.isdigit() and _started(int(pid)) != rest


def sweep(engine: Any, token: str) -> None:
    """Remove every container and network of a run."""
    _remove(engine, lambda labels: labels.get(RUN) == token)


def sweep_orphans(engine: Any) -> None:
    """Remove what runs left whose process was killed."""
    _remove(engine, lambda labels: is_orphan(labels.get(OWNER, "")))


def of_run(engine: Any, token: str | None = None) -> list[str]:
    """Names of the containers and networks of a run, or of all runs."""
    chosen = RUN if token is None else f"{RUN}={token}"
    containers = engine.api.containers(all=True, filters={"label": chosen})
    networks = engine.api.networks(filters={"label": chosen})
    return sorted([c["Names"][0].strip("/") for c in containers] + [n["Name"] for n in networks])


def _remove(engine: Any, mine: Any) -> None:
    for row in engine.api.containers(all=True, filters={"label": RUN}):
        if mine(row["Labels"]):
            remove_container(engine, row["Id"])
    for row in engine.api.networks(filters={"label": RUN}):
        if mine(row["Labels"]):
            try:
                engine.api.remove_network(row["Id"])
            except NotFound:
                continue  # another sweep was first


def remove_container(engine: Any, ident: str) -> None:
    """Kill and remove it with its volumes; fine where that has been done or is being done."""
    try:
        engine.api.remove_container(ident, force=True, v=True)
    except NotFound:
        return
    except APIError as exc:
        if exc.status_code != 409:  # its removal is under way already
            raise


# --- networks -----------------------------------------------------------------------------------------


def make_network(engine: Any, name: str, labels: dict[str, str]) -> Any:
    """A private network without a way out, on a subnet that nothing here uses. NoEngine when none is free."""
    with locked("subnets"):
        used = _used(engine)
        for subnet in SUBNETS.subnets(new_prefix=SUBNET_BITS):
            if any(subnet.overlaps(other) for other in used):
                continue
            pool = IPAMPool(subnet=str(subnet))
            try:
                return engine.networks.create(
                    name, internal=True, labels=labels, ipam=IPAMConfig(pool_configs=[pool])
                )
            except APIError as exc:
                if "overlaps" not in str(exc):
                    raise
    raise NoEngine(f"no subnet of {SUBNETS} is free")


def _used(engine: Any) -> list[ipaddress.IPv4Network]:
    """Subnets of the engine's networks and of this machine's routes."""
    found = []
    for row in engine.api.networks():
        for pool in (row.get("IPAM") or {}).get("Config") or ():
            network = ipaddress.ip_network(pool["Subnet"], strict=False)
            if isinstance(network, ipaddress.IPv4Network):
                found.append(network)
    routes = Path("/proc/net/route")
    if routes.exists():
        for line in routes.read_text("ascii").splitlines()[1:]:
            words = line.split()
            address, mask = (int.from_bytes(bytes.fromhex(w), "little") for w in (words[1], words[7]))
            if mask:
                found.append(ipaddress.IPv4Network((address, mask.bit_count())))
    return found
