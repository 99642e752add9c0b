"""The lab's hosts against the real ones: the same scenario, the same trace, version by version.

What the real programs do is in `trace.expected` and `codex_trace.expected`; the tests of these modules hold the
programs themselves to it.
"""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from host_tests import codex_trace, recorder, trace
from host_tests.codex_world import VERSIONS as CODEX
from interlink_lab.node.hostproc import plugin_hooks
from interlink_lab.run import Run, open_run
from interlink_lab.tools import hosts
from interlink_lab.topology import FAST, HostSpec, Topology

CLAUDE = hosts.known()["claude"][1]
Line = dict[str, Any]

# What a trace of a fixture need not have, and why. Everything else is equal.
ALLOWED = {
    ("wake", "summary"): "the host's words around a notice; the fixture's agent gets the notice alone",
    ("wake", "origin"): "of a result on the host's standard output; the fixture has no such output",
}
LABS_OWN = "discover"  # the lab's call, before the scenario begins: it waits until the hosts see each other

# What the newer Claude Code has and the older one has not: these, and the probe before its handshake.
NEWER_ENV = {
    "server": {"CLAUDE_CODE_CHILD_NOTES_DIR", "CLAUDE_CODE_LAUNCHED_BY_SESSION_IDS"},
    "hook": {"CLAUDE_CODE_CHILD_NOTES_DIR"},
}


def topology(kind: Any, **options: Any) -> Topology:
    """alice, and bob's host of this kind; no notice is repeated while the scenario runs."""
    return Topology(
        hosts=(
            HostSpec(name="alice", trusts=("bob",)),
            HostSpec(name="bob", kind=kind, trusts=("alice",), options=options),
        ),
        env={**FAST, "INTERLINK_NOTICE_SCHEDULE_S": "600"},
    )


def played(made: Topology, folder: Path, play: Callable[[Run], Awaitable[list[Line]]]) -> list[Line]:
    """What `play` gives for a run of the lab below `folder`."""

    async def go() -> list[Line]:
        async with open_run(made, folder) as run:
            return await play(run)

    return anyio.run(go)


def seen(run: Run, kind: str) -> list[tuple[int, Line]]:
    """(time, event) of bob's events of a kind; the time is that of the recorders."""
    return [(run.history.begun_ns + round(e["t"] * 1e9), e) for e in run.history.of(kind, party="bob")]


def of_claude(version: str, folder: Path) -> list[Line]:
    """The scenario of `trace`, on the lab's Claude."""
    log = folder / "trace.jsonl"
    log.touch()
    hooks = folder / "plugin" / "hooks" / "hooks.json"
    hooks.parent.mkdir(parents=True)
    hooks.write_text(trace.recorded_hooks(Path(plugin_hooks()), log), "utf-8")
    server = [*trace.recorder("record_server.py", log), "interlink-mcp"]

    async def play(run: Run) -> list[Line]:
        alice, bob = run.host("alice"), run.host("bob")

        async def hook(number: int) -> None:
            await bob.idle()
            await run.until(
                lambda: [row["kind"] for row in trace.recorded(log)].count("hook") == number, f"hook {number}"
            )

        async def wakes(number: int) -> None:
            await bob.armed(bob.session)
            await alice.send(bob, session=bob.session)
            await run.settled()
            await hook(number)

        await bob.armed(bob.session)
        await bob.whole_turn()
        await hook(2)
        await wakes(3)
        await bob.armed(bob.session)  # as in the real trace: the listener of the Stop is there before /clear
        cleared = await bob.call("clear")
        await hook(4)
        await wakes(5)
        await bob.call("fail")
        await bob.whole_turn()
        await hook(6)
        await bob.node.remote.call("host_end", name="bob")
        ended = time.monotonic_ns()
        bob.session = cleared
        await bob.start("continue")
        await hook(7)
        lines = [row for row in trace.recorded(log) if row.get("name") != LABS_OWN]
        lines += [{"at": at, "kind": "wake", "hook": event["hook"]} for at, event in seen(run, "wake")]
        return trace.in_order(lines, ended, set())

    return played(topology("claude", version=version, hooks=str(hooks), server=server), folder / "run", play)


def of_codex(version: str, folder: Path) -> list[Line]:
    """The scenario of `codex_trace`, on the lab's Codex."""
    log = folder / "trace.jsonl"
    server = [*trace.recorder("recorder.py", log), "calls", "interlink-mcp"]

    async def play(run: Run) -> list[Line]:
        alice, bob = run.host("alice"), run.host("bob")
        await alice.send(bob, session=bob.session)
        await run.settled()
        await bob.idle()
        await bob.turn(held=True)
        await run.count("step", 3, "bob")
        await alice.send(bob, session=bob.session)
        await run.count("queue", 2, "bob", outcome="ok")
        await bob.call("release")
        await run.settled()
        await bob.idle()
        assert not list(run.history.of("hook.failed", party="bob"))
        (calls,) = (folder / "run").rglob("calls.jsonl")
        rows = [row for row in recorder.noted(log) if row["name"] != LABS_OWN]
        rows += [{"at": row["at_ns"], "argv": row["argv"]} for row in recorder.noted(calls)]
        triggers = {"user": "", "queue": "queue"}
        rows += [{"at": at, "turn": triggers[event["cause"]]} for at, event in seen(run, "step")]
        events = [event["hook"] for _, event in seen(run, "hook")]
        return codex_trace.normal(sorted(rows, key=lambda row: row["at"]), events, bob.session)

    return played(topology("codex", version=version, server=server), folder / "run", play)


def fit_for_a_fixture(real: list[Line]) -> list[Line]:
    """The real trace without what is `ALLOWED` to be missing."""
    return [{k: v for k, v in line.items() if (line["kind"], k) not in ALLOWED} for line in real]


@pytest.mark.parametrize("version", CLAUDE)
@pytest.mark.req("H4", "H5", "H9")
def test_the_labs_claude_does_what_the_real_one_does(version: str, tmp_path: Path) -> None:
    assert of_claude(version, tmp_path) == fit_for_a_fixture(trace.expected(version))


@pytest.mark.parametrize("version", CODEX)
@pytest.mark.req("X1", "X2", "H13")
def test_the_labs_codex_does_what_the_real_one_does(version: str, tmp_path: Path) -> None:
    assert of_codex(version, tmp_path) == codex_trace.expected(version)


def test_nothing_is_allowed_that_is_not_there() -> None:
    found = {(line["kind"], name) for version in CLAUDE for line in trace.expected(version) for name in line}
    assert found >= set(ALLOWED)


@pytest.mark.req("H9")
def test_the_versions_of_claude_differ_in_this_alone() -> None:
    older, newer = (trace.expected(version) for version in CLAUDE)
    without = [
        {**line, "env": [name for name in line["env"] if name not in NEWER_ENV[line["kind"]]]}
        if "env" in line else line
        for line in newer
        if line.get("method") != trace.PROBE
    ]  # fmt: skip
    assert without == older
    assert [line.get("method") for line in newer].count(trace.PROBE) == 1
