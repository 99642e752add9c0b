"""The measurements P1 to P6. Each returns plain numbers; bounded in count and time."""

import asyncio
import functools
import json
import os
import re
import subprocess
import time
from typing import Any

import anyio
import psutil

from interlink_lab import load
from interlink_lab.bench.rig import GUARD_S, Rig, go_on, lock_held, median, pause, percentile, wait_for
from interlink_lab.mcp_client import Session, open_client

Numbers = dict[str, float]
_NOTICE_ID = re.compile(r'receive_messages\(notification_id="([^"]+)"\)')


def receipts(text: str) -> list[dict[str, str]]:
    """The receipts in an answer of receive_messages."""
    return [json.loads(line.split("] Receipt: ", 1)[1]) for line in text.splitlines() if "] Receipt: " in line]


def _both(rig: Rig, session: str, use: Any) -> Any:
    async def run() -> Any:
        alice_env = rig.env("alice", "alice-session")
        async with (
            open_client(rig.server_argv(), alice_env, stderr=rig.home / "alice.log") as alice,
            open_client(rig.server_argv(), rig.env("bob", session), stderr=rig.home / "bob.log") as bob,
        ):
            await _announced(alice, session)
            return await use(alice, bob)

    return anyio.run(run)


async def _announced(alice: Session, session: str) -> None:
    """Until alice's server finds bob's session on the roster."""
    with anyio.fail_after(60):
        while session not in await alice.text("discover"):
            await anyio.sleep(0.05)


def p1_wake(rig: Rig, rounds: int) -> Numbers:
    """Send to the listener's exit 2, ms."""
    session = "bench-wake"

    async def use(alice: Session, bob: Session) -> list[float]:
        times = []
        for number in range(rounds):
            listener = rig.start_listener(session)
            try:
                await anyio.to_thread.run_sync(
                    lambda: wait_for(lambda: lock_held(rig.listener_lock(session)), "the listener's lock")
                )
                await anyio.sleep(0.02)
                began = time.perf_counter()
                await alice.text("send_message", to="bob", session=session, text=f"ping {number}")
                code = await anyio.to_thread.run_sync(listener.wait, GUARD_S)
                times.append((time.perf_counter() - began) * 1000)
                assert listener.stderr is not None
                said = listener.stderr.read().decode("utf-8")
                notice = _NOTICE_ID.search(said)
                if code != 2 or notice is None:
                    raise RuntimeError(f"the listener exited {code} and said {said[:200]!r}")
            finally:
                if listener.poll() is None:
                    listener.kill()
                    listener.wait()
            # The peer gives no second notice until the first one's id was named.
            found = receipts(await bob.text("receive_messages", notification_id=notice[1]))
            await bob.text("acknowledge_messages", messages=found)
        return times

    times = _both(rig, session, use)
    return {"median_ms": median(times), "p99_ms": percentile(times, 0.99), "max_ms": max(times)}


def p2_drain(rig: Rig, counts: list[int], every_s: float) -> Numbers:
    """Messages of 1 KiB a second, from a full queue into the mailbox."""
    out: Numbers = {}
    for count in counts:
        session = f"bench-drain-{count}"
        seconds = _backlog(rig, session, [count], every_s)[0]
        out[f"{count}_per_s"] = count / seconds
    return out


def _backlog(rig: Rig, session: str, steps: list[int], every_s: float) -> list[float]:
    """Seconds from go-on to stored, for each batch that piled up while bob's server was stopped."""

    async def run() -> list[float]:
        times = []
        total = 0
        async with open_client(rig.server_argv(), rig.env("bob", session), stderr=rig.home / "bob.log") as bob:
            await bob.text("get_my_session_id")
            await anyio.sleep(0.5)
            for step in steps:
                pause(bob.process.pid)
                try:
                    await anyio.to_thread.run_sync(rig.enqueue, session, step)
                finally:
                    began = time.perf_counter()
                    go_on(bob.process.pid)
                total += step
                end = await anyio.to_thread.run_sync(rig.wait_stored, session, total, every_s)
                times.append(end - began)
        return times

    return anyio.run(run)


def p3_sends(rig: Rig, senders: list[int], seconds: float) -> Numbers:
    """Durable sends a second."""
    out: Numbers = {}
    host, port = rig.address
    for count in senders:
        result = asyncio.run(load.send(host, port, senders=count, seconds=seconds, routes=0))
        out[f"{count}_per_s"] = result.rate
        out[f"{count}_p99_ms"] = result.percentile(0.99)
    return out


def p4_admission(rig: Rig, sizes: list[int], every_s: float) -> Numbers:
    """A batch of 64, and a single one, into a mailbox that holds so many, seen from outside (with its poll)."""
    out: Numbers = {}
    for size in sizes:
        session = f"bench-admit-{size}"
        steps = [size, *([64] if size else []), 1, 1, 1]
        times = _backlog(rig, session, steps, every_s)
        out[f"{size}_batch64_ms_per_message"] = times[1] * 1000 / 64
        out[f"{size}_single_ms"] = median([t * 1000 for t in times[2:]])
    return out


def p5_idle(rig: Rig, seconds: float) -> Numbers:
    """CPU (percent of a core) and memory (MB) of server, listener and relay while nothing happens."""
    session = "bench-idle"

    async def run() -> Numbers:
        out: Numbers = {}
        async with open_client(rig.server_argv(), rig.env("bob", session), stderr=rig.home / "bob.log") as bob:
            await bob.text("get_my_session_id")
            listener = rig.start_listener(session)
            try:
                await anyio.sleep(3)
                assert rig.relay.process is not None
                pids = {"server": bob.process.pid, "listener": listener.pid, "relay": rig.relay.process.pid}
                looks = {name: psutil.Process(pid) for name, pid in pids.items()}
                before = {name: sum(p.cpu_times()[:2]) for name, p in looks.items()}
                began = time.perf_counter()
                await anyio.sleep(seconds)
                passed = time.perf_counter() - began
                for name, process in looks.items():
                    out[f"{name}_cpu_pct"] = (sum(process.cpu_times()[:2]) - before[name]) / passed * 100
                    out[f"{name}_rss_mb"] = process.memory_info().rss / 1e6
            finally:
                listener.kill()
                listener.wait()
        return out

    result: Numbers = anyio.run(run)
    return result


def p6_start(rig: Rig, rounds: int) -> Numbers:
    """Start of `wait` to its lock, and of the server to its answered `initialize`, ms (medians)."""
    locks, answers = [], []
    for number in range(rounds):
        session = f"bench-start-{number}"
        began = time.perf_counter()
        listener = rig.start_listener(session)
        wait_for(functools.partial(lock_held, rig.listener_lock(session)), "the listener's lock", 0.0005)
        locks.append((time.perf_counter() - began) * 1000)
        listener.kill()
        listener.wait()
        answers.append(_initialize_ms(rig, session))
    return {"wait_ms": median(locks), "initialize_ms": median(answers)}


def _initialize_ms(rig: Rig, session: str) -> float:
    request = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "0"},
        },
    }
    began = time.perf_counter()
    with subprocess.Popen(
        rig.server_argv(),
        env=rig.env("bob", session),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        os.write(server.stdin.fileno(), json.dumps(request).encode() + b"\n")
        answer = server.stdout.readline()
        took = (time.perf_counter() - began) * 1000
        if b'"result"' not in answer:
            raise RuntimeError(f"initialize was answered by {answer[:200]!r}")
        server.stdin.close()
        server.wait(20)
    return took
