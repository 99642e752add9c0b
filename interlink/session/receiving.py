"""From the relay to the mailbox: decode, judge, store, then let the relay forget (G6, M1, M17).

One batch is one durable write. What could not be stored or judged stays on the relay; one bad message never
blocks the queue behind it.
"""

from collections import Counter
from collections.abc import Awaitable, Callable

from anyio import Lock, to_thread

from interlink import log
from interlink.errors import SetupError, StateError, WireError
from interlink.mailbox import staging
from interlink.relay.client import Arrival
from interlink.session.admission import Admission, Admitted, Incoming
from interlink.trust import gate, wire
from interlink.trust.peers import PeersFile

UNDECODABLE = "undecodable"


# Handles one pairing message durably; True when the relay may forget it.
ControlHandler = Callable[[wire.Message], Awaitable[bool]]
# Told about messages that were set aside as undeliverable, before the relay forgets them (M22).
AsideHandler = Callable[[list[Admitted]], Awaitable[None]]


class Receiving:
    """The handler of the relay client's polls. Relays may call it at the same time; batches take turns."""

    def __init__(
        self,
        admission: Admission,
        peers: PeersFile,
        now_ms: Callable[[], int],
        *,
        control: ControlHandler,
        aside: AsideHandler,
        stored: Callable[[list[Admitted]], None],
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._admission = admission
        self._peers = peers
        self._now_ms = now_ms
        self._control = control
        self._aside = aside
        self._stored = stored
        self._turn = Lock()
        self._fault = ""

    async def handle(self, arrivals: list[Arrival]) -> list[str]:
        """The ack tokens that the relay may forget. Raises StateError or SetupError where none may be."""
        async with self._turn:
            acks: list[str] = []
            batch: list[Incoming] = []
            batch_acks: list[str] = []
            for arrival in arrivals:
                try:
                    msg = wire.decode_message(arrival.payload)
                except WireError as exc:
                    self.counts[UNDECODABLE] += 1
                    self._admission.refusals.add(UNDECODABLE)
                    log.event("refused", reason=UNDECODABLE, error=exc)
                    acks.append(arrival.ack)
                    continue
                if msg.kind != "message":
                    if await self._control_one(msg):
                        acks.append(arrival.ack)
                    continue
                batch.append(Incoming(msg, len(arrival.payload.encode("utf-8"))))
                batch_acks.append(arrival.ack)
            if batch:
                try:
                    acks += await self._admit(batch, batch_acks)
                except (StateError, SetupError):
                    if not acks:
                        raise  # else what needed no storage is settled all the same, and the rest comes again (G6)
            return acks

    async def _admit(self, batch: list[Incoming], acks: list[str]) -> list[str]:
        petnames = self._peers.current().by_key  # SetupError: judged by nobody, so all of it stays (G7)
        results = await to_thread.run_sync(self._admission.admit, batch, petnames, self._now_ms())
        self.counts.update(r.outcome for r in results)
        aside = [r for r in results if r.outcome == staging.UNDELIVERABLE]
        if aside:
            await self._aside(aside)
        fresh = [r for r in results if r.outcome == staging.STORED or r.outcome == staging.REPEATED]
        if fresh:
            self._stored(fresh)
        return [ack for ack, result in zip(acks, results, strict=True) if result.settled]

    async def _control_one(self, msg: wire.Message) -> bool:
        verdict = gate.judge_control(
            msg, self._admission.mailbox.identity, self._now_ms(), self._admission.settings
        )
        if not verdict.admitted:
            self.counts[verdict.reason] += 1
            self._admission.refusals.add(verdict.reason)
            log.event("refused", reason=verdict.reason, kind=msg.kind, sender=msg.sender[:8])
            return True
        try:
            settled = await self._control(msg)
            self._note_fault("")
            return settled
        except (StateError, SetupError) as exc:  # it stays, and holds up nothing behind it (G6)
            self._note_fault(str(exc))
            return False

    def _note_fault(self, fault: str) -> None:
        if fault != self._fault:
            log.event("pairing_fault" if fault else "pairing_ok", error=fault or None)
            self._fault = fault
