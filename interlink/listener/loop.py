"""The listener itself: take the session's lock, wait, hand over what arrived, exit (C2, C3, C4, C11, H3, H4).

    resolve session -> lock -> +--> records that still matter --> print, flush, commit cursor --> exit 2
                               |      (others: commit, go on)
                               +--> idle for the renewal time --> print the renewal text ------> exit 2
                               +--> host or its input gone, another listener, signal -----------> exit 0
                               +--> the host's server serves another session: take that lock instead

Until the cursor is committed nothing is consumed: an end at any earlier moment lets the next listener print
the same records again. A server that registers only after this listener started (both start with the host)
is found within `listener_poll_s`, and so is one that came with another session id.
"""

import os
import time
from collections.abc import Callable, Mapping

from interlink import inbox
from interlink.errors import EXIT_FAULT, EXIT_OK, EXIT_WAKE, LockBusy
from interlink.hosts import registry
from interlink.listener import lock as listener_lock
from interlink.listener import payload
from interlink.listener.host import Host
from interlink.listener.watch import Watch, hold_ending_signals
from interlink.settings import Settings
from interlink.state import files
from interlink.state.flock import Flock
from interlink.state.paths import Layout

STDIN = 0
STDERR = 2


class Listener:
    """One run of `interlink-mcp wait`. Tests may replace `now`, the clock (s), and `watch`, the waiting."""

    def __init__(
        self,
        layout: Layout,
        settings: Settings,
        environ: Mapping[str, str],
        *,
        session: str = "",
        renew_after_s: float | None = None,
        now: Callable[[], float] = time.monotonic,
        watch: Watch | None = None,
    ) -> None:
        self._layout = layout
        self._settings = settings
        self._environ = environ
        self._option = session
        self._now = now
        self._renew_at = now() + (settings.renew_after_s if renew_after_s is None else renew_after_s)
        self._watch = watch or Watch(settings.listener_stat_s)
        self._host = Host(environ)
        self._session = ""
        self._lock: Flock | None = None
        self._seen: tuple[int, int, int] | None = None
        self._notes: list[str] = []

    def run(self) -> int:
        """The exit code: 0 nothing to do, 1 when what was printed is not consumed, 2 the host is to wake.

        Raises InterlinkError for whatever keeps it from listening.
        """
        if registry.channel_mode(self._environ) or registry.codex_mode(self._environ) or self._host.one_shot():
            return EXIT_OK
        found = registry.resolve(
            self._layout, self._environ, self._host.process, option=self._option, payload=self._payload
        )
        if not self._enter(found.session):
            return EXIT_OK
        check_at = self._now()
        while True:
            if self._now() >= check_at:
                check_at = self._now() + self._settings.listener_poll_s
                if self._host.gone() or self._host.input_ended() or not self._in_place(found.pinned):
                    return EXIT_OK
            code = self._look()
            if code is not None:
                return code
            if self._now() >= self._renew_at:
                return EXIT_OK if self._host.gone() else self._renew()
            self._watch.wait(max(0.0, min(check_at, self._renew_at) - self._now()), self._changed)

    def _changed(self) -> bool:
        return files.signature(self._layout.inbox(self._session)) != self._seen

    def _payload(self) -> str:
        return payload.read_session_id(STDIN, self._settings.payload_wait_s, self._settings.payload_total_s)

    def _enter(self, session: str) -> bool:
        """Take this session's lock in place of the one that is held; False where there is nothing to do."""
        inbox.prepare(self._layout)
        held = listener_lock.take(
            self._layout.inbox(session, "lock"),
            self._host.process,
            self._settings.listener_lock_wait_s,
            lambda: not self._host.gone(),
        )
        if held is None:
            return False
        if self._lock is not None:
            self._lock.release()
        self._lock, self._session, self._seen = held, session, None
        self._watch.arm(self._layout.inbox_dir())
        return True

    def _in_place(self, pinned: bool) -> bool:
        """Follow the host's server to its session, and a lock file that was replaced; False: nothing to do."""
        served = None if pinned else registry.session_of(self._layout, self._host.process)
        if served is not None and served != self._session:
            return self._enter(served)
        if self._lock is not None and not self._lock.in_place():
            return self._enter(self._session)
        return True

    def _look(self) -> int | None:
        """Hand over what is new in the inbox. None: nothing that matters."""
        path = self._layout.inbox(self._session)
        while (signature := files.signature(path)) != self._seen:
            try:
                batch = inbox.read(
                    self._layout,
                    self._session,
                    max_records=self._settings.inbox_batch_records,
                    max_bytes=self._settings.inbox_batch_bytes,
                    lock_wait_s=self._settings.listener_poll_s,
                )
            except LockBusy:
                return None  # an append takes long; the next look is not far
            self._notes += batch.notes
            if batch.end == batch.start:
                self._seen = signature
                return None
            done = inbox.consumed(self._layout, self._session)
            wanted = [record for record in batch.records if _matters(record, done)]
            if self._host.gone():
                return EXIT_OK
            if wanted:
                from interlink.listener.render import render

                return self._wake(render(wanted, self._notes), batch.end)
            self._commit(batch.end)
        return None

    def _renew(self) -> int:
        from interlink.listener.render import RENEWAL

        return self._wake(RENEWAL, None)

    def _wake(self, text: str, end: int | None) -> int:
        if not emit(STDERR, text.encode("utf-8", "replace")):
            return EXIT_FAULT
        hold_ending_signals()
        if end is not None:
            self._commit(end)
        return EXIT_WAKE

    def _commit(self, end: int) -> None:
        inbox.commit(self._layout, self._session, end, lock_wait_s=self._settings.listener_lock_wait_s)


def _matters(record: Mapping[str, object], done: int) -> bool:
    """False for a notice all of whose messages are consumed (C11); whatever does not say so matters."""
    through = record.get("through")
    if record.get("sender") != inbox.NOTICE_SENDER or not isinstance(through, int) or isinstance(through, bool):
        return True
    return through >= done


def emit(fd: int, data: bytes) -> bool:
    """Write everything, unbuffered, whatever mode the descriptor is in; False where nobody reads it."""
    import select

    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            select.select([], [fd], [])
        except OSError:
            return False
    return True
