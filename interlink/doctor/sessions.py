"""Each session: its mail, its notice, who listens, what failed (M7, M16, M30, G3, G7, X4)."""

import json
from collections import Counter
from collections.abc import Iterator

from interlink.doctor.finding import BROKEN, OK, WARN, Finding, Scene, first_lines
from interlink.doctor.survey import Seen, held_back
from interlink.errors import StateError
from interlink.mailbox.notice import FAILED
from interlink.session.counters import Refused
from interlink.state import files
from interlink.state.paths import Layout
from interlink.text import clean_line, count, fingerprint, shown_name
from interlink.trust.gate import EXPIRED, STRANGER
from interlink.trust.pairing import PairingStore

NAME = "session"


def check_sessions(scene: Scene) -> Iterator[Finding]:
    """Everything about every session; sessions without anything to say give nothing."""
    for one in scene.seen:
        if one.fault:
            yield Finding(BROKEN, NAME, f"{one.place.shown}: {one.fault}", data=_data(one))
            continue
        yield from _holders(one)
        yield from _mail(one, scene)
        yield from _room(one, scene)
        yield from _held_back(one, scene)
        yield from _refused(one, scene)
        if scene.layout is not None:
            yield from _failed(one, scene.layout)
            yield from _pairing(one, scene.layout)
    if not scene.seen:
        yield Finding(OK, NAME, "no session has left anything here yet")


def _data(one: Seen) -> dict[str, object]:
    return {"identity": one.place.identity, "session": one.place.session}


def _holders(one: Seen) -> Iterator[Finding]:
    if not one.served:
        return
    servers = ", ".join(str(r.process.pid) for r in one.servers) or "not registered"
    notifier = _pids(one.notifiers)
    listener = _pids(one.listeners) if one.listeners else {True: "yes", None: "unknown"}.get(one.armed, "none")
    text = f"{one.place.shown}: server {servers}, notifier lock {notifier}, listener lock {listener}"
    data = {**_data(one), "notifiers": one.notifiers, "listeners": one.listeners}
    if one.servers and one.notifiers == []:
        advice = "another look in a few seconds should find one; if not, see the server's log"
        yield Finding(WARN, NAME, f"{text}: no process sends its notices", advice, data)
    else:
        yield Finding(OK, NAME, text, data=data)


def _pids(pids: list[int] | None) -> str:
    return "unknown" if pids is None else ", ".join(map(str, pids)) or "none"


def _mail(one: Seen, scene: Scene) -> Iterator[Finding]:
    """Unread mail: with whom it is, whether its notices go out, and whether anybody takes them."""
    data = {**_data(one), "unread": one.unread, "progress": one.progress, "pending": one.pending}
    name = one.place.shown
    if one.unread and not one.served:
        yield Finding(
            WARN,
            "orphan",
            f"{name}: {one.unread} unread{_since(one, scene)}, and no server has this session",
            f"start a server with that id, or: interlink adopt {one.place.session} --into SESSION",
            data,
        )
    elif one.unread:
        yield from _notices(one, scene, data)
    if one.pending:
        adopt = f"interlink adopt {one.place.session} --into SESSION"
        advice = "tried again by itself; the agent's tool list_pending says what each relay answered"
        text = f"{name}: {count(one.pending, 'message')} not taken by a relay yet"
        yield Finding(WARN, "outbox", text, advice if one.served else adopt, data)


def _since(one: Seen, scene: Scene) -> str:
    return f" since {_ago(scene.now_ms - one.oldest_ms)}" if one.oldest_ms else ""


def _ago(ms: int) -> str:
    seconds = max(0, ms // 1000)
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"


def _notices(one: Seen, scene: Scene, data: dict[str, object]) -> Iterator[Finding]:
    name, notice = one.place.shown, one.notice
    slack_ms = int(scene.settings.notice_schedule_s[0] * 1000)
    unread = f"{name}: {one.unread} unread{_since(one, scene)}"
    late = notice is None and one.oldest_ms is not None and scene.now_ms - one.oldest_ms > slack_ms
    if late or (notice is not None and scene.now_ms - notice.retry_at > slack_ms):
        yield Finding(BROKEN, "notice", f"{unread}, and no notice goes out", "see the log of its server", data)
        return
    if notice is None:
        yield Finding(OK, "notice", f"{unread}; its first notice is about to go out", data=data)
        return
    ago, after = _ago(scene.now_ms - notice.made_ms), _ago(notice.retry_at - scene.now_ms)
    about = f"notice {notice.id} {notice.state} {ago} ago, the next in {after}"
    data = {**data, "notice": {"id": notice.id, "state": notice.state, "retry_at_ms": notice.retry_at}}
    if notice.state == FAILED:
        yield Finding(
            WARN,
            "notice",
            f"{unread}; {about}, {count(notice.failures, 'failure')} in a row",
            "see its server's log",
            data,
        )
    elif one.waiting and one.armed is False:
        yield Finding(
            WARN,
            "listener",
            f"{unread}; {about}; no listener has taken it for {ago}",
            "usual while the agent's turn runs; if it is idle, its Stop hook did not run `interlink-mcp wait`: "
            "check that the host allows hooks, run `interlink setup claude`, and start a new session",
            data,
        )
    else:
        yield Finding(OK, "notice", f"{unread}; {about}", data=data)


def _room(one: Seen, scene: Scene) -> Iterator[Finding]:
    if one.box is None:
        return
    s, box = scene.settings, one.box
    left = len(box.records) - box.consumed_count
    size = box.bytes - box.done_bytes
    data = {**_data(one), "records": left, "bytes": size}
    if left >= s.mailbox_max_records or size >= s.mailbox_max_bytes:
        advice = "let its agent acknowledge some"
        yield Finding(BROKEN, "mailbox", f"{one.place.shown}: full; more mail waits at the relay", advice, data)
    elif left >= 0.9 * s.mailbox_max_records or size >= 0.9 * s.mailbox_max_bytes:
        text = f"{one.place.shown}: nearly full ({count(left, 'message')}, {count(size, 'byte')} unread)"
        yield Finding(WARN, "mailbox", text, "let its agent acknowledge some", data)
    counts = {k: n for k, n in sorted(box.head.counts.items()) if n}
    if counts:
        shown = ", ".join(f"{n} {_COUNTED.get(k, k)}" for k, n in counts.items())
        yield Finding(
            OK, "mailbox", f"{one.place.shown}: {clean_line(shown, 200)}", data={**data, "counts": counts}
        )


_COUNTED = {
    "suppressed": "repeats of local sources without a sequence number",
    "collisions": "messages under an id that another message had",
    "undeliverable": "set aside as too long",
}


def _held_back(one: Seen, scene: Scene) -> Iterator[Finding]:
    if one.box is None or scene.petnames is None:
        return
    by: Counter[str] = Counter()
    names: dict[str, str] = {}
    for record in held_back(one.box, scene.petnames, scene.now_ms):
        by[record.message.sender] += 1
        names[record.message.sender] = record.peer
    for key, number in by.most_common():
        yield Finding(
            WARN,
            "held back",
            f"{one.place.shown}: {number} unread of {shown_name(names[key])} [{fingerprint(key)}], no peer now",
            f"to see them: interlink peers add PETNAME {key}; else: interlink prune --held-back={key}",
            {**_data(one), "sender": key, "count": number},
        )


def _refused(one: Seen, scene: Scene) -> Iterator[Finding]:
    found: Refused = one.refused
    for key, number in sorted(found.expired_by.items()):
        name = shown_name((scene.petnames or {}).get(key, "a former peer"))
        yield Finding(
            WARN if scene.lately(found.at_ms) else OK,
            "expired",
            f"{one.place.shown}: refused as too old, from {name} [{fingerprint(key)}]: {count(number, 'message')}",
            f"what is more than {_ago(int(scene.settings.fresh_behind_s * 1000))} old on arrival is refused: "
            "have it sent anew, and compare the clocks",
            {**_data(one), "sender": key, "count": number, "at_ms": found.at_ms},
        )
    strangers = found.counts.get(STRANGER, 0)
    if strangers > 0:
        yield Finding(
            WARN if scene.lately(found.at_ms) else OK,
            "refused",
            f"{one.place.shown}: refused and not kept, from senders that were no peers: "
            f"{count(strangers, 'message')} (the last refusal of any kind {_ago(scene.now_ms - found.at_ms)} ago)",
            "if you expected one: interlink peers add PETNAME KEY on this machine, then have it sent anew; "
            "its server's log names the sender: event=refused reason=stranger sender=FINGERPRINT",
            {**_data(one), "counts": {STRANGER: strangers}, "at_ms": found.at_ms},
        )
    others = {r: n for r, n in sorted(found.counts.items()) if n and r not in (EXPIRED, STRANGER)}
    refusals = {r: n for r, n in others.items() if r.isidentifier()}
    if refusals:
        text = ", ".join(f"{n} {reason}" for reason, n in refusals.items())
        yield Finding(OK, "refused", f"{one.place.shown}: {text}", data={**_data(one), "counts": refusals})


def _failed(one: Seen, layout: Layout) -> Iterator[Finding]:
    """Saved failures of the Codex queue: an array of {id, msg_id, sender, text, reason, notice}."""
    data = files.read_bytes(layout.failed(*one.place))
    if data is None:
        return
    try:
        saved = json.loads(data)
        reasons = [str(entry.get("reason", "")) for entry in saved]
    except (ValueError, RecursionError, AttributeError, TypeError):
        yield Finding(WARN, "failed", f"{one.place.shown}: the file of failed deliveries does not parse")
        return
    if reasons:
        number = count(len(reasons), "failed delivery", "failed deliveries")
        yield Finding(
            WARN,
            "failed",
            f"{one.place.shown}: {number}: {clean_line(first_lines(reasons, 2), 300)}",
            "the agent's tool failed_deliveries reads, retries or discards them",
            {**_data(one), "count": len(reasons)},
        )


def _pairing(one: Seen, layout: Layout) -> Iterator[Finding]:
    try:
        state = PairingStore(layout, *one.place).read()
    except StateError as exc:
        yield Finding(BROKEN, "pairing", f"{one.place.shown}: {exc}")
        return
    waiting = [fingerprint(r.key) for r in state.inbound]
    if waiting:
        yield Finding(
            OK,
            "pairing",
            f"{one.place.shown}: {count(len(waiting), 'pairing request')} not answered: {first_lines(waiting)}",
            "list_pair_requests shows them",
            {**_data(one), "requests": waiting},
        )
