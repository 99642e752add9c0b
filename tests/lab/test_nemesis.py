"""The nemesis as data: plans from seeds, effects in histories, points, file faults, the rogue relay's requests."""

import asyncio
import fcntl
import json
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from interlink_lab.handles import HostHandle, RelayHandle
from interlink_lab.history import Event, History
from interlink_lab.nemesis import KINDS, Fault, begin, observed
from interlink_lab.nemesis.observe import effect
from interlink_lab.node.files import FileFaults
from interlink_lab.node.rogue import Message, Rogue, read_message
from interlink_lab.random_run import make_plan
from interlink_lab.run import Run
from interlink_lab.topology import HostSpec, RelaySpec, two_hosts
from interlink_lab.wire import Signer, send_body


def history(*rows: tuple[float, str, str, dict[str, Any]]) -> History:
    made = History()
    made.events = [{"t": t, "party": p, "n": n, "kind": k, **d} for n, (t, p, k, d) in enumerate(rows, 1)]
    return made


# --- plans --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_a_plan_of_60_s_has_the_faults_that_it_must_have(seed: int) -> None:
    faults = make_plan(seed, 60.0).faults()
    assert sum(f.kind.startswith("kill-") for f in faults) >= 25
    assert len({f.kind for f in faults}) >= 12
    assert {f.kind for f in faults} <= set(KINDS)


def test_a_seed_gives_the_same_plan_each_time_and_another_seed_another() -> None:
    assert make_plan(7, 30.0) == make_plan(7, 30.0)
    assert make_plan(7, 30.0).lanes != make_plan(8, 30.0).lanes


@pytest.mark.parametrize("seed", range(20))
def test_tokens_of_a_plan_are_its_own(seed: int) -> None:
    work = [w for rows in make_plan(seed, 60.0).work.values() for w in rows if "prefix" in w.args]
    assert work
    assert len({w.args["prefix"] for w in work}) == len(work)


# --- effects ------------------------------------------------------------------------------------------


def test_every_kind_says_what_shows_it() -> None:
    assert all(effect(kind) is not None for kind in KINDS)


def test_a_kill_is_seen_by_the_signal_that_ended_its_target() -> None:
    fault = {"id": 1, "fault": "kill-server", "target": "bob.server", "lasts": True}
    rows = [
        (1.0, "lab", "fault", fault),
        (1.1, "alice.server", "exit", {"code": -9}),
        (1.2, "bob.server", "exit", {"code": 0}),
        (1.3, "bob.server", "exit", {"code": -9}),
        (2.0, "lab", "fault.end", {"id": 1}),
        (9.0, "lab", "end", {}),
    ]
    made = history(*rows)
    found = observed(made, made.events[0])
    assert found is not None and found["t"] == 1.3
    made = history(*rows[:3], *rows[4:])
    assert observed(made, made.events[0]) is None, "an orderly end is no kill"


@pytest.mark.parametrize(
    ("kind", "target", "party", "event", "data"),
    [
        ("partition", "bob.link", "bob.link", "link.hit", {"mode": "blackhole"}),
        ("duplicate", "r1", "r1.rogue", "rogue", {"did": "duplicate"}),
        ("pause", "bob.host", "bob.host", "stopped", {"pid": 1}),
        ("corrupt", "bob.mailbox", "bob.server", "log", {"event": "mailbox_corrupt", "fields": {}}),
        ("clock", "bob.clock", "bob.shim", "log", {"event": "bent", "fields": {"what": "clock", "value": "-5"}}),
        ("two-servers", "bob.server", "bob.second", "start", {"pid": 1}),
    ],
)
def test_an_effect_counts_within_its_span_and_on_its_target(
    kind: str, target: str, party: str, event: str, data: dict[str, Any]
) -> None:
    fault = (1.0, "lab", "fault", {"id": 1, "fault": kind, "target": target, "lasts": True})
    ended = (2.0, "lab", "fault.end", {"id": 1})
    for at, there in ((1.5, True), (0.5, False), (8.0, False)):
        made = history(fault, ended, (at, party, event, data), (9.0, "lab", "end", {}))
        assert (observed(made, made.events[0]) is not None) is there
    made = history(fault, ended, (1.5, party.replace("bob", "eve").replace("r1", "r2"), event, data))
    assert observed(made, made.events[0]) is None, "it was another's"


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(ValueError, match="no fault"):
        asyncio.run(begin(None, Fault("earthquake", "bob")))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (Fault("pause", "bob.sever"), r"HOST\.server"),
        (Fault("pause", "carol.server"), "there are bob, r1, r2"),
        (Fault("kill-relay", "bob.server"), "it takes RELAY"),
        (Fault("partition", "r1"), r"HOST\.link"),
        (Fault("duplicate", "r1"), "no rogue proxy"),
        (Fault("slow-sync", "bob.disk", options={"sync": 5}), "no option sync; it takes sync_ms"),
        (Fault("drop-up", "bob.link", options={"delay_s": 5}), "no option delay_s; it takes relay"),
    ],
)
def test_a_fault_that_is_none_is_refused_before_anything_is_done(fault: Fault, told: str) -> None:
    relays = {name: SimpleNamespace(spec=RelaySpec(name=name, rogue=name == "r2")) for name in ("r1", "r2")}
    run = SimpleNamespace(hosts={"bob": None}, relays=relays)
    with pytest.raises(ValueError, match=told):
        asyncio.run(begin(run, fault))  # type: ignore[arg-type]


def faults_of(act: Callable[[Run], Coroutine[Any, Any, object]], hit: bool = True) -> list[Event]:
    """What a run without processes notes of faults: each signal hits, or none does."""

    async def call(op: str, **_arguments: Any) -> list[int]:
        assert op == "signal"
        return [7] if hit else []

    node: Any = SimpleNamespace(remote=SimpleNamespace(call=call))
    backend: Any = SimpleNamespace(relay_bind="127.0.0.1:0", name="none")
    run = Run(two_hosts(), backend, History(), False, 0)
    run.hosts["bob"] = HostHandle(run, HostSpec(name="bob"), node)
    run.relays["r1"] = RelayHandle(run, RelaySpec(name="r1"), node)
    asyncio.run(act(run))
    return run.history.of("fault", "fault.missed")


async def _kills(run: Run) -> None:
    assert await run.host("bob").kill()
    assert await run.host("bob").kill("server")
    assert await run.relay().kill()


def test_a_kill_by_a_scenario_is_a_fault_of_a_moment() -> None:
    found = faults_of(_kills)
    told = [(e["id"], e["fault"], e["target"], e["lasts"]) for e in found]
    assert told == [
        (1, "kill-host", "bob.host", False), (2, "kill-server", "bob.server", False),
        (3, "kill-relay", "r1", False),
    ]  # fmt: skip
    assert all(e["fault"] in KINDS for e in found)


def test_a_kill_that_finds_nothing_says_so() -> None:
    async def act(run: Run) -> None:
        assert not await run.host("bob").kill("listener")

    assert [(e["kind"], e["id"]) for e in faults_of(act, hit=False)] == [("fault", 1), ("fault.missed", 1)]


@pytest.mark.parametrize(
    ("kind", "target"),
    [("kill-host", "bob.host"), ("kill-server", "bob.server"), ("kill-listener", "bob.listener"),
     ("kill-relay", "r1")],
)  # fmt: skip
def test_a_kill_by_the_nemesis_is_noted_once(kind: str, target: str) -> None:
    (fault,) = faults_of(lambda run: begin(run, Fault(kind, target)))
    assert (fault["fault"], fault["target"], fault["lasts"]) == (kind, target, True)


# --- files --------------------------------------------------------------------------------------------


@pytest.fixture
def mailbox(tmp_path: Path) -> Path:
    path = tmp_path / "state" / "interlink" / "mailbox" / "KEY" / "s.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"records": ["x" * 100]}), "utf-8")
    return path


@pytest.mark.parametrize("what", ["corrupt", "truncate"])
def test_a_damaged_file_does_not_parse_and_is_mended_whole(tmp_path: Path, mailbox: Path, what: str) -> None:
    good, faults = mailbox.read_bytes(), FileFaults(tmp_path)
    assert faults.apply(what, "mailbox") == "s.json"
    with pytest.raises(ValueError):
        json.loads(mailbox.read_bytes())
    assert faults.mend("mailbox")
    assert mailbox.read_bytes() == good


def test_mending_says_when_a_damaged_file_was_written_over(tmp_path: Path, mailbox: Path) -> None:
    faults = FileFaults(tmp_path)
    faults.apply("corrupt", "mailbox")
    mailbox.write_text("{}", "utf-8")
    assert not faults.mend("mailbox")
    assert mailbox.read_text("utf-8") == "{}", "it is left as it was found"


def test_damage_waits_for_the_lock_of_the_product(tmp_path: Path, mailbox: Path) -> None:
    faults = FileFaults(tmp_path)
    fd = os.open(mailbox.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)

    async def case() -> None:
        damage = asyncio.create_task(asyncio.to_thread(faults.apply, "corrupt", "mailbox"))
        done, _ = await asyncio.wait([damage], timeout=0.3)
        assert not done
        mailbox.write_text('{"newer": true}', "utf-8")
        os.close(fd)
        await damage

    asyncio.run(case())
    assert faults.mend("mailbox")
    assert json.loads(mailbox.read_bytes()) == {"newer": True}


def test_a_file_in_the_way_makes_writes_fail_and_is_taken_away(tmp_path: Path, mailbox: Path) -> None:
    faults = FileFaults(tmp_path)
    faults.apply("in-the-way", "mailbox")
    with pytest.raises(NotADirectoryError):
        mailbox.write_text("x", "utf-8")
    with pytest.raises(ValueError, match="already"):
        faults.apply("in-the-way", "mailbox")
    faults.mend_all()
    assert "records" in json.loads(mailbox.read_text("utf-8"))


# --- the rogue relay ----------------------------------------------------------------------------------


class Stub:
    """A relay that takes everything and remembers it, behind a rogue proxy."""

    def __init__(self) -> None:
        self.taken: list[Message] = []
        self.events: list[dict[str, Any]] = []
        self.rogue = Rogue(lambda party, kind, **data: self.events.append({"kind": kind, **data}))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await read_message(reader)) is not None:
            self.taken.append(request)
            body = json.dumps({"status": "messages", "messages": [1, 2, 3]}).encode()
            status = "202 Accepted" if request.path == "/send" else "200 OK"
            writer.write(Message(f"HTTP/1.1 {status}", [], body).encode())
            await writer.drain()
        writer.close()

    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(m.body)["payload"] for m in self.taken if m.path == "/send"]


def ask(mode: str, path: str, body: bytes = b"", times: int = 1) -> tuple[Stub, list[Message | None]]:
    """What a client gets from a rogue relay, and what reached the real one."""
    stub = Stub()

    async def case() -> list[Message | None]:
        server = await asyncio.start_server(stub.serve, "127.0.0.1", 0)
        address = await stub.rogue.open("127.0.0.1:0", f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        stub.rogue.set(mode)
        answers = []
        for _ in range(times):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
            writer.write(Message(f"POST {path} HTTP/1.1", [("host", "x")], body).encode())
            await writer.drain()
            answers.append(await read_message(reader))
            writer.close()
        stub.rogue.close()
        server.close()
        return answers

    async def guarded() -> list[Message | None]:
        async with asyncio.timeout(60):
            return await case()

    return stub, asyncio.run(guarded())


SENT = send_body("ROUTE", Signer(bytes(32)).message(Signer(b"\1" * 32).public, "hello"))


@pytest.mark.parametrize(("mode", "status"), [("429", 429), ("500", 500)])
def test_errors_come_in_place_of_the_relays_answer(mode: str, status: int) -> None:
    stub, (answer,) = ask(mode, "/send", SENT)
    assert answer is not None and answer.status == status
    assert stub.taken == []


def test_a_duplicate_reaches_the_relay_twice() -> None:
    stub, (answer,) = ask("duplicate", "/send", SENT)
    assert answer is not None and answer.status == 202
    assert [b["text"] for b in stub.bodies()] == ["hello", "hello"]


def test_a_replay_sends_older_ones_again() -> None:
    stub, _ = ask("replay", "/send", SENT, times=3)
    assert len(stub.bodies()) == 3 + 1 + 2


def test_forgeries_are_of_a_stranger_and_of_a_friend_whose_signature_does_not_hold() -> None:
    stub, _ = ask("forge", "/send", SENT)
    real, stranger, friend = stub.bodies()
    assert stranger["from"] != real["from"] == friend["from"]
    assert friend["sig"] == real["sig"] and friend["text"] != real["text"]
    assert stranger["text"].startswith("[[m:forged-")


def test_a_lost_acknowledgement_reaches_nobody_and_a_lost_answer_the_relay_alone() -> None:
    stub, answers = ask("lose-ack", "/ack", b"{}")
    assert answers == [None] and stub.taken == []
    stub, answers = ask("lose-answer", "/ack", b"{}")
    assert answers == [None] and len(stub.taken) == 1


def test_reordered_and_garbled_answers() -> None:
    _, (answer,) = ask("reorder", "/recv")
    assert answer is not None and json.loads(answer.body)["messages"] == [3, 2, 1]
    _, (answer,) = ask("garbage", "/recv")
    assert answer is not None and answer.body.startswith(b"<html>")
