"""Our own presence while a session runs: announce, take back, say goodbye; and the roster, judged (B3)."""

import secrets
from collections.abc import Callable, Container
from typing import Final

import anyio
from anyio import to_thread

from interlink import log
from interlink.errors import SetupError, WireError
from interlink.relay.client import Relays
from interlink.session import presence
from interlink.settings import Settings
from interlink.trust import wire
from interlink.trust.identity import Identity
from interlink.trust.peers import PeersFile

GOODBYES: Final = 16  # sessions at most that are told when this one ends
MET: Final = 1024
GOODBYE: Final = "[interlink] session {session} has ended; what is sent to it waits in the relay."


class Attendance:
    """Of one session. `run` until cancelled, then `leave`."""

    def __init__(
        self,
        name: str,
        session_id: str,
        cwd: str,
        identity: Identity,
        relays: Relays,
        peers: PeersFile,
        settings: Settings,
        now_ms: Callable[[], int],
    ) -> None:
        self.here = presence.describe_here(session_id, cwd)
        self._name = name
        self._identity = identity
        self._relays = relays
        self._peers = peers
        self._settings = settings
        self._now_ms = now_ms
        self._met: dict[str, None] = {}  # routes of sessions that we met in this life, oldest first
        self._announce = anyio.Event()
        self._dropped = 0

    async def run(self) -> None:
        """Announce this session at every heartbeat; at once when it has news, or a relay came (back) up."""
        while True:
            self._announce = anyio.Event()
            await self._relays.announce(wire.announcement_dict(self._announcement()))
            up = self._up()
            with anyio.move_on_after(self._settings.heartbeat_s):
                while self._up() <= up:
                    with anyio.move_on_after(self._settings.reconcile_s):
                        await self._announce.wait()
                        break

    def _up(self) -> set[tuple[str, int]]:
        """Relays that answer, and since when: one that was away may have forgotten us."""
        return {(s.url, s.since_ms) for s in self._relays.status() if s.up}

    def set_summary(self, summary: str) -> None:
        """What our announcements say that we are doing; announced at once where we announce at all."""
        self.here.summary = summary
        self._announce.set()

    def meet(self, route: str, key: str) -> None:
        """Remember a session of this key that wrote to us, or that we wrote to."""
        if session_in(route, key):
            self._met.pop(route, None)
            self._met[route] = None
            if len(self._met) > MET:
                del self._met[next(iter(self._met))]

    async def leave(self) -> None:
        """Unregister, and tell the live sessions that we met. The caller bounds it."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._relays.unregister, wire.announcement_dict(self._announcement()))
            group.start_soon(self._say_goodbye)

    async def roster(
        self, keys: Container[str] | None = None, *, fresh: bool = False
    ) -> list[presence.Seen] | None:
        """The valid roster of all relays that answer, of these keys or of all; None where none answers.

        `fresh`: asked for now, not as it was up to `roster_cache_s` ago.
        """
        entries = await self._relays.roster(fresh=fresh)
        if not entries and not any(s.up for s in self._relays.status()):
            return None
        # In a thread: the signatures of a full roster take the better part of a second.
        seen, dropped = await to_thread.run_sync(
            presence.judge_roster, entries, self._now_ms(), self._settings, keys
        )
        if keys is None and dropped != self._dropped:
            log.event("roster_entries_dropped", count=dropped)
            self._dropped = dropped
        return seen

    def _announcement(self) -> wire.Announcement:
        return presence.make_announcement(self._identity, self._name, self.here, self._now_ms())

    async def _say_goodbye(self) -> None:
        """Quiet: progress wakes nobody; none is left for who is gone."""
        try:
            by_key = self._peers.current().by_key
        except SetupError:
            return
        met = {route: wire.split_route(route)[0] for route in self._met}
        keys = {key for key in met.values() if key in by_key}
        if not keys:
            return
        seen = await self.roster(keys, fresh=True) or ()
        live = {wire.make_route(s.key, s.session.session_id) for s in seen if s.live(self._settings)}
        for route in [r for r in met if r in live][-GOODBYES:]:
            msg = wire.Message(
                sender=self._identity.public,
                to=met[route],
                text=GOODBYE.format(session=self.here.session_id),
                ts=self._now_ms(),
                msg_id=secrets.token_hex(16),
                status="update",
                reply_to=wire.make_route(self._identity.public, self.here.session_id),
            )
            await self._relays.send(route, wire.encode_message(wire.sign_message(msg, self._identity)))


def session_in(route: str, key: str) -> str | None:
    """The session in a route of this key; None for any other text (`reply_to` is unsigned)."""
    try:
        owner, session = wire.split_route(route)
    except WireError:
        return None
    return session if owner == key and session else None
