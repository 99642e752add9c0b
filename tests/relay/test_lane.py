"""The relay's thread and its groups, and answers in one piece: what the speed of a send rests on (P3)."""

import asyncio
import threading
from typing import cast

import pytest

from interlink.relay.lane import Lane, Worker
from interlink.relay.protocol import _Joined


@pytest.mark.req("B2")
def test_a_worker_keeps_the_order_and_hands_back_results_and_faults() -> None:
    async def scenario() -> None:
        worker = Worker("test-worker")
        seen: list[tuple[object, BaseException | None]] = []
        fault = ValueError("of the call")

        def fails() -> int:
            raise fault

        worker.submit(lambda: 1, lambda result, exc: seen.append((result, exc)))
        worker.submit(fails, lambda result, exc: seen.append((result, exc)))
        name = await worker.run(lambda: threading.current_thread().name)
        assert name == "test-worker"
        assert seen == [(1, None), (None, fault)]
        with pytest.raises(ValueError, match="of the call"):
            await worker.run(fails)
        await asyncio.to_thread(worker.close)
        assert "test-worker" not in {thread.name for thread in threading.enumerate()}

    asyncio.run(scenario())


@pytest.mark.req("B2")
def test_who_stops_waiting_for_a_worker_takes_nothing_with_it() -> None:
    async def scenario() -> None:
        worker = Worker("test-worker")
        gate = threading.Event()
        task = asyncio.create_task(worker.run(gate.wait))
        await asyncio.sleep(0)
        task.cancel()
        gate.set()
        assert await worker.run(lambda: 2) == 2
        assert task.cancelled()
        worker.close()

    asyncio.run(scenario())


@pytest.mark.req("B2")
def test_what_comes_while_a_group_is_worked_on_is_the_next_group_and_a_fault_settles_it() -> None:
    async def scenario() -> None:
        worker = Worker("test-worker")
        gate = threading.Event()
        settled: list[tuple[list[int], object]] = []

        def work(items: object) -> int:
            gate.wait()
            group = list(cast("list[int]", items))
            if 9 in group:
                raise OSError("no disk")
            return sum(group)

        def settle(items: object, outcome: object) -> None:
            settled.append((list(cast("list[int]", items)), outcome))

        lane: Lane[int, int] = Lane(worker, work, settle, lambda item: item, lambda: 10)
        lane.add(1)
        await asyncio.sleep(0)  # the first group has begun
        await asyncio.sleep(0)
        for item in (2, 3, 5, 9):  # 10 is the limit of a group
            lane.add(item)
        gate.set()
        await lane.drained()
        assert [group for group, _ in settled] == [[1], [2, 3, 5], [9]]
        assert [outcome for _, outcome in settled[:2]] == [1, 10]
        assert isinstance(settled[2][1], OSError)
        worker.close()

    asyncio.run(scenario())


class _Wire:
    """Records what a transport is told. A stand-in: a socket would not show the pieces reliably."""

    def __init__(self) -> None:
        self.calls: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.calls.append(data)

    def close(self) -> None:
        self.calls.append(b"CLOSED")

    def is_closing(self) -> bool:
        return b"CLOSED" in self.calls


@pytest.mark.req("B2")
def test_head_and_body_go_out_in_one_piece_and_what_stands_alone_is_not_kept() -> None:
    async def scenario() -> None:
        wire = _Wire()
        joined = _Joined(cast(asyncio.Transport, wire), asyncio.get_running_loop())
        joined.write(b"head ")
        assert wire.calls == []
        joined.write(b"body")
        assert wire.calls == [b"head body"]
        joined.write(b"")
        joined.write(b"100 continue")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert wire.calls == [b"head body", b"100 continue"]
        joined.write(b"last")
        joined.close()
        assert wire.calls[2:] == [b"last", b"CLOSED"]
        assert joined.is_closing()
        await asyncio.sleep(0)
        assert wire.calls[-1] == b"CLOSED"

    asyncio.run(scenario())
