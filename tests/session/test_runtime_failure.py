"""A fault that nobody foresaw does not leave a server that answers but hears nothing (M9, M17)."""

import anyio
import pytest
from support.world import World, until

from interlink.hosts.claude_inbox import ClaudeInbox
from interlink.mailbox import states
from interlink.outlog import Change, Journal, Outgoing
from interlink.session.config import make_config
from interlink.session.outbox import Outbox
from interlink.session.runtime import Runtime
from interlink.session.session import Session
from interlink.settings import Settings
from interlink.state.paths import Layout
from interlink.trust.identity import Identity, load_key


@pytest.mark.req("M9", "M17")
def test_a_session_one_of_whose_tasks_failed_is_opened_anew(
    world: World, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    alice, bob = world.pair()
    settings = Settings()
    runtime = Runtime(make_config({"session": "s-bob"}, bob.env()), "", settings)
    opened: list[Session] = []

    async def fails() -> None:
        raise OSError("secret body")

    def adapter(session: Session) -> ClaudeInbox:
        opened.append(session)
        if len(opened) == 1:
            monkeypatch.setattr(session.pairing, "run", fails)
        return ClaudeInbox(session.layout, session.id)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(runtime.run, adapter)
            await until(lambda: len(opened) == 2, "the second opening")
            world.post(bob, alice.signer.message(bob.key, "one"))
            await until(bob.notices, "the notice")
            assert (await runtime.ready()) is opened[1]
            group.cancel_scope.cancel()

    anyio.run(main)
    said = capfd.readouterr().err
    assert "event=session_failed" in said and "OSError in fails" in said and "secret body" not in said


@pytest.mark.req("T3", "M17")
def test_a_pairing_folder_that_cannot_be_looked_at_stops_nothing_else(world: World) -> None:
    alice, bob = world.pair()

    async def main() -> None:
        async with bob.server(INTERLINK_RECONCILE_S="0.05", INTERLINK_OUTBOX_RETRY_S="0.1"):
            folder = bob.root / "pairing"
            if folder.exists():
                folder.rename(bob.root / "aside")
            folder.write_text("not a folder")
            await until(lambda: bob.events("pairing_fault"), "the fault in the log")
            world.post(bob, alice.signer.message(bob.key, "one"))
            await until(bob.notices, "the notice")
            folder.unlink()
            await until(lambda: bob.events("pairing_ok"), "its end")
        assert not bob.events("session_failed")

    anyio.run(main)


@pytest.mark.req("T5")
def test_what_waits_is_sent_though_the_clock_went_back(world: World, state_root: str) -> None:
    alice, bob = world.pair()
    settings, layout = Settings(), Layout(state_root)
    me: Identity = load_key(str(alice.key_file))
    waiting = Outgoing(
        msg_id="m1", peer="bob", to=bob.key, route=f"{bob.key}#s", text="x", ts=2_000_000, state=states.PENDING
    )
    Journal(layout, me.public, "s", settings).append(Change(op="queue", out=waiting))

    async def adopted(now_ms: int, older_than_s: float) -> int:
        journal = Journal(layout, me.public, "s", settings)
        found = Outbox(journal, me, "", None, settings, lambda: now_ms)  # type: ignore[arg-type]
        return await found.adopt(older_than_s)

    for now_ms, older_than_s, count in (
        (1_000_000, 0, 1),
        (1_000_000, 30, 1),
        (2_000_000, 30, 0),
        (2_030_000, 30, 1),
    ):
        assert anyio.run(adopted, now_ms, older_than_s) == count, (now_ms, older_than_s)
