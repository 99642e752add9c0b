"""Waiting at no cost: directory notification where the system has it, a cheap look every few ms elsewhere.

Signals that end the listener end it at once with exit 0 (nothing is half done at any such moment), except
between the flush of a notice and the exit, where `hold_ending_signals` keeps them out.
"""

import os
import signal
import time
from collections.abc import Callable

from interlink.errors import EXIT_OK

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)]


def _end(_number: int, _frame: object) -> None:
    os._exit(EXIT_OK)


def exit_on_ending_signals() -> None:
    """SIGTERM, SIGINT and SIGHUP: exit 0, nothing consumed (F1)."""
    for number in _ENDING:
        signal.signal(number, _end)


def hold_ending_signals() -> None:
    """From here to the exit no signal may part the notice's flush from its cursor commit and exit code."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)


class Watch:
    """Changes in one directory. `wait` may return early for no reason, and always returns in time."""

    def __init__(self, stat_s: float) -> None:
        self._stat_s = stat_s
        self._fd = -1

    @property
    def notified(self) -> bool:
        """True where the kernel tells us of changes, False where we have to look ourselves."""
        return self._fd >= 0

    def arm(self, folder: str) -> None:
        """Watch this directory from now on. A change between `arm` and `wait` ends the `wait` at once."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if not (hasattr(fcntl, "F_NOTIFY") and hasattr(signal, "sigtimedwait")):
            return
        # Blocked, not handled: unblocked SIGIO would end the process.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.fcntl(
                fd, fcntl.F_NOTIFY, fcntl.DN_MODIFY | fcntl.DN_CREATE | fcntl.DN_RENAME | fcntl.DN_MULTISHOT
            )
        except OSError:
            os.close(fd)  # this file system or kernel does not notify: look instead
            return
        self._fd = fd

    def wait(self, timeout_s: float, changed: Callable[[], bool]) -> None:
        """Return after a change in the directory, or after at most `timeout_s` seconds.

        `changed` is asked only where the system does not notify.
        """
        if self._fd >= 0:
            signal.sigtimedwait([signal.SIGIO], max(0.0, timeout_s))
            return
        end = time.monotonic() + timeout_s
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, self._stat_s))
            if changed():
                return
