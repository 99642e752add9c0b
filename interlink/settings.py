"""Every interval, bound and schedule, with its default: read once from the environment, checked here.

`Settings()` holds the defaults; `load(environ)` applies `INTERLINK_<NAME>` variables. A bad value is
reported in `Settings.problems` (it names the variable and the range) and the default stays in force,
so that the server always starts (H7). `docs/configuration.md` shows the same table.

Light on purpose: no dataclasses, no re.
"""

from collections.abc import Mapping

MIB = 1 << 20
KIB = 1 << 10

Schedule = tuple[float, ...]


class Settings:
    """All settings. Names end in their unit: `_ms`, `_s`, `_bytes`; others are counts."""

    # One message
    text_max_bytes: int = 1 * MIB
    message_max_bytes: int = 2 * MIB
    name_max_chars: int = 32
    # Mailbox
    mailbox_max_records: int = 4096
    mailbox_max_bytes: int = 32 * MIB
    tombstone_max: int = 50_000
    prune_every_s: float = 5
    local_memory_s: float = 86_400
    # Trust gate and replay memory
    fresh_ahead_s: float = 60
    fresh_behind_s: float = 86_400
    replay_slack_s: float = 60
    replay_compact_bytes: int = 1 * MIB
    knock_interval_s: float = 60
    peers_max_bytes: int = 1 * MIB
    # Notices
    notice_schedule_s: Schedule = (30, 60, 120, 240, 300)
    notice_max_bytes: int = 12_288
    reconcile_s: float = 1
    failed_ttl_s: float = 86_400
    failed_max: int = 64
    ephemeral_ttl_s: float = 600
    resume_memory_s: float = 86_400
    renotify_min_s: float = 30
    # Fetch
    fetch_default: int = 20
    fetch_max: int = 100
    answer_max_bytes: int = 60_000
    # Outbox
    outbox_max_messages: int = 1000
    outbox_max_bytes: int = 32 * MIB
    outbox_retry_s: float = 5
    outlog_max: int = 1000
    pending_ttl_s: float = 86_400
    # Relay
    relay_queue_max_messages: int = 10_000
    relay_queue_max_bytes: int = 64 * MIB
    relay_max_bytes: int = 1 << 30
    roster_ttl_s: float = 259_200
    roster_max: int = 4096
    waiters_max: int = 10_000
    retry_after_s: float = 5
    relay_body_room_bytes: int = 16 * KIB
    relay_body_timeout_s: float = 30
    relay_linger_s: float = 1
    relay_bodies_max_bytes: int = 256 * MIB
    relay_route_max_bytes: int = 512
    relay_batch_bytes: int = 4 * MIB
    relay_acks_max: int = 4096
    relay_announce_max_bytes: int = 16 * KIB
    relay_group_bytes: int = 8 * MIB
    relay_keep_alive_s: float = 75
    relay_roster_save_s: float = 60
    relay_reserve_bytes: int = 16 * MIB
    # Relay client
    poll_timeout_ms: int = 25_000
    poll_probe_ms: int = 1000
    poll_batch: int = 256
    poll_min_s: float = 0.5
    poll_answer_max_bytes: int = 16 * MIB
    connect_timeout_s: float = 10
    keep_alive_s: float = 20
    send_timeout_s: float = 30
    send_grace_s: float = 1
    send_parallel: int = 8
    retry_after_max_s: float = 60
    call_timeout_s: float = 10
    roster_grace_s: float = 3
    roster_cache_s: float = 1
    roster_max_bytes: int = 8 * MIB
    unregister_timeout_s: float = 3
    backoff_min_s: float = 0.5
    backoff_max_s: float = 30
    # Presence
    heartbeat_s: float = 30
    live_s: float = 90
    # Inbox and listener
    inbox_batch_records: int = 64
    inbox_batch_bytes: int = 256 * KIB
    payload_wait_s: float = 3
    payload_total_s: float = 60
    listener_poll_s: float = 1
    listener_stat_s: float = 0.06
    listener_lock_wait_s: float = 10
    renew_after_s: float = 3000
    # Channel and Codex
    channel_push_s: float = 10
    codex_timeout_s: float = 30
    codex_attempts: int = 3
    codex_backoff_s: float = 2
    # Commands
    probe_timeout_s: float = 3
    skew_warn_s: float = 10
    counts_every_s: float = 5
    empty_keep_s: float = 604_800
    # Server
    request_line_max_bytes: int = 4 * MIB
    shutdown_grace_s: float = 1.5
    shutdown_settle_s: float = 0.3
    progress_interval_s: float = 60

    def __init__(self) -> None:
        self.problems: list[str] = []


# name -> (lowest, highest, what it is). One row a setting; docs/configuration.md is made from this.
TABLE: dict[str, tuple[float, float, str]] = {
    "text_max_bytes": (1, 64 * MIB, "one message's text at the sender, UTF-8 bytes"),
    "message_max_bytes": (1024, 128 * MIB, "one message at the receiver, and the relay's body limit"),
    "name_max_chars": (8, 256, "characters of a name that are shown"),
    "mailbox_max_records": (1, 1_000_000, "records with bodies in one mailbox"),
    "mailbox_max_bytes": (1024, 1 << 31, "serialized records in one mailbox"),
    "tombstone_max": (16, 1_000_000, "body-less records kept for the replay memory"),
    "prune_every_s": (0, 3600, "least time between two searches for records past their time"),
    "local_memory_s": (1, 31_536_000, "how long a consumed message of a local source is known"),
    "fresh_ahead_s": (0, 86_400, "how far a message's time may be ahead of ours"),
    "fresh_behind_s": (1, 31_536_000, "how old a message may be"),
    "replay_slack_s": (0, 86_400, "replay memory beyond the freshness window"),
    "replay_compact_bytes": (1024, 1 << 31, "size from which the replay memory is written anew"),
    "knock_interval_s": (0, 86_400, "least time between two shown knocks of one key"),
    "peers_max_bytes": (1024, 64 * MIB, "the peers file"),
    "notice_schedule_s": (0.01, 86_400, "seconds between notices while something is unread"),
    "notice_max_bytes": (512, 131_071, "rendered notice text"),
    "reconcile_s": (0.01, 60, "the reconciliation loop"),
    "failed_ttl_s": (1, 31_536_000, "life of a saved failed notice"),
    "failed_max": (1, 10_000, "saved failed deliveries a session"),
    "ephemeral_ttl_s": (0.01, 86_400, "life of an ephemeral local message"),
    "resume_memory_s": (1, 31_536_000, "how long an acknowledged resume id is remembered"),
    "renotify_min_s": (0.01, 86_400, "least distance of a notice that a sender's repeat brings forward"),
    "fetch_default": (1, 100, "messages a fetch returns"),
    "fetch_max": (1, 1000, "messages a fetch may be asked for"),
    "answer_max_bytes": (4096, 16 * MIB, "text of one tool answer"),
    "outbox_max_messages": (1, 1_000_000, "messages waiting to be sent"),
    "outbox_max_bytes": (1024, 1 << 31, "bytes waiting to be sent"),
    "outbox_retry_s": (0.01, 3600, "between two attempts to send"),
    "outlog_max": (1, 1_000_000, "entries of the outbound log"),
    "pending_ttl_s": (1, 31_536_000, "how long an unsent message is tried"),
    "relay_queue_max_messages": (1, 10_000_000, "messages waiting for one recipient"),
    "relay_queue_max_bytes": (1024, 1 << 40, "bytes waiting for one recipient"),
    "relay_max_bytes": (1024, 1 << 44, "bytes waiting in the whole relay"),
    "roster_ttl_s": (1, 31_536_000, "how long an announcement is kept"),
    "roster_max": (1, 1_000_000, "entries of the roster"),
    "waiters_max": (1, 1_000_000, "long polls waiting at one time"),
    "retry_after_s": (1, 3600, "Retry-After of a full relay"),
    "relay_body_room_bytes": (1024, 1 * MIB, "room for the envelope in a relay request beside its message"),
    "relay_body_timeout_s": (0.01, 300, "how long the relay waits for a request's body"),
    "relay_linger_s": (0, 60, "how long a refused body is drained, so that its sender can read why"),
    "relay_bodies_max_bytes": (1024, 1 << 40, "request bodies that the relay holds in memory at one time"),
    "relay_route_max_bytes": (64, 4096, "one route (recipient) at the relay"),
    "relay_batch_bytes": (1024, 1 << 31, "messages in one answer to a poll (one alone may exceed)"),
    "relay_acks_max": (1, 1_000_000, "acknowledgements in one request"),
    "relay_announce_max_bytes": (1024, 1 * MIB, "one announcement at the relay"),
    "relay_group_bytes": (1, 1 << 31, "messages that one commit of the relay takes (one alone may exceed)"),
    "relay_keep_alive_s": (1, 3600, "how long the relay keeps an idle connection"),
    "relay_roster_save_s": (0.05, 3600, "between two copies of a changed roster to disk"),
    "relay_reserve_bytes": (0, 1 << 31, "disk space held back so that acks go on when the disk is full"),
    "poll_timeout_ms": (1, 300_000, "one long poll"),
    "poll_probe_ms": (0, 300_000, "the long poll that follows a failed one"),
    "poll_batch": (1, 256, "messages asked for in one poll"),
    "poll_min_s": (0, 60, "least distance of two polls of a relay that has nothing"),
    "poll_answer_max_bytes": (64 * KIB, 1 << 30, "one answer to a poll (one whole message always fits)"),
    "connect_timeout_s": (0.01, 300, "connecting to a relay"),
    "keep_alive_s": (0, 3600, "how long an idle connection to a relay is kept"),
    "send_timeout_s": (0.01, 300, "one send"),
    "send_grace_s": (0, 300, "wait for the other relays once one has taken a message"),
    "send_parallel": (1, 256, "sends under way to one relay"),
    "retry_after_max_s": (0, 3600, "longest wait that a relay may ask for"),
    "call_timeout_s": (0.01, 300, "one ack, announce or roster call"),
    "roster_grace_s": (0, 300, "wait for the other relays once one has given its roster"),
    "roster_cache_s": (0, 60, "how long a roster is used again"),
    "roster_max_bytes": (64 * KIB, 1 << 30, "one roster"),
    "unregister_timeout_s": (0.01, 60, "unregister and goodbyes at the end"),
    "backoff_min_s": (0.001, 60, "first pause after a relay failed"),
    "backoff_max_s": (0.01, 3600, "longest pause after a relay failed"),
    "heartbeat_s": (0.01, 3600, "between two announcements"),
    "live_s": (0.01, 86_400, "age below which a session is live"),
    "inbox_batch_records": (1, 10_000, "inbox records one wake prints"),
    "inbox_batch_bytes": (1024, 64 * MIB, "inbox bytes one wake prints (one record may exceed)"),
    "payload_wait_s": (0.01, 60, "how long a hook waits for the next bytes of its payload"),
    "payload_total_s": (0.01, 600, "how long a hook waits for its payload in all"),
    "listener_poll_s": (0.01, 60, "listener's check of its host and its server"),
    "listener_stat_s": (0.01, 60, "listener's look at the inbox where the system does not notify"),
    "listener_lock_wait_s": (0, 600, "wait for the lock of a listener whose host is another or dead"),
    "renew_after_s": (1, 3000, "idle time after which the listener asks to be renewed"),
    "channel_push_s": (0.01, 300, "one push through the host's channel"),
    "codex_timeout_s": (0.1, 600, "one run of the queue program"),
    "codex_attempts": (1, 10, "automatic runs of the queue program for one notice"),
    "codex_backoff_s": (0.01, 600, "between two runs of the queue program"),
    "probe_timeout_s": (0.01, 300, "one question of `status` and `doctor` to a relay"),
    "skew_warn_s": (1, 3600, "difference between a relay's clock and ours that `doctor` warns of"),
    "counts_every_s": (0, 3600, "between two writes of the counts of refused messages"),
    "empty_keep_s": (0, 31_536_000, "age from which `prune` removes an empty mailbox"),
    "request_line_max_bytes": (64 * KIB, 256 * MIB, "one MCP request line"),
    "shutdown_grace_s": (0.1, 60, "time for an orderly end"),
    "shutdown_settle_s": (0, 60, "of it, for calls under way at the end of stdin, and for the last answers"),
    "progress_interval_s": (0, 86_400, "quiet time after which an executor is nudged (0: never)"),
}

# Older names that scripts already use for a setting.
ALIASES = {"progress_interval_s": "INTERLINK_PROGRESS_INTERVAL", "relay_queue_max_messages": "INTERLINK_QUEUE_CAP"}


def env_name(name: str) -> str:
    """The environment variable of a setting, `INTERLINK_<NAME>`."""
    return "INTERLINK_" + name.upper()


def load(environ: Mapping[str, str]) -> Settings:
    """Settings from the environment. Never raises: see `Settings.problems` (one line each)."""
    out = Settings()
    for name, (low, high, _doc) in TABLE.items():
        for var in (env_name(name), ALIASES.get(name, "")):
            text = environ.get(var, "")
            if text:
                value = _parse(name, text, low, high)
                if value is None:
                    default = getattr(Settings, name)
                    shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
                    out.problems.append(
                        f"{var}={text[:60]!r} is not valid: use {low:g} to {high:g}"
                        f"{' (comma-separated)' if isinstance(default, tuple) else ''}; {shown} is used"
                    )
                else:
                    setattr(out, name, value)
                break
    return out


def _parse(name: str, text: str, low: float, high: float) -> object | None:
    try:
        if isinstance(getattr(Settings, name), tuple):
            numbers = tuple(float(part) for part in text.split(","))
            return numbers if numbers and all(low <= n <= high for n in numbers) else None
        number = float(text) if name.endswith("_s") else int(text)
    except ValueError:
        return None
    return number if low <= number <= high else None
