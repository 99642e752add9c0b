"""The adapter of the Stop listener: a notice becomes a record, or a failure with its reason (C2, M2)."""

import os

import anyio
import pytest
from support.listener import layout, wait_once

from interlink import inbox
from interlink.hosts.base import Notice, Outcome
from interlink.hosts.claude_inbox import ClaudeInbox
from interlink.hosts.notice_text import render_notice


def handoff(notice: Notice) -> Outcome:
    async def run() -> Outcome:
        adapter = ClaudeInbox(layout(), "s1")
        try:
            return await adapter.handoff(notice)
        finally:
            await adapter.aclose()

    return anyio.run(run)


@pytest.mark.req("C2", "M2", "M3")
def test_a_notice_reaches_the_host_through_the_listener() -> None:
    text = render_notice("ab12cd34", 1, [("alice", "A" * 43, 1)])
    assert handoff(Notice("ab12cd34", text, through=4, count=1)) == Outcome("inbox_queued", ok=True)
    assert wait_once()[:2] == (2, text + "\n")


@pytest.mark.req("C11", "G4")
def test_a_consumed_notice_is_passed_over_but_a_pairing_notice_is_not() -> None:
    inbox.set_consumed(layout(), "s1", 5)
    handoff(Notice("n1", "[Interlink inbox notice] one", through=4, count=1))
    handoff(Notice("n2", "[Interlink inbox notice] knock", through=0, count=0, kind="pairing"))
    code, err, _ = wait_once()
    assert code == 2 and "knock" in err and "one" not in err


@pytest.mark.req("C6", "M17")
def test_a_failure_is_an_outcome_with_its_reason() -> None:
    inbox.prepare(layout())
    os.mkdir(layout().inbox("s1"))
    outcome = handoff(Notice("n1", "text", through=0, count=1))
    assert outcome.state == "delivery_failed" and not outcome.ok and layout().inbox("s1") in outcome.reason
