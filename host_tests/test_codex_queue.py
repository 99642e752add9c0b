"""What `codex queue` of the real Codex does not do: threads busy, paused or unloaded, a daemon that is away.

In each of these its exit 0, or its silence, says nothing of a turn. States claim no more than is known, the
schedule goes on, and each message is acknowledged in the end.
"""

import os
import signal
import threading
from pathlib import Path

import pytest

from host_tests.codex_world import (
    NOTICE,
    a_world,
    acknowledged,
    agent,
    arrives,
    bound,
    failures,
    notice,
    records,
    states,
)
from host_tests.fake_messages_api import Answer, Say, Turn, Use
from host_tests.waiting import GUARD_S, until
from interlink.mailbox.states import MEANING


class Slow:
    """A model whose turn `SLOW` lasts until it is released; it may look up a message before it ends."""

    def __init__(self) -> None:
        self.began, self.released = threading.Event(), threading.Event()
        self.looks_up = ""

    def __call__(self, turn: Turn) -> Answer:
        if turn.prompt != "SLOW":
            return agent(turn)
        self.began.set()
        self.released.wait(GUARD_S)
        if self.looks_up and not turn.results:
            return Use("interlink.message_status", {"msg_id": self.looks_up})
        return Say("done")


@pytest.mark.req("H10", "M8", "S1")
def test_a_busy_thread_takes_the_notice_after_its_turn(program: Path) -> None:
    with a_world(program) as world:
        world.codex.trust()
        world.api.model = slow = Slow()
        with world.codex.daemon() as client:
            thread = bound(world, client)
            turn = client.begin(thread, "SLOW")
            slow.began.wait(GUARD_S)
            arrives(world, thread, "first", "host_queued")
            reserved = notice(thread)
            arrives(world, thread, "second", "receiver_stored")  # no second notice while one is out
            assert notice(thread) == reserved and not world.notices() and not failures(thread)
            slow.looks_up = records(thread)[0].message.msg_id
            slow.released.set()
            until(lambda: acknowledged(thread) == ["first", "second"], "both acknowledged")
            assert MEANING["host_queued"] in world.model_results("SLOW")[0]  # what the state does not prove, too
            until(lambda: notice(thread) is None, "the end of the reservation")
            assert client.ended(thread)[1] == turn
    assert len(world.notices()) == 1


@pytest.mark.req("H10", "M7", "S1")
def test_a_queue_that_an_interrupt_paused_runs_after_the_users_next_turn(program: Path) -> None:
    with a_world(program, INTERLINK_NOTICE_SCHEDULE_S="1,2,300") as world:
        world.codex.trust()
        world.api.model = slow = Slow()
        with world.codex.daemon() as client:
            thread = bound(world, client)
            turn = client.begin(thread, "SLOW")
            slow.began.wait(GUARD_S)
            client.interrupt(thread, turn)
            slow.released.set()
            arrives(world, thread, "anybody?", "host_queued")
            until(lambda: getattr(notice(thread), "attempt", 0) == 2, "the third notice")
            until(lambda: states(thread) == {"anybody?": "host_queued"}, "its handoff")
            assert not world.notices() and not failures(thread)  # three in the queue, none has run
            client.say(thread, "hello again")
            until(lambda: acknowledged(thread) == ["anybody?"], "the acknowledgement")
            until(lambda: len(world.notices()) == 3, "the turns of the notices that came in the meantime")
            until(lambda: len(client.ended(thread)) == 6, "the ends of their turns")
            assert notice(thread) is None
        # The body went to the model once: later notices of the queue find nothing.
        fetched = [turn.results[0].text for turn in world.api.turns() if NOTICE in turn.prompt and turn.results]
    assert sum("anybody?" in text for text in fetched) == 2  # in both steps after the first fetch


@pytest.mark.req("X3", "X4", "M25")
def test_a_daemon_that_hangs_is_a_failure_and_its_return_a_recovery(program: Path) -> None:
    settings = {"INTERLINK_CODEX_TIMEOUT_S": "1", "INTERLINK_NOTICE_SCHEDULE_S": "1"}
    with a_world(program, **settings) as world:
        world.codex.trust()
        with world.codex.daemon() as client:
            thread = bound(world, client)
            daemon = world.codex.daemon_pid()
            os.kill(daemon, signal.SIGSTOP)
            try:
                arrives(world, thread, "are you there?", "delivery_failed")
                (failure,) = failures(thread)
                assert "did not end within 1 s; whether the notice is queued is unknown" in failure.reason
                until(
                    lambda: [one.id for one in failures(thread)] != [failure.id], "the next failure in its place"
                )
                assert len(failures(thread)) == 1
            finally:
                os.kill(daemon, signal.SIGCONT)
            until(lambda: acknowledged(thread) == ["are you there?"], "the acknowledgement")
            until(lambda: not failures(thread), "the end of the saved failure")


@pytest.mark.req("H10", "M1", "M13")
def test_mail_for_a_thread_of_a_stopped_daemon_comes_when_it_is_back(program: Path) -> None:
    with a_world(program) as world:
        world.codex.trust()
        try:
            with world.codex.daemon() as client:
                thread = bound(world, client)
                arrives(world, thread, "before", "receiver_acknowledged")
            world.until_no_server()
            world.alice.call("send_message", to="bob", session=thread, text="meanwhile")
            assert states(thread) == {"before": "receiver_acknowledged"}  # kept by the relay
            with world.codex.daemon() as client:
                client.resume(thread)
                assert states(thread) == {"before": "receiver_acknowledged"}  # loaded, and unbound until a turn
                client.say(thread, "hello again")
                until(lambda: acknowledged(thread) == ["before", "meanwhile"], "both acknowledged")
        finally:
            world.codex.stop_daemon()


@pytest.mark.req("H10", "X1")
def test_an_unloaded_thread_hears_nothing_until_it_is_loaded_and_has_a_turn(program: Path) -> None:
    """Codex unloads a thread a minute after its last client left; its setting makes that a second here."""
    with a_world(program) as world:
        world.codex.trust()
        path = world.codex.home / "config.toml"
        path.write_text("thread_unload_delay_secs = 1\n" + path.read_text("utf-8"), "utf-8")
        with world.codex.daemon():
            with world.codex.client() as client:
                thread = bound(world, client)
                until(lambda: f"{thread} (live)" in world.alice.call("list_peers"), "its session on the relay")
            world.until_no_server()
            assert f"{thread} (live)" not in world.alice.call("list_peers")
            world.alice.call("send_message", to="bob", session=thread, text="asleep?")
            assert not states(thread)
            queued = world.codex.run("queue", "--thread", thread, "--message=by hand")
            assert queued.returncode == 0  # as a notice would be: it says nothing of a turn
            assert not [turn for turn in world.api.turns() if turn.prompt == "by hand"]
            with world.codex.client() as client:
                client.resume(thread)
                until(lambda: [turn for turn in world.api.turns() if turn.prompt == "by hand"], "the queued turn")
                # The queued turn began at once, perhaps before the server was up.
                client.say(thread, "hello again")
                until(lambda: acknowledged(thread) == ["asleep?"], "the acknowledgement")
