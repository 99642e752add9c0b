"""The native channel of a real MCP client: declared on demand, pushed byte for byte, never in the way (N1, N3)."""

import json
from typing import Any

import anyio
import pytest
from support.mcp_client import INITIALIZE, RawClient
from support.programs import program
from support.world import Host, World, until

from interlink.session.config import make_config

CHANNEL = {"INTERLINK_CHANNELS": "1", "INTERLINK_RECONCILE_S": "0.1"}


def raw(host: Host, *, read_stdout: bool = True, **more: str) -> RawClient:
    """A server of this host under a client that sees every byte."""
    argv = [*program("interlink-mcp"), "--session", f"s-{host.name}"]
    return RawClient(argv, host.env(**more), read_stdout=read_stdout)


def push(client: RawClient) -> tuple[bytes, dict[str, Any]]:
    """The next notification, as bytes and as JSON."""
    while True:
        line = client.line()
        found = json.loads(line)
        if found.get("method") == "notifications/claude/channel":
            return line, found


async def threaded(call: Any, *args: Any) -> Any:
    return await anyio.to_thread.run_sync(call, *args)


def answer_text(client: RawClient, ident: str, tool: str, **arguments: object) -> str:
    client.call(ident, tool, arguments)
    return str(client.answer(ident)["result"]["content"][0]["text"])


@pytest.mark.req("N1", "N3", "H20")
def test_a_notice_is_pushed_whole_and_again_until_it_is_acknowledged(world: World) -> None:
    alice, bob = world.pair()

    async def main() -> None:
        with raw(bob, **CHANNEL, INTERLINK_NOTICE_SCHEDULE_S="0.4,0.8") as client:
            world.post(bob, alice.signer.message(bob.key, "before the handshake"))
            declared = await threaded(client.handshake)
            assert declared["result"]["capabilities"]["experimental"] == {"claude/channel": {}}
            line, first = await threaded(push, client)
            ident = first["params"]["meta"]["notification_id"]
            assert first == {
                "jsonrpc": "2.0",
                "method": "notifications/claude/channel",
                "params": {
                    "content": first["params"]["content"],
                    "meta": {
                        "sender": "Interlink",
                        "msg_id": ident,
                        "notification_id": ident,
                        "ack_required": "true",
                        "ack_tool": "acknowledge_messages",
                    },
                },
            }
            content = first["params"]["content"]
            assert content.startswith('[Interlink inbox notice] 1 unread message from "alice" (1).')
            assert f'receive_messages(notification_id="{ident}")' in content
            assert "before the handshake" not in content and line.endswith(b"\n") and line.count(b"\n") == 1

            # a push is no more than that: the schedule goes on, each time under a new id
            ids = [ident, *[(await threaded(push, client))[1]["params"]["meta"]["notification_id"] for _ in "12"]]
            assert len(set(ids)) == 3
            (record,) = bob.records()
            status = await threaded(
                lambda: answer_text(client, "1", "message_status", msg_id=record["message"]["msg_id"])
            )
            assert "notification_sent" in status
            text = await threaded(lambda: answer_text(client, "2", "receive_messages", notification_id=ids[0]))
            receipt = json.loads(text.split("] Receipt: ", 1)[1].split("\n", 1)[0])
            await threaded(lambda: answer_text(client, "3", "acknowledge_messages", messages=[receipt]))
            assert not (bob.root / "inbox" / "s-bob.jsonl").exists()  # this host's notices do not go there

            world.post(bob, world.host("mallory").knock(bob))
            while "pairing" not in (found := (await threaded(push, client))[1]["params"])["content"]:
                pass  # one more notice may have been on its way
            assert found["content"].startswith("[Interlink pairing notice]") and "mallory" not in found["content"]
            assert found["meta"]["ack_required"] == "false" and found["meta"]["ack_tool"] == ""
            assert all(isinstance(value, str) for value in found["meta"].values())

            listener = bob.listener(INTERLINK_CHANNELS="true")
            out, err = await threaded(listener.communicate)
            assert (listener.returncode, out, err) == (0, b"", b"")
            client.close_stdin()
            assert await threaded(client.wait) == 0

    anyio.run(main)


@pytest.mark.req("N1")
def test_only_the_two_words_switch_it_on_and_never_for_codex() -> None:
    def on(value: str, host: str = "") -> bool:
        return make_config({"host": host}, {"INTERLINK_CHANNELS": value, "HOME": "/nowhere"}).channels

    assert [value for value in ("1", "true", "TRUE", "", "0", "yes", "2", "false") if on(value)] == [
        "1",
        "true",
        "TRUE",
    ]
    assert not on("1", "codex")


@pytest.mark.req("N1", "H16")
def test_without_the_variable_the_channel_is_not_declared_and_nothing_is_pushed(world: World) -> None:
    alice, bob = world.pair()

    async def main() -> None:
        with raw(bob, INTERLINK_RECONCILE_S="0.1") as client:
            declared = await threaded(client.handshake)
            assert "claude/channel" not in json.dumps(declared)
            world.post(bob, alice.signer.message(bob.key, "hello"))
            await until(bob.notices, "the notice in the inbox")
            client.request("last", "ping")
            assert "method" not in await threaded(client.message)  # nothing came before the answer

    anyio.run(main)


@pytest.mark.req("N3", "M22", "T3")
@pytest.mark.parametrize("given_up", [True, False])
def test_a_host_that_stops_reading_blocks_neither_polling_nor_a_later_notice(world: World, given_up: bool) -> None:
    alice, bob = world.pair()
    env = {
        **CHANNEL,
        "INTERLINK_CHANNEL_PUSH_S": "0.3" if given_up else "300",
        "INTERLINK_NOTICE_SCHEDULE_S": "0.5,0.5,0.5",
    }
    env |= {"INTERLINK_MESSAGE_MAX_BYTES": "8192", "INTERLINK_OUTBOX_RETRY_S": "0.3"}

    async def main() -> None:
        with raw(bob, read_stdout=False, **env) as client:
            client.send(_initialize())
            client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
            for number in range(40):  # answers that nobody reads: the pipe is full
                client.request(number, "tools/list")
            world.post(bob, alice.signer.message(bob.key, "one"))
            await until(lambda: _failures(client) >= 2 if given_up else bob.records(), "pushes that hang")
            # none of these is held up, although each of them has something to say to the host
            world.post(bob, alice.signer.message(bob.key, "z" * 10_000))
            world.post(bob, world.host("mallory").knock(bob))
            world.post(bob, alice.signer.message(bob.key, "two"))
            await until(lambda: world.queued() == 0, "everything to be stored")
            assert {"one", "two"} <= {r["message"]["text"] for r in bob.records()}
            states = {r["state"] for r in bob.records()}
            assert states <= {"receiver_stored", "delivery_failed", "undeliverable"}

            client.read_stdout()  # it reads again
            contents: list[str] = []
            for wanted in ("2 unread messages", "[Interlink pairing notice]"):
                while not any(wanted in content for content in contents):
                    contents.append((await threaded(push, client))[1]["params"]["content"])
            text = await threaded(lambda: answer_text(client, "r", "receive_messages"))
            assert "one" in text and "two" in text

    anyio.run(main)


def _initialize() -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": INITIALIZE}


def _failures(client: RawClient) -> int:
    return client.log().count("state=delivery_failed")
