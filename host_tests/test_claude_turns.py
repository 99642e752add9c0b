"""Turns of a real Claude Code around our listener: renewal, a busy turn, what is missing or broken, a stranger."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import keys
from support.cli import key_path, now_ms, peers_path
from support.keys import BOB, CAROL

from host_tests.claude_host import ClaudeHost
from host_tests.claude_scene import NOTICE, Step, World, listening, served
from host_tests.fake_messages_api import Answer, Say, Turn
from host_tests.waiting import GUARD_S, until
from interlink.listener.render import RENEWAL
from interlink.trust import wire

HOOKS = ("data", "interlink", "claude", "plugin", "hooks", "hooks.json")


@pytest.mark.req("C4", "H5")
@pytest.mark.parametrize("by", ["setting", "option"])
def test_a_listener_that_is_renewed_after_three_seconds_listens_on(claude: Path, world: World, by: str) -> None:
    if by == "option":
        hooks = world.folder.joinpath(*HOOKS)
        text = hooks.read_text("utf-8")
        assert " wait" in text
        hooks.write_text(text.replace(" wait", " wait --renew-after-secs 3"), "utf-8")
    with world.host(claude, **({"INTERLINK_RENEW_AFTER_S": "3"} if by == "setting" else {})) as host:
        session = served(host)
        first = listening(session)
        for number in (0, 1):  # each one starts the next
            assert host.result(number)["origin"]["kind"] == "task-notification"
        listening(session, other_than=first)
        assert sum(RENEWAL.strip() in prompt for prompt in world.prompts()) >= 2
        assert not any(NOTICE.search(prompt) for prompt in world.prompts())
        world.alice.send(session, "after the renewal")
        until(lambda: world.acknowledged(session) == ["after the renewal"], "the acknowledgement")


@pytest.mark.req("M7", "M8", "C11")
def test_ten_messages_in_a_busy_turn_cost_at_most_two_wakes(claude: Path, world: World) -> None:
    texts = [f"number {n} of ten" for n in range(10)]
    asked, go_on = threading.Event(), threading.Event()

    def busy(turn: Turn) -> Answer:
        if turn.prompt != "work":
            return world.agent(turn)
        asked.set()
        assert go_on.wait(GUARD_S)
        return Say("worked")

    world.api.model = busy
    with world.host(claude) as host:
        session = served(host)
        listening(session)
        host.say("work")
        assert asked.wait(GUARD_S)
        for text in texts:
            world.alice.send(session, text)
        until(lambda: len(world.stored(session)) == 10, "ten messages in the mailbox")
        go_on.set()
        until(lambda: len(world.acknowledged(session)) == 10, "ten acknowledgements")
        assert "origin" not in host.result(0)
        until(lambda: len(host.results()) >= 2, "the end of a turn that began with a notice")
        world.alice.send(session, "one more")
        until(lambda: len(world.acknowledged(session)) == 11, "the next message")
    notices = [step for step in world.agent.of("notice") if NOTICE.search(step.text)]
    assert 2 <= len(notices) <= 3  # at most two for the ten, and one for what came after them
    assert world.agent.shown_again([*texts, "one more"]) == []


def no_key(_world: World) -> str:
    Path(key_path()).unlink()
    return "interlink-keygen"


def broken_peers(_world: World) -> str:
    Path(peers_path()).write_text("{ not JSON", "utf-8")
    return "peers.json"


def no_relay(world: World) -> str:
    world.relay.kill()
    return "relay"


def nothing(world: World) -> str:
    no_relay(world)
    Path(peers_path()).unlink()
    return no_key(world)


@pytest.mark.req("H7", "G7", "M17")
@pytest.mark.parametrize("breaks", [no_key, broken_peers, no_relay, nothing])
def test_the_server_starts_without_what_it_needs_and_its_tools_say_so(
    claude: Path, world: World, breaks: Callable[[World], str]
) -> None:
    said = breaks(world)
    with world.host(claude) as host:
        listed = tool(world, host, "list_peers")
        sent = tool(world, host, 'send_message {"to": "alice", "session": "a-session", "text": "hello"}')
        started: list[dict[str, Any]] = [line for line in host.lines if line.get("subtype") == "init"]
        status = {server["name"]: server["status"] for server in started[-1]["mcp_servers"]}
        assert status == {"plugin:interlink:interlink": "connected"}
    assert said in listed.text or said in sent.text, (listed, sent)
    if breaks is no_relay:
        assert "pending" in sent.text and not sent.failed  # kept on disk
    else:
        assert sent.failed, sent


def tool(world: World, host: ClaudeHost, call: str) -> Step:
    """What this call of the model gave. Until the server is up the host itself says that there is no such tool."""

    def called() -> Step | None:
        ends = len(host.results())
        host.say(f"TOOL {call}")
        host.result(ends)
        step = world.agent.of("tool")[-1]
        return None if "No such tool available" in step.text else step

    found: Step = until(called, "the plugin's tools")
    return found


@pytest.mark.req("G1", "G3", "G4")
def test_a_strangers_message_reaches_no_prompt(claude: Path, world: World) -> None:
    with world.host(claude) as host:
        session = served(host)
        listening(session)
        to = wire.make_route(BOB.public, session)
        for number in range(3):
            note = keys.message(CAROL, BOB, "from a stranger", ts=now_ms(), msg_id=f"stranger-{number}")
            assert world.relay.client.send(to, json.loads(wire.encode_message(note))).status == 202
        world.wakes(host, session, "from a friend")
        assert world.relay.client.recv(to).json["status"] != "messages"
        assert "No unread messages" in tool(world, host, "receive_messages").text
    assert world.stored(session) == ["from a friend"]
    assert not any("stranger" in str(request["messages"]) for request in world.api.requests)
