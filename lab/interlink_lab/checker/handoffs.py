"""Invariants of hosts that are handed each notice (Codex's queue, Claude's channel); what a scenario claims."""

from collections.abc import Iterator

from interlink_lab.checker.model import Facts, Violation
from interlink_lab.checker.notices import HEADINGS, SLACK_S, STORAGE
from interlink_lab.history import Event
from interlink_lab.tokens import CHANNEL

PUSHED = {"sender", "msg_id", "notification_id", "ack_required", "ack_tool"}


def claims_hold(facts: Facts) -> Iterator[Violation]:
    """claims-hold: what a scenario says of the product's answers is so."""
    for event in facts.by_kind["claim"]:
        if not event["ok"]:
            yield Violation("claims-hold", f"{event['name']}: {event['text']}", [event])


def calls_are_right(facts: Facts) -> Iterator[Violation]:
    """queue-call: `codex queue` gets the thread, one bounded argument and its CODEX_HOME (X2, H11)."""
    for event in facts.by_kind["queue"]:
        if event.get("wrong"):
            yield Violation("queue-call", event["wrong"], [event])


def hooks_answer_nothing(facts: Facts) -> Iterator[Violation]:
    """hook-answer: what binds a thread answers nothing that a host takes for output or a failure (H12, X1)."""
    for event in facts.by_kind["hook.failed"]:
        host = event["party"].partition(".")[0]
        if not event["gone"] and not facts.faulty(event["t"] - 1, event["t"] + 1, host, kinds=STORAGE):
            yield Violation("hook-answer", f"{event['hook']}: {event['error'][:100]}", [event])


def pushes_are_right(facts: Facts) -> Iterator[Violation]:
    """channel-push: a push is one of the product's notices with its five fields, all strings, from a server that
    declared the channel, behind the handshake; ours declares it where its host has one alone, and no listener
    waits beside it (N1, C10)."""
    for event in facts.by_kind["push"]:
        wrong = _wrong_with(event)
        if wrong:
            yield Violation("channel-push", wrong, [event])
    for event in facts.by_kind["start"]:
        host, _, part = event["party"].partition(".")
        if part != "server" or host not in facts.hosts or "declares" not in event or facts.other:
            continue
        spec, declared = facts.hosts[host], CHANNEL in event["declares"]
        if declared != bool(spec.get("channel")):
            verb = "declared" if declared else "not declared"
            yield Violation("channel-push", f"the channel was {verb} by the server of {host}", [event])
    for event in facts.by_kind["armed"]:
        host = event["party"].partition(".")[0]
        if facts.hosts.get(host, {}).get("channel"):
            yield Violation("channel-push", f"{host} has a channel, and a listener waits all the same", [event])


def _wrong_with(push: Event) -> str:
    """What is not as it should be about a push; "" where all is."""
    if not push["declared"]:
        return "the channel was not declared"
    if push["early"]:
        return "a push before the handshake was over"
    if push["wrong"]:
        return f"not strings: {push['wrong']}"
    if set(push["keys"]) != PUSHED:
        return f"its fields are {', '.join(push['keys'])}"
    if push["msg_id"] != push["notice"] or not push["notice"]:
        return f"msg_id {push['msg_id']!r} is not the notice {push['notice']!r}"
    if not any(heading.lower() in push["text"].lower() for heading in HEADINGS):
        return f"it is no notice: {push['text'][:80]!r}"
    if (push["what"] == "notice") != push["text"].startswith(HEADINGS[0]):
        return f"ack_required does not fit {push['text'][:80]!r}"
    return ""


def server_speaks_mcp(facts: Facts) -> Iterator[Violation]:
    """server-speaks-mcp: each line that a server writes to its host is one that the host can take (H7)."""
    for event in facts.by_kind["garbled"]:
        yield Violation("server-speaks-mcp", event["error"][:200], [event])


def the_queue_goes_on(facts: Facts) -> Iterator[Violation]:
    """queue-goes-on: a bound thread with unread mail gets notices by the schedule (H10)."""
    hosts = [host for host, spec in facts.hosts.items() if spec.get("kind") == "codex"]
    yield from _goes_on(facts, hosts, facts.by_kind["queue"], "queue-goes-on", "call of the queue")


def the_channel_goes_on(facts: Facts) -> Iterator[Violation]:
    """channel-goes-on: a connected host with unread mail gets pushes by the schedule (M7, N1)."""
    hosts = [host for host, spec in facts.hosts.items() if spec.get("channel")]
    pushes = [e for e in facts.by_kind["push"] if e["what"] == "notice"]  # a pairing notice tells nobody of mail
    yield from _goes_on(facts, hosts, pushes, "channel-goes-on", "push")


def _goes_on(
    facts: Facts, hosts: list[str], handoffs: list[Event], invariant: str, what: str
) -> Iterator[Violation]:
    """What stays unread for longer than the schedule and a margin without one of these handoffs."""
    bound = max(facts.schedule_s) + SLACK_S
    calls: dict[str, list[Event]] = {}
    for event in handoffs:
        calls.setdefault(event["session"], []).append(event)
    for host in hosts:
        for session, begin, end in _bound(facts, host):
            for entry in facts.by_session[session]:
                if entry.quiet or entry.states[-1][1] == "undeliverable":
                    continue
                stop = min(end, entry.consumed_at if entry.consumed_at is not None else facts.ended)
                times = [max(begin, entry.first["t"])]
                times += [e["t"] for e in calls.get(session, ()) if times[0] < e["t"] < stop]
                for a, b in zip(times, [*times[1:], stop], strict=True):
                    if b - a <= bound or facts.faulty(a, b, host) or facts.quarantined(entry, a):
                        continue
                    text = f"{entry.token or entry.msg_id} was unread for {b - a:.1f} s without a {what}"
                    yield Violation(invariant, text, [entry.first])
                    break


def _bound(facts: Facts, host: str) -> Iterator[tuple[str, float, float]]:
    """(session, begin, end) while a server of the host serves one."""
    begun: tuple[str, float] | None = None
    for event in facts.of("log", "exit"):
        if event["party"] != f"{host}.server":
            continue
        if event["kind"] == "log" and event["event"] == "session":
            ident = event["fields"].get("id", "")
            if begun is None or begun[0] != ident:  # else it failed and began anew: what waits has waited on
                begun = (ident, event["t"])
        elif event["kind"] == "exit" and begun is not None:
            yield *begun, event["t"]
            begun = None
    if begun is not None:
        yield *begun, facts.ended


CHECKS = (
    claims_hold,
    calls_are_right,
    hooks_answer_nothing,
    pushes_are_right,
    server_speaks_mcp,
    the_queue_goes_on,
    the_channel_goes_on,
)
