"""Which session a real Codex thread becomes: one each, its own mail and home; and threads that cannot be woken."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_tests.codex_world import (
    NOTICE,
    World,
    a_world,
    acknowledged,
    agent,
    arrives,
    bound,
    failures,
    notice,
    states,
)
from host_tests.fake_messages_api import Answer, Say, Turn, Use
from host_tests.recorder import noted
from host_tests.waiting import until


@pytest.fixture
def world(program: Path) -> Iterator[World]:
    with a_world(program) as world:
        yield world


@pytest.mark.req("X1", "M2", "H14")
def test_two_threads_are_two_sessions_and_each_gets_its_own_mail(world: World) -> None:
    world.codex.trust()
    log = world.record()
    with world.codex.daemon() as client:
        one, two = bound(world, client), bound(world, client)
        arrives(world, two, "for the second", "receiver_acknowledged")
        arrives(world, one, "for the first", "receiver_acknowledged")
    assert states(one) == {"for the first": "receiver_acknowledged"}
    assert states(two) == {"for the second": "receiver_acknowledged"}
    woken = [ident for ident, body in world.api.requests if NOTICE in json.dumps(body["input"][-1])]
    assert woken == [two, one]
    # The queue program got the thread in full, the text as one argument, this home (a_world looks for another).
    runs = [row["argv"] for row in noted(log) if "argv" in row]
    assert [run[:3] for run in runs] == [["queue", "--thread", two], ["queue", "--thread", one]]
    for run in runs:
        assert run[3].startswith(f"--message={NOTICE}") and run[4:] in ([], ["--resume"])


LOOKS = ('failed_deliveries {"action": "list"}', "receive_messages")


@pytest.mark.req("X3", "X4", "H10")
def test_an_ephemeral_thread_is_bound_but_not_woken_and_says_so(world: World) -> None:
    world.codex.trust()
    with world.codex.daemon() as client:
        thread = bound(world, client, ephemeral=True)
        arrives(world, thread, "for nobody?", "delivery_failed")
        (failure,) = failures(thread)
        assert "ephemeral thread does not support" in failure.reason and failure.notice
        assert "for nobody" not in failure.text
        turn = client.begin(thread, f"TOOL {LOOKS[0]}")
        assert "failed_deliveries" in client.allow(0)["message"]  # not approved by what we ship
        until(lambda: turn in client.ended(thread), "the end of the turn")
        client.say(thread, f"TOOL {LOOKS[1]}")
        listed, page = (world.model_results(f"TOOL {tool}")[-1] for tool in LOOKS)
        assert failure.id in listed and "ephemeral" in listed
        assert "for nobody?" in page and "[delivery_failed] Receipt: " in page
        # A turn of the user that does what the notice would have asked for.
        client.say(thread, NOTICE)
        assert acknowledged(thread) == ["for nobody?"]
        until(lambda: notice(thread) is None, "the end of the reservation")
    assert not world.notices()[1:]


@pytest.mark.req("X3", "H14")
def test_without_codex_home_the_failure_names_the_missing_setting(world: World) -> None:
    """As in a configuration of before: the server's `codex queue` looks into another home."""
    world.codex.trust()
    world.edit('env_vars = ["CODEX_HOME", ', "env_vars = [")
    with world.codex.daemon() as client:
        thread = bound(world, client)
        arrives(world, thread, "where are you?", "delivery_failed")
        (failure,) = failures(thread)
        assert "no rollout found" in failure.reason and 'env_vars = ["CODEX_HOME"]' in failure.reason
    strange = world.folder / "home" / ".codex"
    assert strange.exists()  # what the product can only tell of
    strange.rename(world.folder / "strange")


@pytest.mark.req("X1", "H10")
def test_an_exec_run_is_bound_while_it_lasts_and_its_mail_waits_for_the_next(program: Path) -> None:
    """A notice for a running `codex exec` is queued and may be lost there: its messages are in the next run."""
    with a_world(program) as world:
        world.codex.trust()
        first = world.codex.run("exec", "--skip-git-repo-check", "TOOL get_my_session_id")
        assert first.returncode == 0, first
        (thread,) = {ident for ident, _body in world.api.requests}
        assert thread in world.model_results("TOOL get_my_session_id")[-1]
        world.until_no_server()
        world.alice.call("send_message", to="bob", session=thread, text="after the end")
        assert not states(thread)  # on the relay: nobody polls for a session that is over
        resume = ("exec", "--skip-git-repo-check", "resume", thread)

        def wait_for_mail(turn: Turn) -> Answer:
            """Fetch until the notice is out: the server polls from the moment on at which the hook bound it."""
            if turn.prompt != "WAIT" or (turn.results and "[host_queued] Receipt: " in turn.results[-1].text):
                return Say("done")
            time.sleep(0.1)
            return Use("interlink.receive_messages", {})

        world.api.model = wait_for_mail
        again = world.codex.run(*resume, "WAIT")
        assert again.returncode == 0, again
        assert "after the end" in world.model_results("WAIT")[-1]
        assert states(thread) == {"after the end": "host_queued"}  # no more than that is known
        world.api.model = agent
        last = world.codex.run(*resume, NOTICE)
        assert last.returncode == 0, last
        assert acknowledged(thread) == ["after the end"]
