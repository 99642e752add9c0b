"""What must not be left behind: processes of the run, and locks that nobody holds any more."""

import fcntl
import os
from pathlib import Path
from typing import Any


def processes(variable: str, value: str, without: set[int]) -> list[dict[str, Any]]:
    """Processes whose environment marks them as of this run (Linux)."""
    marked = f"{variable}={value}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in without:
            continue
        try:
            if marked not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            state_now = state(int(entry.name))
            argv = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue  # it ended while we looked
        if state_now not in ("Z", ""):
            found.append({"pid": int(entry.name), "argv": argv[:200]})
    return found


def state(pid: int) -> str:
    """The kernel's letter for what a process does (R, S, T, Z ...); "" where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    except OSError:
        return ""


def held_locks(root: Path) -> list[str]:
    """Lock files below a state root that somebody holds. For after the end: each is taken for a moment."""
    held = []
    for path in sorted(root.rglob("*lock")):
        if not path.is_file():
            continue
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held.append(str(path.relative_to(root)))
        finally:
            os.close(fd)
    return held
