"""Whether a fault took effect: the event of the history that shows it, not the lab's word that it was injected."""

from collections.abc import Callable

from interlink_lab.history import Event, History, is_of

LATE_S = 3.0  # a log line or a look at the files comes a little after what it tells of
KILLED = (-9, 137)
STORAGE_LOGS = (
    "mailbox_fault", "mailbox_corrupt", "storage_fault", "outbox_fault", "notifier_fault", "pairing_fault",
    "peers_fault", "poll_deferred", "counts_fault", "task_marker_fault", "registration_fault",
    "replay_memory_incomplete", "relay_storage_failing",
)  # fmt: skip
FAILED = ("fetch.failed", "ack.failed", "send.fail", "history.failed")
Test = Callable[[Event, Event], bool]


def span(events: list[Event], fault: Event) -> tuple[float, float]:
    """(begin, end) of a fault, s; one that is not ended lasts to the end."""
    end = next((e["t"] for e in events if e["kind"] == "fault.end" and e["id"] == fault["id"]), None)
    return fault["t"], events[-1]["t"] if end is None else end


def observed(history: History, fault: Event) -> Event | None:
    """The first event within the fault's span that shows its effect, or None."""
    events = history.ordered()
    begin, end = span(events, fault)
    shows = effect(fault["fault"])
    return next((e for e in events if begin <= e["t"] <= end + LATE_S and shows(e, fault)), None)


def effect(kind: str) -> Test:
    """What shows the effect of this kind of fault: a test of (event, fault)."""
    if kind.startswith("kill-"):
        return _killed
    return {
        "pause": lambda e, f: e["kind"] == "stopped" and e["party"] == f["target"],
        "two-servers": lambda e, f: e["kind"] == "start" and e["party"] == _host(f) + ".second",
        "partition": _link("blackhole"),
        "drop-up": _link("drop-up"),
        "drop-down": _link("drop-down"),
        "reset": _link("reset"),
        "refused": _unreachable,
        "slow": _link("slow"),
        "disk-full": lambda e, f: _storage(e, f) or _bent("full")(e, f) or _unserved(e, f),
        "slow-sync": _bent("sync"),
        "clock": _bent("clock"),
    }.get(kind, _storage if kind in _FILES else _rogue(kind))


_FILES = ("corrupt", "truncate", "in-the-way", "read-only", "unreadable")


def _host(fault: Event) -> str:
    name: str = fault["target"].partition(".")[0]
    return name


def _killed(event: Event, fault: Event) -> bool:
    return event["kind"] == "exit" and event["party"] == fault["target"] and event.get("code") in KILLED


def _link(mode: str) -> Test:
    def shows(event: Event, fault: Event) -> bool:
        return event["kind"] == "link.hit" and event["mode"] == mode and is_of(event, _host(fault))

    return shows


def _unreachable(event: Event, fault: Event) -> bool:
    down = event["kind"] == "log" and event["event"] == "relay_down" and is_of(event, _host(fault))
    return down or _link("refused")(event, fault)


def _unserved(event: Event, fault: Event) -> bool:
    """A relay that cannot write says so to its clients; its own log is on the same disk."""
    if "." in fault["target"] or event["kind"] != "log" or event["event"] != "relay_down":
        return False
    return "(503)" in event["fields"].get("error", "")


def _rogue(mode: str) -> Test:
    return lambda e, f: e["kind"] == "rogue" and e["did"] == mode and is_of(e, f["target"])


def _bent(what: str) -> Test:
    def shows(event: Event, fault: Event) -> bool:
        if event["kind"] != "log" or event["event"] != "bent" or not is_of(event, _host(fault)):
            return False
        return bool(event["fields"]["what"] == what and event["fields"]["value"] != "0")

    return shows


def _storage(event: Event, fault: Event) -> bool:
    if not is_of(event, _host(fault)):
        return False
    if event["kind"] == "log":
        return event["event"] in STORAGE_LOGS
    return event["kind"] in FAILED or (event["kind"] == "exit" and event.get("code") == 1)
