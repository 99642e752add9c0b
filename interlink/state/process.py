"""Which process is it, and does it still live: pid, start time and boot id, so that a reused pid fools nobody.

Linux reads /proc; elsewhere the start time is unknown ("-") and a process lives while kill(pid, 0) finds it.
Light on purpose: the listener imports this file.
"""

import os

UNKNOWN = "-"
BOOT_CHARS = 8
_boot: list[str] = []


def boot_id() -> str:
    """This boot's id, as the kernel names it; "" where there is none."""
    if not _boot:
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as f:
                _boot.append(f.read().strip())
        except OSError:
            _boot.append("")
    return _boot[0]


def short_boot_id() -> str:
    """First 8 hex digits of the boot id, for file names; zeros where there is none."""
    return boot_id()[:BOOT_CHARS] or "0" * BOOT_CHARS


def start_time(pid: int) -> str | None:
    """Clock ticks after boot at which a process started; "-" where the system does not say.

    None: no such process, or one that has ended and was not reaped yet.
    """
    fields = _stat_fields(pid)
    if fields is not None:
        return None if fields[0] in ("Z", "X") else fields[19]
    if os.path.exists("/proc/self/stat"):
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return UNKNOWN  # not ours to signal, so it lives
    return UNKNOWN


def parent_of(pid: int) -> int | None:
    """The parent's pid, None where it cannot be known."""
    fields = _stat_fields(pid)
    return None if fields is None else int(fields[1])


def command_line(pid: int) -> list[str] | None:
    """The arguments that a process was started with, None where they cannot be read."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            data = f.read()
    except OSError:
        return None
    return [part.decode("utf-8", "replace") for part in data.split(b"\0")[:-1]] or None


def _stat_fields(pid: int) -> list[str] | None:
    # Fields from the third on (state); the second, the name, may hold spaces and brackets.
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            return f.read().rpartition(b")")[2].decode("ascii").split()
    except OSError:
        return None


class Process:
    """One process, identified beyond the reuse of its pid. `text` and `parse` are its one-line form."""

    __slots__ = ("boot", "pid", "start")

    def __init__(self, pid: int, start: str, boot: str) -> None:
        self.pid = pid
        self.start = start
        self.boot = boot

    @classmethod
    def of(cls, pid: int) -> "Process | None":
        """The process that has this pid now, None where there is none."""
        start = start_time(pid) if pid > 0 else None
        return None if start is None else cls(pid, start, short_boot_id())

    @classmethod
    def me(cls) -> "Process":
        """This process."""
        pid = os.getpid()
        return cls(pid, start_time(pid) or UNKNOWN, short_boot_id())

    @classmethod
    def parse(cls, text: str) -> "Process | None":
        """From `text`'s form; None for anything else."""
        parts = text.split("-", 2)
        if len(parts) != 3 or not (parts[1].isascii() and parts[1].isdigit() and parts[0] and parts[2]):
            return None
        if len(text) > 64 or "/" in text:
            return None
        return cls(int(parts[1]), parts[2], parts[0])

    @property
    def text(self) -> str:
        """`<boot id>-<pid>-<start time>`: fit for a file name."""
        return f"{self.boot}-{self.pid}-{self.start}"

    def alive(self) -> bool:
        """True while this very process runs (one that ended and is not reaped does not)."""
        if self.boot != short_boot_id():
            return False
        start = start_time(self.pid)
        return start is not None and (start == self.start or UNKNOWN in (start, self.start))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Process) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Process({self.text})"
