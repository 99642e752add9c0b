"""The trust gate: one pure function from (message, me, peers, memory, now) to a verdict (G1).

Order: strict signature, addressed to me, sender allowed, fresh, not a replay. Nothing reaches a mailbox or
a host before all five hold. A refused message consumes no replay slot: the caller remembers only what
was admitted.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from interlink.settings import Settings
from interlink.trust import wire

SELF = "self"

# Verdicts. Everything but ADMIT is acknowledged to the relay and counted (G6).
ADMIT = "admit"
REPEAT = "repeat"  # same message, stored here before
BAD_SIGNATURE = "bad_signature"
NOT_FOR_US = "not_for_us"
STRANGER = "stranger"
EXPIRED = "expired"
FROM_FUTURE = "from_future"
REPLAY = "replay"  # a copy of a message that another session of this identity has
REFUSALS = (BAD_SIGNATURE, NOT_FOR_US, STRANGER, EXPIRED, FROM_FUTURE, REPLAY)


class Verdict(NamedTuple):
    """`reason` is one of the words above; `petname` is set for an allowed sender."""

    reason: str
    petname: str = ""

    @property
    def admitted(self) -> bool:
        return self.reason == ADMIT


# What the replay memory says of (sender, msg_id, fingerprint): "" unknown, else REPEAT or REPLAY.
Memory = Callable[[wire.Message], str]


def judge(
    msg: wire.Message,
    me: str,
    petnames: Mapping[str, str],
    memory: Memory,
    now_ms: int,
    settings: Settings,
) -> Verdict:
    """The verdict on one ordinary message. `petnames` maps public key to petname (own key: `self`).

    Pairing messages (`kind` other than message) pass `judge_control` instead (G4).
    """
    reason = _signed_for(msg, me)
    if reason:
        return Verdict(reason)
    petname = SELF if msg.sender == me else petnames.get(msg.sender, "")
    if not petname:
        return Verdict(STRANGER)
    reason = _fresh(msg, now_ms, settings)
    if reason:
        return Verdict(reason, petname)
    return Verdict(memory(msg) or ADMIT, petname)


def judge_control(msg: wire.Message, me: str, now_ms: int, settings: Settings) -> Verdict:
    """The verdict on a pairing message: signature, address and freshness; a stranger may knock (G4)."""
    return Verdict(_signed_for(msg, me) or _fresh(msg, now_ms, settings) or ADMIT)


def _signed_for(msg: wire.Message, me: str) -> str:
    if not wire.signature_holds(msg):
        return BAD_SIGNATURE
    return "" if msg.to == me else NOT_FOR_US


def _fresh(msg: wire.Message, now_ms: int, settings: Settings) -> str:
    if msg.ts > now_ms + settings.fresh_ahead_s * 1000:
        return FROM_FUTURE
    if msg.ts < now_ms - settings.fresh_behind_s * 1000:
        return EXPIRED
    return ""


def forget_at_ms(msg_ts_ms: int, arrived_ms: int, settings: Settings) -> int:
    """When the replay memory may drop a message: the window after the later of its time and its arrival."""
    return max(msg_ts_ms, arrived_ms) + int((settings.fresh_behind_s + settings.replay_slack_s) * 1000)
