"""The container half of the lab: images, a run in containers, and that nothing of it is left behind."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")  # its reaper would come from a registry

from host_tests.lab import passes
from interlink_lab.backends import engine as engines
from interlink_lab.backends import image
from interlink_lab.backends.docker import DockerNode, why_not
from interlink_lab.remote import RemoteFailed
from interlink_lab.run import open_run
from interlink_lab.scenarios import known
from interlink_lab.topology import two_hosts
from interlink_lab.verdict import run_scenario

GUARD_S = 60.0  # against hangs, never a measure
BUILD_S = 1200  # a first build with its downloads, on a slow machine
IN_CONTAINERS = sorted(name for name, scenario in known().items() if "docker" in scenario.backends)
COMPOSE = Path(__file__).parents[1] / "docker" / "compose.yaml"

pytestmark = pytest.mark.timeout(BUILD_S)


@pytest.fixture(scope="module")
def engine(need: Callable[[str, bool, str], None]) -> Iterator[Any]:
    """A client of the engine."""
    need("Docker engine", not why_not(), f"as root: docker/start-engine ({why_not()})")
    found = engines.client()
    try:
        name = image.base_image(found)
        need(
            "base image", name != image.PUBLIC_BASE or bool(found.images.list(name)), "as root: docker/base-image"
        )
        yield found
    finally:
        found.close()


@pytest.fixture(autouse=True)
def counted(request: pytest.FixtureRequest, need: Callable[[str, bool, str], None]) -> None:
    """Each test counts under the engine that it uses, not only the one for which the client was made."""
    if "engine" in request.fixturenames:
        request.getfixturevalue("engine")
        need("Docker engine", True, "")


def until(look: Callable[[], Any], what: str) -> Any:
    """What `look` gives once it gives something."""
    end = time.monotonic() + GUARD_S
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {GUARD_S:g} s for {what}")


class Play:
    """The services of compose.yaml by the engine's own interface, with the file's names, settings and volumes."""

    def __init__(self, engine: Any, stack: ExitStack, images: dict[str, str]) -> None:
        from testcontainers.core.container import DockerContainer
        from testcontainers.core.network import Network

        token = uuid.uuid4().hex[:8]
        labels = {engines.RUN: token, engines.OWNER: engines.owner()}
        stack.callback(engines.sweep, engine, token)
        self.network = stack.enter_context(Network(docker_network_kw={"labels": labels}))
        keys = engine.volumes.create(f"interlink-lab-{token}-keys", labels=labels)
        stack.callback(keys.remove)
        self.parts: dict[str, Any] = {}
        for name, service in services().items():
            made = DockerContainer(images[service["target"]]).with_network(self.network).with_network_aliases(name)
            for key, value in service["environment"].items():
                made.with_env(key, value)
            if "keys" in service["volumes"]:
                made.with_volume_mapping(keys.name, "/var/lib/interlink-keys", "rw")
            made.with_kwargs(labels=labels, hostname=name, init=True)
            made.start()
            stack.callback(made.stop, force=True, delete_volume=True)
            self.parts[name] = made.get_wrapped_container()

    def health(self, name: str) -> str:
        self.parts[name].reload()
        return str(self.parts[name].attrs["State"]["Health"]["Status"])

    def run(self, name: str, *argv: str) -> tuple[int, str]:
        """Exit code and output, as `docker compose exec NAME ...` has them."""
        done = self.parts[name].exec_run(list(argv))
        return done.exit_code, done.output.decode()


def services() -> dict[str, dict[str, Any]]:
    """What compose.yaml says of each service: target, environment, volumes. The few forms that the file uses."""
    found: dict[str, dict[str, Any]] = {}
    text = re.split(r"(?m)^services:\n|^volumes:\n", COMPOSE.read_text("utf-8"))[1]
    for block in re.split(r"(?m)^  (?=\w+:\n)", text):
        name, colon, body = block.partition(":\n")
        if not colon:
            continue
        target = re.search(r"target: (\w+)", body)
        found[name] = {
            "target": target[1] if target else "host",
            "environment": dict(re.findall(r"(?m)^      ([A-Z_]+): (.+)$", body)),
            "volumes": re.findall(r"(?m)^      - (\w+):/", body),
        }
    return found


@pytest.fixture(scope="module")
def play(engine: Any) -> Iterator[Play]:
    """Relay, alice and bob, once all are healthy."""
    images = {target: image.ensure(engine, target) for target in ("relay", "host")}
    with ExitStack() as stack:
        found = Play(engine, stack, images)
        for name in found.parts:
            until(lambda name=name: found.health(name) == "healthy", f"HEALTHCHECK of {name}")
        yield found


@pytest.mark.req("V2")
def test_the_hosts_of_the_compose_file_write_to_each_other(play: Play) -> None:
    assert sorted(play.parts) == ["alice", "bob", "relay"]
    for sender, receiver in (("alice", "bob"), ("bob", "alice")):
        text = f"hello from {sender}"
        until(
            lambda s=sender, r=receiver, t=text: play.run(s, "interlink", "send", r, t)[0] == 0, "who is announced"
        )
        code, said = play.run(receiver, "interlink-mcp", "wait")
        assert code == 2 and text not in said and f'"{sender}"' in said
        play.parts[receiver].restart(timeout=10)  # finds key, peers and mail again
        until(lambda r=receiver: play.run(r, "host-start", "--healthy")[0] == 0, f"{receiver} after a restart")
        assert text in play.run(receiver, "interlink", "inbox")[1]


def test_nothing_in_the_containers_runs_as_root(play: Play) -> None:
    for name, part in play.parts.items():
        assert part.attrs["Config"]["User"] == "10001:10001"
        # By name: the engine's own helper, which starts each HEALTHCHECK, is root for a moment.
        code, said = play.run(name, "sh", "-c", "grep -lE 'docker-init|tini|interlink' /proc/[0-9]*/comm")
        processes = [path.split("/")[2] for path in said.split()]
        assert code == 0 and "1" in processes and len(processes) >= 2, said
        for pid in processes:
            assert "\nUid:\t10001\t10001\t10001\t10001\n" in play.run(name, "cat", f"/proc/{pid}/status")[1]
        assert play.run(name, "sh", "-c", "id -u")[1] == "10001\n"
        assert play.run(name, "sh", "-c", "touch /etc/x || touch /opt/interlink/x")[0] != 0


def test_the_relay_is_unhealthy_when_it_does_not_answer(play: Play) -> None:
    assert play.run("relay", "relay-healthy")[0] == 0
    relay = play.run("relay", "sh", "-c", "grep -lax interlink-bus /proc/[0-9]*/comm | cut -d/ -f3")[1].split()
    assert len(relay) == 1
    assert play.run("relay", "sh", "-c", f"kill -STOP {relay[0]}")[0] == 0
    try:
        code, said = play.run("relay", "relay-healthy")
        assert code == 1 and said.startswith("relay: ")
    finally:
        play.run("relay", "sh", "-c", f"kill -CONT {relay[0]}")
    until(lambda: play.run("relay", "relay-healthy")[0] == 0, "the relay")


def test_compose_reads_the_file() -> None:
    if subprocess.run(["docker", "compose", "version"], capture_output=True).returncode:
        pytest.skip(
            "no compose plugin (Debian 12 has none): the tests above play the file by the engine's interface"
        )
    command = ["docker", "compose", "-f", str(COMPOSE), "config", "--format", "json"]
    read = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["services"]
    assert {
        name: {
            "target": service["build"]["target"],
            "environment": service.get("environment") or {},
            "volumes": [volume["source"] for volume in service["volumes"]],
        }
        for name, service in read.items()
    } == services()


# --- runs of the lab ----------------------------------------------------------------------------------


@pytest.mark.req("V2")
def test_cross_host_in_containers(engine: Any, tmp_path: Path) -> None:
    image.ensure(engine)
    up: list[str] = []

    def watch(event: dict[str, Any]) -> None:
        if event["kind"] == "up":
            mine = {"label": f"{engines.OWNER}={engines.owner()}"}
            up.extend(row["Names"][0] for row in engine.api.containers(filters=mine))

    verdict = anyio.run(
        lambda: run_scenario(known()["cross-host"], tmp_path, backend="docker", seed=1, watch=watch)
    )
    assert verdict.result == "passed", verdict
    found = [match for name in up if (match := re.fullmatch("/interlink-lab-([0-9a-f]{8})-(alice|bob|r1)", name))]
    assert sorted(match[2] for match in found) == ["alice", "bob", "r1"]
    assert len({match[1] for match in found}) == 1
    assert engines.of_run(engine, found[0][1]) == []
    kept = {path.parent.name for path in (tmp_path / "nodes").glob("*/node.log")}
    assert kept == {"alice", "bob", "r1"}  # their files are there to look at
    assert list((tmp_path / "nodes" / "bob" / "home" / "state" / "interlink" / "mailbox").rglob("*.json"))


@pytest.mark.req("V2")
@pytest.mark.parametrize("name", IN_CONTAINERS)
def test_scenario(engine: Any, tmp_path: Path, name: str) -> None:
    image.ensure(engine)
    passes(name, tmp_path, "docker")


@pytest.mark.req("V2")
def test_machines_that_lose_power_or_network_come_back(engine: Any, tmp_path: Path) -> None:
    image.ensure(engine)

    async def go() -> None:
        async with open_run(two_hosts(), tmp_path, backend="docker") as run:
            alice, bob, relay = run.host("alice"), run.host("bob"), run.relay()
            assert isinstance(relay.node, DockerNode)
            await relay.node.disconnect()
            await alice.send(bob, "while the relay cannot be reached")
            await relay.node.connect()
            assert await run.settled()
            await alice.send(bob, "before the relay loses power")
            assert await run.settled()
            await relay.node.kill()
            with pytest.raises(RemoteFailed):
                await relay.node.remote.call("leftovers")
            await alice.send(bob, "while the relay has no power")
            await relay.node.start_again()
            await relay.node.remote.call("prepare")
            await relay.start()
            await bob.send(alice, "after it")
            assert await run.settled()

    anyio.run(go)


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_leaves_nothing(engine: Any, tmp_path: Path, sig: signal.Signals) -> None:
    image.ensure(engine)
    command = [sys.executable, "-m", "interlink_lab.cli", "run", "cross-host", "--long", "--backend", "docker"]
    run = subprocess.Popen([*command, "--out", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def of_it(labelled: Callable[..., list[dict[str, Any]]]) -> list[dict[str, Any]]:
        rows = labelled(filters={"label": engines.RUN})
        return [row for row in rows if f":{run.pid}:" in row["Labels"].get(engines.OWNER, "")]

    try:
        histories = until(lambda: list(tmp_path.glob("*/history.jsonl")), "the run's history")
        until(lambda: '"kind":"wake"' in histories[0].read_text("utf-8"), "a wake")
        assert len(of_it(engine.api.containers)) == 3 and len(of_it(engine.api.networks)) == 1
        run.send_signal(sig)
        assert run.wait(GUARD_S) != 0
    finally:
        if run.poll() is None:
            run.kill()
        run.communicate()
    if (
        sig is signal.SIGKILL
    ):  # nobody could clear up: their input has ended, so they end; the next run removes them
        until(lambda: not of_it(engine.api.containers), "containers that end by themselves")
        engines.sweep_orphans(engine)
    assert not of_it(lambda **more: engine.api.containers(all=True, **more))
    assert not of_it(engine.api.networks)


def test_an_engine_that_is_not_there_is_no_verdict(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "interlink_lab.cli", "run", "cross-host", "--backend", "docker", "--out", tmp_path],
        env={**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/none.sock"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3, done.stdout + done.stderr
    assert "docker/start-engine" in done.stdout.replace("\n", "")
