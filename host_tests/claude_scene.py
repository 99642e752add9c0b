"""The scene of the Claude Code tests: a relay, a friend who writes, a scripted model, the plugin as set up.

    def test_it(claude: Path, world: World) -> None:
        with world.host(claude) as host:
            session = served(host)
            world.alice.send(session, "m1")
            until(lambda: world.acknowledged(session) == ["m1"], "...")

What a tool gave is in `world.agent.steps`, what the host itself put before the model in `world.prompts()`, what is
consumed in the mailbox file. The scripted model's own words prove nothing.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from support.cli import layout, me
from support.keys import ALICE, BOB
from support.relay import RelayProcess

from host_tests.claude_host import TOOL, ClaudeHost, set_up
from host_tests.fake_messages_api import Answer, FakeMessages, Say, Turn, Use
from host_tests.friend import Alice
from host_tests.waiting import until
from interlink.hosts import registry
from interlink.hosts.notice_text import HEADING
from interlink.mailbox.store import Mailbox
from interlink.settings import Settings
from interlink.state.locks import holder_pids
from interlink.state.process import Process

NOTICE = re.compile(
    re.escape(HEADING) + r" \d+ unread message"
)  # the heading alone is in the skill's description too
READ = "read your mail"  # the user's words for: fetch and acknowledge


class Step(NamedTuple):
    """What reached the model: `notice` (or the user's words), `fetch` or `ack` with what the tool gave."""

    kind: str
    text: str
    failed: bool = False


class Agent:
    """A model that does what the plugin's skill says: fetch, act, acknowledge; and `TOOL name {json}` on request.

    `at(kind)` is called as each step is reached, before the model answers.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.at: Callable[[str], None] = lambda _kind: None

    def __call__(self, turn: Turn) -> Answer:
        if turn.prompt.startswith("TOOL "):
            name, _, arguments = turn.prompt.removeprefix("TOOL ").partition(" ")
            return self._take("tool", turn) or Use(TOOL + name, json.loads(arguments or "{}"))
        if not NOTICE.search(turn.prompt) and turn.prompt != READ:
            return Say("OK")
        if not turn.results:
            self._reached(Step("notice", turn.prompt))
            ident = re.search(r'receive_messages\(notification_id="([^"]+)"\)', turn.prompt)
            return Use(TOOL + "receive_messages", {"notification_id": ident[1]} if ident else {})
        done = self._take("fetch" if len(turn.results) == 1 else "ack", turn)
        receipts = receipts_in(turn.results[0].text)
        if len(turn.results) == 1 and receipts and not turn.results[0].failed:
            return Use(TOOL + "acknowledge_messages", {"messages": receipts})
        return done or Say("done")

    def of(self, *kinds: str) -> list[Step]:
        """The steps of these kinds so far."""
        return [step for step in self.steps if step.kind in kinds]

    def shown_again(self, texts: list[str]) -> list[str]:
        """Those of these messages that a fetch showed although they had been acknowledged."""
        shown: list[str] = []
        done: set[str] = set()
        again = []
        for step in self.steps:
            if step.kind == "fetch":
                shown = [text for text in texts if text in step.text]
                again += [text for text in shown if text in done]
            elif step.kind == "ack" and not step.failed:
                done |= set(shown)
        return again

    def _take(self, kind: str, turn: Turn) -> Answer | None:
        if not turn.results:
            return None
        self._reached(Step(kind, turn.results[-1].text, turn.results[-1].failed))
        return Say("failed" if turn.results[-1].failed else "done")

    def _reached(self, step: Step) -> None:
        self.steps.append(step)
        self.at(step.kind)


def receipts_in(text: str) -> list[dict[str, Any]]:
    """The receipts in an answer of `receive_messages`."""
    return [json.loads(line.split("] Receipt: ", 1)[1]) for line in text.splitlines() if "] Receipt: " in line]


class World(NamedTuple):
    """Claude's environment, its model, the relay, a friend who writes, and Claude's folder."""

    env: dict[str, str]
    api: FakeMessages
    agent: Agent
    relay: RelayProcess
    alice: Alice
    folder: Path

    def host(self, program: Path, *args: str, **env: str) -> ClaudeHost:
        """A Claude Code of this scene."""
        return ClaudeHost(program, self.folder, {**self.env, **env}, self.api.url, *args)

    def send(self, session: str, text: str) -> str:
        """Write to a session, whether or not it is announced and a relay is there; the tool's answer."""
        return self.alice.call("send_message", to="bob", session=session, text=text)

    def prompts(self) -> list[str]:
        """What the host itself put into the conversation, for each model step."""
        return [prompt_of(request) for request in self.api.requests]

    def acknowledged(self, session: str) -> list[str]:
        """Texts of the consumed messages of a session."""
        return [
            record.message.text for record in self._records(session) if record.state == "receiver_acknowledged"
        ]

    def stored(self, session: str) -> list[str]:
        """Texts of all messages of a session."""
        return [record.message.text for record in self._records(session)]

    def _records(self, session: str) -> list[Any]:
        return list(Mailbox(layout(), BOB.public, session, Settings()).read().records.values())

    def wakes(self, host: ClaudeHost, session: str, text: str) -> None:
        """A message wakes the idle host without any input, is fetched and acknowledged."""
        ends = len(host.results())
        self.alice.send(session, text)
        result = host.result(ends)
        assert result["origin"]["kind"] == "task-notification", result
        prompts = self.prompts()
        assert any(NOTICE.search(prompt) for prompt in prompts) and not any(text in prompt for prompt in prompts)
        fetched, done = self.agent.steps[-2:]
        assert (fetched.kind, done.kind) == ("fetch", "ack") and not fetched.failed | done.failed
        assert text in fetched.text
        assert '"newly":1,' in done.text  # this host shows the structured form of an answer that has one
        until(lambda: text in self.acknowledged(session), "the acknowledgement on disk")


@contextmanager
def scene(folder: Path) -> Iterator[World]:
    """Everything but the host, below `folder`; in the state root and configuration of this process."""
    folder.mkdir(parents=True, exist_ok=True)
    me(BOB, alice=ALICE)
    agent = Agent()
    with RelayProcess("--db", str(folder / "relay.db")) as relay, FakeMessages(agent) as api:
        alice = Alice(folder / "alice", relay.url)
        env = set_up(folder / "claude", "--url", relay.url)
        with alice.client:
            yield World(env, api, agent, relay, alice, folder / "claude")


def prompt_of(request: dict[str, Any]) -> str:
    """What the host itself put into the conversation of one request: no results of tools."""
    texts = []
    for message in request["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        texts += [block["text"] for block in blocks if message["role"] == "user" and block["type"] == "text"]
    return "\n".join(texts)


class Program(Protocol):
    """A host, however it was started."""

    @property
    def pid(self) -> int: ...

    def ended(self) -> str | None:
        """None while it lives; else the end of its log."""


def servers(host: Program) -> list[int]:
    """The live servers of this host."""
    return [server.process.pid for server in registry.servers_of(layout(), Process.of(host.pid))]


def served(host: Program) -> str:
    """The session that the host's server serves, once it does."""

    def there() -> str | None:
        ended = host.ended()
        assert ended is None, f"claude ended: {ended}"
        return registry.session_of(layout(), Process.of(host.pid))

    return str(until(there, "the plugin's server"))


def listeners(session: str) -> list[int]:
    """Who holds the session's listener lock now."""
    path = layout().inbox(session, "lock")
    return list(holder_pids(path) or []) if os.path.exists(path) else []


def listening(session: str, *, other_than: list[int] = []) -> list[int]:  # noqa: B006 - read only
    """The listener of a session, once there is one that is not among these."""
    return list(
        until(lambda: [pid for pid in listeners(session) if pid not in other_than], f"a listener of {session}")
    )
