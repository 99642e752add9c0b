"""Relays: there, their clocks, our token, and whether our sessions are announced (B2, B3)."""

from collections.abc import Iterator

from interlink.doctor.finding import BROKEN, OK, WARN, Finding, Scene, first_lines
from interlink.errors import InterlinkError, RelayError, SetupError
from interlink.relay import light
from interlink.relay.each import ask_each
from interlink.relay.light import Healthz
from interlink.session import presence
from interlink.session.config import read_token
from interlink.settings import Settings

UNAUTHORIZED = 401


def check_relays(scene: Scene) -> Iterator[Finding]:
    """Each relay by its own word; broken where none can be used."""
    if scene.where is None:
        return
    urls = scene.where.urls
    if not urls:
        yield Finding(BROKEN, "relay", "there is no relay address", "set INTERLINK_URL")
        return
    try:
        token = read_token(scene.where.token_file)
    except SetupError as exc:
        yield Finding(BROKEN, "relay", str(exc))
        return
    timeout_s = scene.settings.probe_timeout_s
    scene.health = ask_each(urls, lambda url: light.healthz(url, timeout_s))
    rosters = ask_each(urls, lambda url: light.roster(url, token, timeout_s))
    usable = [url for url in urls if _well(scene.health[url]) and not isinstance(rosters[url], RelayError)]
    for url in urls:
        yield from _one(url, scene.health[url], rosters[url], bool(usable), token is not None, scene.settings)
    entries = [entry for found in rosters.values() if not isinstance(found, RelayError) for entry in found]
    if usable:
        yield from _announced(scene, entries)


def _well(health: Healthz | InterlinkError) -> bool:
    return isinstance(health, Healthz) and health.ok


def _one(
    url: str, health: Healthz | InterlinkError, roster: object, others: bool, with_token: bool, settings: Settings
) -> Iterator[Finding]:
    bad = WARN if others else BROKEN
    if not isinstance(health, Healthz) or not health.ok:
        why = health.detail if isinstance(health, Healthz) else str(health)
        advice = "start it (interlink-bus), or correct INTERLINK_URL; what agents send waits meanwhile"
        yield Finding(bad, "relay", f"{url}: {why}", advice, {"url": url, "up": False})
        return
    if isinstance(roster, RelayError):
        refused = roster.status == UNAUTHORIZED
        have = "refuses our token" if with_token else "asks for a token"
        why = have if refused else str(roster)
        advice = "give the token file of that relay: --token-file or INTERLINK_TOKEN_FILE" if refused else ""
        yield Finding(bad, "relay", f"{url}: {why}", advice, {"url": url, "up": True})
        return
    latency = f"up, {health.latency_ms:.0f} ms" if health.latency_ms is not None else "up"
    note = f" ({health.detail})" if health.detail else ""
    data = {"url": url, "up": True, "latency_ms": health.latency_ms, "skew_ms": health.skew_ms}
    yield Finding(OK, "relay", f"{url}: {latency}{note}", data=data)
    if health.skew_ms is not None:
        yield from _skew(url, health.skew_ms, settings)


def _skew(url: str, skew_ms: int, settings: Settings) -> Iterator[Finding]:
    if abs(skew_ms) < settings.skew_warn_s * 1000:
        return
    seconds = abs(skew_ms) // 1000
    way = "ahead of" if skew_ms > 0 else "behind"
    bad = abs(skew_ms) >= settings.fresh_ahead_s * 1000
    yield Finding(
        BROKEN if bad else WARN,
        "clock",
        f"the clock of {url} is {seconds} s {way} ours",
        f"set the wrong one of the two: messages more than {settings.fresh_ahead_s:g} s ahead are refused",
        {"url": url, "skew_ms": skew_ms},
    )


def _announced(scene: Scene, entries: list[dict[str, object]]) -> Iterator[Finding]:
    seen = {
        s.session.session_id
        for s in presence.read_roster(entries, scene.now_ms, scene.settings)
        if s.key == scene.own
    }
    missing = sorted({r.session for r in scene.running if r.identity == scene.own} - seen)
    if missing:
        yield Finding(
            WARN,
            "relay",
            f"running, but not announced at these relays: session {first_lines(missing)}",
            "the server may use other relays, or have just started: compare its INTERLINK_URL",
            {"sessions": missing},
        )
