"""`interlink status`: one screen. Takes no lock, changes nothing."""

from typing import Any

import click

from interlink.cli import options, shown
from interlink.doctor.survey import Seen, survey
from interlink.errors import SetupError
from interlink.relay import light
from interlink.relay.each import ask_each
from interlink.session.config import read_token
from interlink.settings import Settings
from interlink.state.paths import Layout
from interlink.text import fingerprint
from interlink.trust.peers import PeersFile


@click.command(name="status", context_settings=options.HELP)
@options.key_option
@options.peers_option
@options.url_option
@options.json_option
def command(as_json: bool, **paths: str | None) -> None:
    """Identity, peers, relays, and each session of this machine: unread mail, its last notice, its listener.

    Sessions with nothing to say (no server, nothing unread or unsent) are only counted; --json lists them all.
    """
    settings = options.settings()
    where = options.config(**paths)
    own, problem = options.own_key(where)
    peers = PeersFile(where.peers_path, own, settings)
    try:
        petnames, trouble = peers.current().by_key, ""
    except SetupError as exc:
        petnames, trouble = None, str(exc)
    try:
        token = read_token(where.token_file)
    except SetupError:
        token = None  # the relay's refusal, or `doctor`, says the rest
    relays = ask_each(where.urls, lambda url: _ask(url, token, settings.probe_timeout_s))
    now = options.now_ms()
    seen = survey(Layout(where.root), petnames, settings, now)
    relay_rows = [_relay(url, answer) for url, answer in relays.items()]
    if as_json:
        shown.print_json(
            {
                "identity": {"key": own or None, "problem": problem or None, "path": where.key_path},
                "peers": {"path": peers.path, "count": len(petnames or ()), "problem": trouble or None},
                "state_root": where.root,
                "relays": relay_rows,
                "sessions": [_session(s) for s in seen],
            }
        )
        return
    shown.say(f"identity   {f'{fingerprint(own)}  ({where.key_path})' if own else f'none: {problem}'}")
    shown.say(f"peers      {trouble or f'{len(petnames or ())}  ({peers.path})'}")
    for row in relay_rows:
        latency = f", {row['latency_ms']:.0f} ms" if row["latency_ms"] is not None else ""
        state = f"up{latency}" if row["up"] else "down"
        shown.say(f"relay      {row['url']}  {state}{': ' if row['detail'] else ''}{row['detail']}")
    if not relay_rows:
        shown.say("relay      none: set INTERLINK_URL")
    _sessions(seen, now, settings)


def _ask(url: str, token: str | None, timeout_s: float) -> light.Healthz:
    """Its health, and whether it lets us in. RelayError where it does not."""
    health = light.healthz(url, timeout_s)
    if health.ok:
        light.roster(url, token, timeout_s)
    return health


def _relay(url: str, answer: Any) -> dict[str, Any]:
    ok = isinstance(answer, light.Healthz) and answer.ok
    detail = answer.detail if isinstance(answer, light.Healthz) else str(answer)
    latency = answer.latency_ms if isinstance(answer, light.Healthz) else None
    return {"url": url, "up": ok, "detail": detail, "latency_ms": latency}


def _sessions(seen: list[Seen], now: int, settings: Settings) -> None:
    served = [s for s in seen if s.served]
    others = [s for s in seen if not s.served and (s.unread or s.progress or s.held_back or s.pending or s.fault)]
    shown.say(f"\nsessions that a server has now: {len(served) or 'none'}")
    for one in served:
        _print(one, now)
    if others:
        shown.say(f"\nsessions that no server has, with something left: {len(others)}")
        for one in others:
            _print(one, now)
    quiet = len(seen) - len(served) - len(others)
    if quiet:
        shown.say(f"\n{shown.count(quiet, 'other session')} with nothing left")


def _print(one: Seen, now: int) -> None:
    pids = ", ".join(str(r.process.pid) for r in one.servers) or ", ".join(map(str, one.notifiers or ()))
    server = f"server {pids}, " if pids else ""
    armed = {True: "listener armed", False: "no listener", None: "listener unknown"}[one.armed]
    shown.say(f"  {one.place.shown}  {server}{armed}")
    if one.fault:
        shown.say(f"      cannot be read: {one.fault}")
        return
    parts = [f"{one.unread} unread" + (f" since {shown.span(now - one.oldest_ms)}" if one.oldest_ms else "")]
    for number, word in ((one.progress, "progress"), (one.quiet, "ephemeral"), (one.held_back, "held back")):
        parts += [f"{number} {word}"] if number else []
    parts.append(f"{one.pending} unsent")
    parts.append(_notice(one, now))
    shown.say("      " + "; ".join(parts))


def _notice(one: Seen, now: int) -> str:
    notice = one.notice
    if notice is None:
        return "no notice out"
    after = notice.retry_at - now
    again = f"again in {shown.span(after)}" if after > 0 else f"again was due {shown.span(after)} ago"
    return f"notice {notice.id} {notice.state} {shown.span(now - notice.made_ms)} ago, {again}"


def _session(one: Seen) -> dict[str, Any]:
    notice = one.notice
    return {
        "identity": one.place.identity,
        "session": one.place.session,
        "servers": [r.process.pid for r in one.servers],
        "notifiers": one.notifiers,
        "listeners": one.listeners,
        "listener_armed": one.armed,
        "unread": one.unread,
        "progress": one.progress,
        "ephemeral": one.quiet,
        "held_back": one.held_back,
        "oldest_ms": one.oldest_ms,
        "pending": one.pending,
        "notices_waiting": one.waiting,
        "notice": None
        if notice is None
        else {
            "id": notice.id,
            "state": notice.state,
            "made_ms": notice.made_ms,
            "retry_at_ms": notice.retry_at,
            "attempt": notice.attempt,
            "failures": notice.failures,
        },
        "fault": one.fault or None,
    }
