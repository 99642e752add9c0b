"""Strangers who knock cost a bounded amount of work (G4)."""

import json

import anyio
import pytest
from support.world import World, until

from interlink.session.pairing import Pairing
from interlink.settings import Settings
from interlink.state.paths import Layout
from interlink.trust import wire
from interlink.trust.identity import load_key
from interlink.trust.pairing import PairingStore, State
from interlink.trust.peers import PeersFile
from interlink_lab.wire import Signer


class Counting(PairingStore):
    """Counts how often the file is read."""

    reads = 0

    def read(self) -> State:
        self.reads += 1
        return super().read()


@pytest.mark.req("G4")
def test_a_second_knock_within_the_interval_waits_without_a_busy_loop_and_is_told_then(
    world: World, state_root: str
) -> None:
    bob = world.host("bob")
    bob.trust()
    me = load_key(str(bob.key_file))
    settings = Settings()
    settings.reconcile_s, settings.outbox_retry_s = 0.01, 0.05
    store = Counting(Layout(state_root), me.public, "s")
    told: list[str] = []
    clock = [10_000_000]

    async def tell(text: str, kind: str) -> bool:
        told.append(text)
        return True

    pairing = Pairing(
        store,
        me,
        f"{me.public}#s",
        "bob",
        PeersFile(str(bob.peers_file), me.public, settings),
        None,  # type: ignore[arg-type]  # nothing is sent
        settings,
        lambda: clock[0],
        tell,
    )

    async def knock() -> None:
        stranger = Signer.fresh()
        made = stranger.message(bob.key, "x", kind="pair_request", reply_to=f"{stranger.public}#s")
        assert await pairing.handle(wire.decode_message(json.dumps(made)))

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(pairing.run)
            await knock()
            await knock()
            assert len(told) == 1
            before = store.reads
            await anyio.sleep(1)
            # A pass every outbox_retry_s, two or three reads each.
            assert store.reads - before < 3 * 20 + 20
            clock[0] += int(settings.knock_interval_s * 1000)
            await until(lambda: len(told) == 2, "the second knock told")
            group.cancel_scope.cancel()

    anyio.run(main)
