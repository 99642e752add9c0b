"""An idle session costs looks, not parses."""

import anyio
import pytest
from support.keys import ALICE, BOB, message

from interlink.hosts.base import INBOX_QUEUED, Notice, Outcome
from interlink.mailbox.store import Mailbox
from interlink.session.admission import Admission, Incoming
from interlink.session.notifier import Notifier
from interlink.settings import Settings
from interlink.state.paths import Layout
from interlink.trust.peers import PeersFile


class CountingMailbox(Mailbox):
    """The real one, counting how often its content is asked for."""

    reads = 0

    def read(self):  # type: ignore[no-untyped-def]
        self.reads += 1
        return super().read()


class Silent:
    """A host adapter that takes every notice (a stand-in for a host)."""

    name = "silent"
    uses_inbox = False

    def __init__(self) -> None:
        self.taken: list[Notice] = []

    async def handoff(self, notice: Notice) -> Outcome:
        self.taken.append(notice)
        return Outcome(INBOX_QUEUED, ok=True)

    async def aclose(self) -> None:
        return


@pytest.mark.req("M9", "M7")
def test_rounds_without_change_look_and_do_not_read(state_root: str) -> None:
    layout, settings, now = Layout(state_root), Settings(), [1_764_528_000_000]
    mailbox = CountingMailbox(layout, BOB.public, "s1", settings)
    admission = Admission(layout, mailbox, settings)
    peers = PeersFile(f"{state_root}/peers.json", BOB.public, settings)
    host = Silent()
    notifier = Notifier(layout, mailbox, peers, host, settings, lambda: now[0])

    async def rounds(count: int) -> int:
        before = mailbox.reads
        for _ in range(count):
            now[0] += 1000
            await notifier.round()
        return mailbox.reads - before

    async def main() -> None:
        peers.add("alice", ALICE.public)
        admission.admit([Incoming(message(ts=now[0]), 500)], peers.current().by_key, now[0])
        await notifier.round()
        assert len(host.taken) == 1
        await rounds(1)
        assert await rounds(25) == 0  # nothing is due before 30 s
        await rounds(5)
        assert len(host.taken) == 2  # and then it is
        now[0] -= 3_600_000  # the clock went back: expired, not waited for
        await notifier.round()
        assert len(host.taken) == 3

    anyio.run(main)
