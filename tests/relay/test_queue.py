"""The queue, the roster and the waiters by themselves: group commit, durability, clocks (B2, B3)."""

import asyncio
import sqlite3
from pathlib import Path

import msgspec
import pytest

from interlink.errors import WireError
from interlink.relay.queue import ForeignAck, Queue, QueueFull, make_token, parse_token
from interlink.relay.roster import Roster, RosterFull
from interlink.relay.serving import is_loopback, show_address
from interlink.relay.tables import StoreFault, Tables
from interlink.relay.waiters import TooManyWaiters, Waiters
from interlink.settings import Settings


def _settings(**values: object) -> Settings:
    found = Settings()
    for name, value in values.items():
        assert hasattr(found, name)
        setattr(found, name, value)
    return found


@pytest.mark.req("B2")
@pytest.mark.parametrize("memory", [True, False])
def test_requests_that_arrive_together_share_a_commit(tmp_path: Path, memory: bool) -> None:
    groups: list[int] = []
    arrivals: list[set[str]] = []

    async def scenario() -> None:
        path = None if memory else str(tmp_path / "q.db")
        queue = Queue(
            path, Settings(), lambda routes: arrivals.append(set(routes)), lambda _s, n: groups.append(n)
        )
        await asyncio.gather(*(queue.put(f"A#{number % 3}", b"%d" % number) for number in range(60)))
        assert groups == [60]
        assert arrivals == [{"A#0", "A#1", "A#2"}]
        heads = await asyncio.gather(*(queue.head(f"A#{number}", 256, 1 << 20) for number in range(3)))
        for number, found in enumerate(heads):
            assert [message.payload for message in found] == [b"%d" % n for n in range(number, 60, 3)]
        forged = parse_token("A#1", heads[1][1].token)[0]
        # Acknowledgements and sends in one group; the refused one takes nobody with it.
        results = await asyncio.gather(
            queue.ack("A#0", [message.token for message in heads[0]]),
            queue.ack("A#1", [heads[1][0].token, make_token("A#1", forged, "forged")]),
            queue.put("A#2", b"last"),
            return_exceptions=True,
        )
        assert results[0] == 20 and isinstance(results[1], ForeignAck) and results[2] is None
        assert groups == [60, 3]
        assert queue.stats() == (41, sum(len(b"%d" % n) for n in range(60) if n % 3) + 4, 2)
        await queue.close()

    asyncio.run(scenario())


@pytest.mark.req("B2")
def test_a_group_is_bounded_in_bytes(tmp_path: Path) -> None:
    groups: list[int] = []

    async def scenario() -> None:
        queue = Queue(
            str(tmp_path / "q.db"), _settings(relay_group_bytes=100), on_commit=lambda _s, n: groups.append(n)
        )
        await asyncio.gather(*(queue.put("A", b"x" * size) for size in (40, 40, 40, 500, 10)))
        assert [len(m.payload) for m in await queue.head("A", 9, 1000)] == [40, 40, 40, 500, 10]
        await queue.close()

    asyncio.run(scenario())
    assert groups == [2, 1, 1, 1]


@pytest.mark.req("B2")
def test_a_sender_that_is_cancelled_leaves_the_counts_right(tmp_path: Path) -> None:
    async def scenario() -> None:
        queue = Queue(str(tmp_path / "q.db"), _settings(relay_queue_max_messages=2))
        tasks = [asyncio.create_task(queue.put("A", b"1")) for _ in range(2)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with pytest.raises(QueueFull):
            await queue.put("A", b"2")
        tokens = [message.token for message in await queue.head("A", 9, 100)]
        while len(tokens) < 2:
            tokens = [message.token for message in await queue.head("A", 9, 100)]
        assert await queue.ack("A", tokens) == 2
        assert queue.stats() == (0, 0, 0)
        await queue.close()

    asyncio.run(scenario())


@pytest.mark.req("B2")
def test_commits_are_synced(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path / "q.db"), Settings())
    db = tables._write_db
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert db.execute("PRAGMA synchronous").fetchone() == (2,), "FULL: the log is synced at every commit"
    assert db.execute("PRAGMA auto_vacuum").fetchone() == (2,), "INCREMENTAL: a drained file can shrink"
    tables.close()


@pytest.mark.req("B2")
def test_the_head_of_a_queue_is_found_by_the_index(tmp_path: Path) -> None:
    Tables(str(tmp_path / "q.db"), Settings()).close()
    db = sqlite3.connect(tmp_path / "q.db")
    for sql in (
        "SELECT seq, secret, ts, payload FROM message WHERE route = 'A' ORDER BY seq LIMIT 9",
        "SELECT route, count(*), sum(size) FROM message GROUP BY route",
    ):
        plan = " ".join(row[3] for row in db.execute("EXPLAIN QUERY PLAN " + sql))
        assert "USING" in plan and "message_by_route" in plan and "TEMP B-TREE" not in plan, plan
    db.close()


@pytest.mark.req("B2")
def test_tokens() -> None:
    token = make_token("A#s", 7, "end")
    assert token == "A#s\0" + "0" * 19 + "7end"
    assert parse_token("A#s", token) == (7, "end")
    for route, text in (("A#", token), ("A#s", "A#s\0"), ("A#s", "A#s\0" + "1" * 19), ("A#s", "A#s\0" + "٣" * 20)):
        with pytest.raises(ForeignAck):
            parse_token(route, text)


@pytest.mark.req("B2")
def test_a_full_disk_refuses_sends_and_takes_the_acks_of_the_same_group(tmp_path: Path) -> None:
    async def scenario() -> None:
        queue = Queue(str(tmp_path / "q.db"), Settings())
        for number in range(3):
            await queue.put("A", b"%d" % number)
        tokens = [message.token for message in await queue.head("A", 9, 100)]
        # SQLite's own bound on the file: "database or disk is full", without filling a disk.
        db = queue._tables._write_db
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {pages}")
        before = queue.stats()
        results = await asyncio.gather(
            queue.put("A", b"x" * 100_000),
            queue.ack("A", tokens[:1]),
            queue.put("B", b"y"),
            return_exceptions=True,
        )
        assert isinstance(results[0], StoreFault) and results[1] == 1 and isinstance(results[2], StoreFault)
        assert queue.stats() == (before.messages - 1, before.bytes - 1, 1), "refused sends are not counted"
        assert await queue.head("B", 9, 100) == []
        db.execute("PRAGMA max_page_count = 1000000")
        await queue.put("A", b"x" * 100_000)
        assert await queue.healthy()
        assert [len(message.payload) for message in await queue.head("A", 9, 1 << 20)] == [1, 1, 100_000]
        await queue.close()

    asyncio.run(scenario())


# Roster


def _body(key: str, session: str = "s", **more: object) -> bytes:
    return msgspec.json.encode({"pubkey": key, "session": {"session_id": session}, **more})


@pytest.mark.req("B3")
def test_roster_expiry_and_who_makes_room() -> None:
    now = [1_000_000]
    settings = _settings(roster_max=3, roster_ttl_s=1000, live_s=90)
    roster = Roster(settings, lambda: now[0])

    def keys() -> list[str]:
        return [entry["pubkey"] for entry in msgspec.json.decode(roster.answer())["roster"]]

    for key in "abc":
        roster.announce(_body(key))
        now[0] += 1000
    with pytest.raises(RosterFull):
        roster.announce(_body("d"))
    assert keys() == ["a", "b", "c"]
    now[0] += 86_999
    with pytest.raises(RosterFull):
        roster.announce(_body("d"))  # a is 89.999 s old: still live
    roster.announce(_body("a"))  # a heartbeat makes b the oldest
    now[0] += 1001
    roster.announce(_body("d"))
    assert keys() == ["c", "a", "d"]
    now[0] += 1_000_000 - 1
    assert keys() == ["d"]
    now[0] += 1
    assert keys() == [] and len(roster) == 0


@pytest.mark.req("B3")
def test_roster_copy_keeps_ages_over_a_restart() -> None:
    now = [50_000]
    first = Roster(Settings(), lambda: now[0])
    first.announce(_body("a", note="é"))
    now[0] += 7000
    first.announce(_body("b"))
    data = first.dump(1_000_000)
    second = Roster(Settings(), lambda: 3)
    second.load(data, 1_002_000)
    found = msgspec.json.decode(second.answer())["roster"]
    assert [(entry["pubkey"], entry["age_ms"]) for entry in found] == [("a", 9000), ("b", 2000)]
    assert found[0]["note"] == "é"
    second.load(data, 0)  # a clock that went back
    assert msgspec.json.decode(second.answer())["roster"][0]["age_ms"] == 0
    for bad in (b"", b"{}", b'[{"key":1}]', data[:-3]):
        with pytest.raises(WireError):
            Roster(Settings()).load(bad, 0)


# Waiters


@pytest.mark.req("B2")
def test_a_wake_before_the_wait_is_not_lost() -> None:
    async def scenario() -> None:
        waiters = Waiters(2)
        one, two = waiters.add("A"), waiters.add("A")
        with pytest.raises(TooManyWaiters):
            waiters.add("B")
        waiters.wake(["A", "C"])
        assert await one.wait(600) and await two.wait(600)
        assert not await one.wait(0.001), "one wake, one return"
        waiting = asyncio.create_task(two.wait(600))
        await asyncio.sleep(0)
        waiters.stop()
        assert await waiting and waiters.stopped
        waiters.remove(one)
        waiters.remove(two)
        assert len(waiters) == 0

    asyncio.run(scenario())


def test_addresses() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "1.127.0.0")] == [False] * 4
    assert show_address(("::1", 80, 0, 0)) == "[::1]:80" and show_address(("127.0.0.1", 80)) == "127.0.0.1:80"
