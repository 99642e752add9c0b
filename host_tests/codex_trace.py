"""What the real Codex asks of interlink in one standard scenario, in a form that can be compared.

    codex_trace(program, folder) -> [{"kind": "bind", "event": "SessionStart", ...}, ...]

The scenario: a thread starts, its first turn binds it, a message queues a notice, whose turn fetches and
acknowledges; a second message arrives while a turn of the user runs, and its notice runs afterwards.

Kinds, in the order in which they happened:

- `bind`: a hook's call; `event`, the keys of its arguments and of its `_meta`, and whether both name one thread
- `tool`: a call of the model; its name, the keys as above
- `queued`: a run of the queue program; its arguments without the values
- `turn`: the first step of the model in a turn; `trigger` is what Codex says began it (a client's: nothing)
"""

import threading
from pathlib import Path
from typing import Any

from host_tests.codex_world import BIND, a_world, acknowledged, agent, bound, mailbox
from host_tests.fake_messages_api import Answer, Say, Turn
from host_tests.recorder import note, noted
from host_tests.waiting import GUARD_S, until

Entry = dict[str, Any]
HOOK_META = ["progressToken", "threadId"]
MODEL_META = ["callId", "itemId", *HOOK_META, "sessionId", "windowId", "x-codex-turn-metadata"]


def _bind(event: str) -> Entry:
    return {"kind": "bind", "event": event, "arguments": ["thread_id"], "meta": HOOK_META, "own": True}


def _call(name: str, *arguments: str) -> list[Entry]:
    tool: dict[str, Any] = {"kind": "tool", "name": name, "arguments": list(arguments), "meta": sorted(MODEL_META)}
    return [_bind("PreToolUse"), tool]


def _turn(trigger: str, *within: Entry) -> list[Entry]:
    return [_bind("UserPromptSubmit"), {"kind": "turn", "trigger": trigger}, *within, _bind("Stop")]


def expected(version: str) -> list[Entry]:
    """The trace that this version of Codex was seen to give."""
    more = ["--resume"] if version != "0.160.0" else []
    queued: Entry = {"kind": "queued", "argv": ["queue", "--thread", "--message", *more]}
    read = [*_call("receive_messages", "notification_id"), *_call("acknowledge_messages", "messages")]
    woken = _turn("queue", *read)
    return [_bind("SessionStart"), *_turn(""), queued, *woken, *_turn("", queued), *woken]


def codex_trace(program: Path, folder: Path) -> list[Entry]:
    """Run the scenario; the log it leaves as `folder`/trace.jsonl is what was seen, unabridged."""
    began, released = threading.Event(), threading.Event()

    def model(turn: Turn) -> Answer:
        if not turn.results:
            note(str(log), turn=world.api.triggers[-1])
        if turn.prompt != "work":
            return agent(turn)
        began.set()
        released.wait(GUARD_S)
        return Say("done")

    with a_world(program) as world:
        log = world.record()
        world.api.model = model
        world.codex.trust()
        with world.codex.daemon() as client:
            thread = bound(world, client)
            world.alice.send(thread, "one")
            until(lambda: acknowledged(thread) == ["one"], "the first acknowledgement")
            until(lambda: len(client.ended(thread)) == 2, "the end of its turn")
            client.begin(thread, "work")
            began.wait(GUARD_S)
            world.alice.send(thread, "two")
            until(
                lambda: [r.state for r in mailbox(thread).read().records.values()][-1] == "host_queued", "a notice"
            )
            released.set()
            until(lambda: acknowledged(thread) == ["one", "two"], "the second acknowledgement")
            until(lambda: len(client.ended(thread)) == 4, "the end of its turn")
            runs = [event["params"]["run"]["eventName"] for event in client.of("hook/completed")]
        seen = noted(log)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "trace.jsonl").write_bytes(log.read_bytes())
    return normal(seen, [name[0].upper() + name[1:] for name in runs], thread)


def normal(seen: list[dict[str, Any]], events: list[str], thread: str) -> list[Entry]:
    """The trace without what differs from run to run; `events` are those of the hooks, in order."""
    names = iter(events)
    found: list[Entry] = []
    for row in seen:
        if "turn" in row:
            found.append({"kind": "turn", "trigger": row["turn"]})
        elif "argv" in row:
            words = [word.partition("=")[0] for word in row["argv"] if word != thread]
            found.append({"kind": "queued", "argv": words})
        else:
            keys = {"arguments": sorted(row["arguments"] or {}), "meta": sorted(row["meta"])}
            if row["name"] == BIND:
                same = row["arguments"]["thread_id"] == row["meta"]["threadId"] == thread
                found.append({"kind": "bind", "event": next(names), **keys, "own": same})
            else:
                found.append({"kind": "tool", "name": row["name"], **keys})
    return found
