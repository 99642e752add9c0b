"""What changes while the notifier works is not taken for something that it has looked at (M8 to M10)."""

import json
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from support.mail import ME, PEER, Desk, note, settings
from support.world import until

from interlink.hosts.base import HOST_QUEUED, Notice, Outcome
from interlink.session.notifier import Notifier
from interlink.trust.peers import PeersFile


class Host:
    """An adapter; `during` happens while a handoff is under way."""

    name = "slow"
    uses_inbox = False

    def __init__(self, during: Callable[[], object]) -> None:
        self.during = during
        self.taken: list[Notice] = []

    async def handoff(self, notice: Notice) -> Outcome:
        self.taken.append(notice)
        if len(self.taken) == 1:
            self.during()
        return Outcome(HOST_QUEUED, ok=True)

    async def aclose(self) -> None:
        """Nothing runs."""


def notifier(desk: Desk, host: Host, folder: Path) -> Notifier:
    """One whose clock is the desk's, so that no reservation ever expires."""
    path = folder / "peers.json"
    path.write_text(json.dumps({"alice": {"key": PEER}}), "utf-8")
    found = Notifier(
        desk.layout, desk.mailbox, PeersFile(str(path), ME, desk.settings), host, desk.settings, lambda: desk.now
    )
    return found


async def work(made: Notifier, look: Callable[[], object], what: str) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(made.run)
        await until(look, what)
        group.cancel_scope.cancel()


@pytest.mark.req("M8", "M9")
def test_an_arrival_during_a_handoff_is_noticed_once_what_that_covered_is_acknowledged(
    state_root: str, tmp_path: Path
) -> None:
    desk = Desk(state_root, set_to=settings(reconcile_s=0.01))
    desk.admit(note("m1"))
    other = desk.reopened()

    def during() -> None:
        other.admit(note("m2"))
        other.ack("m1")

    host = Host(during)
    anyio.run(work, notifier(desk, host, tmp_path), lambda: len(host.taken) == 2, "the notice of m2")
    assert host.taken[1].count == 1


@pytest.mark.req("M9", "M18")
def test_an_arrival_between_the_look_and_its_end_is_noticed(state_root: str, tmp_path: Path) -> None:
    desk = Desk(state_root, set_to=settings(reconcile_s=0.01))
    desk.admit(note("m0"))
    desk.ack("m0")
    other = desk.reopened()
    reserve, looks = desk.mailbox.reserve, [0]

    def reserve_then_arrival(*args: object, **kwargs: object) -> object:
        found = reserve(*args, **kwargs)
        looks[0] += 1
        if looks[0] == 1:
            other.admit(note("m1"))  # another process of this session stores it at this moment
        return found

    desk.mailbox.reserve = reserve_then_arrival  # type: ignore[method-assign]
    host = Host(lambda: None)
    anyio.run(work, notifier(desk, host, tmp_path), lambda: len(host.taken) == 1, "the notice of m1")
