"""What a run consists of: relays and hosts. Data alone; `run.py` brings it up on a backend."""

from dataclasses import dataclass, field
from typing import Any, Literal

from interlink_lab.fixtures.policy import Policy

# Short intervals in place of the defaults, so that a run takes seconds. All are the product's own settings.
FAST = {
    "INTERLINK_NOTICE_SCHEDULE_S": "1,2,3",
    "INTERLINK_RENOTIFY_MIN_S": "1",
    "INTERLINK_RECONCILE_S": "0.3",
    "INTERLINK_HEARTBEAT_S": "2",
    "INTERLINK_LIVE_S": "20",
    "INTERLINK_OUTBOX_RETRY_S": "0.5",
    "INTERLINK_BACKOFF_MIN_S": "0.1",
    "INTERLINK_BACKOFF_MAX_S": "1",
    "INTERLINK_POLL_TIMEOUT_MS": "3000",
    "INTERLINK_POLL_PROBE_MS": "200",
    "INTERLINK_SEND_TIMEOUT_S": "3",
    "INTERLINK_CALL_TIMEOUT_S": "3",
    "INTERLINK_CONNECT_TIMEOUT_S": "2",
    "INTERLINK_CODEX_BACKOFF_S": "0.3",
    "INTERLINK_CODEX_TIMEOUT_S": "2",
    "INTERLINK_LISTENER_LOCK_WAIT_S": "4",
    "INTERLINK_LISTENER_POLL_S": "0.3",
    "INTERLINK_RELAY_ROSTER_SAVE_S": "0.3",
    "INTERLINK_KNOCK_INTERVAL_S": "1",
}


LARGEST = 1 << 20  # bytes of one message's text, the product's default (text_max_bytes)


@dataclass(frozen=True, kw_only=True)
class RelaySpec:
    """One relay. `rogue`: an HTTP proxy of the lab's stands before it and misbehaves on command."""

    name: str = "r1"
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    rogue: bool = False


@dataclass(frozen=True, kw_only=True)
class HostSpec:
    """One host: a home, a key, a state root; a Claude or Codex fixture with its server.

    `identity`: another host's name whose key this one has too (two sessions of one identity on one machine, in
    one state root). `linked`: a TCP proxy stands between it and each relay. `options`: more of the fixture's
    configuration (`version`; Codex: `ephemeral`, `answers`). `channel`: notices are pushed through the host's
    channel, and a host whose channel is "off" drops them unseen, as a real one does.
    """

    name: str
    kind: Literal["claude", "codex"] = "claude"
    trusts: tuple[str, ...] = ()
    policy: Policy = field(default_factory=Policy)
    env: dict[str, str] = field(default_factory=dict)
    identity: str | None = None
    linked: bool = True
    relays: tuple[str, ...] = ()  # none: all
    session: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    channel: Literal["", "on", "off"] = ""


@dataclass(frozen=True, kw_only=True)
class Topology:
    """Relays and hosts. `env` goes to all programs of the product."""

    hosts: tuple[HostSpec, ...]
    relays: tuple[RelaySpec, ...] = (RelaySpec(),)
    env: dict[str, str] = field(default_factory=lambda: dict(FAST))

    def schedule_s(self) -> list[float]:
        """The notice schedule in force, s."""
        return [
            float(part) for part in self.env.get("INTERLINK_NOTICE_SCHEDULE_S", "30,60,120,240,300").split(",")
        ]

    def describe(self) -> dict[str, Any]:
        """For the history."""
        return {
            "relays": [r.name for r in self.relays],
            "hosts": {
                h.name: {
                    "kind": h.kind,
                    "trusts": list(h.trusts),
                    "policy": h.policy.data(),
                    "channel": h.channel,
                }
                for h in self.hosts
            },
            "schedule_s": self.schedule_s(),
        }


def two_hosts(
    kind: Literal["claude", "codex"] = "claude", bob: dict[str, Any] | None = None, **more: Any
) -> Topology:
    """alice and bob, who trust each other, and one relay; `kind` is bob's host, `bob` more of it, `more` of the
    topology."""
    return Topology(
        hosts=(
            HostSpec(name="alice", trusts=("bob",)),
            HostSpec(name="bob", kind=kind, trusts=("alice",), **(bob or {})),
        ),
        **more,
    )
