"""Runs one program in a process group of its own and leaves nothing behind (X6). Started by path, stdlib only.

    python -I -S supervise.py SECONDS PROGRAM ARG...

Our standard input is a pipe that the starter holds and never writes to: when it closes, because the starter
ended or was killed, the whole group is killed. Exit: the program's own code, 124 after SECONDS, 126 where it
cannot be started (its reason on standard error), 128 + n when a signal n ended it.
"""

import os
import select
import signal
import sys
import time

TIMED_OUT = 124
NOT_STARTED = 126
ORPHANED = 125


def run(seconds: float, argv: list[str]) -> int:
    """The exit code, see above."""
    wake_r, wake_w = os.pipe()
    os.set_blocking(wake_w, False)
    signal.set_wakeup_fd(wake_w)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    failed_r, failed_w = os.pipe()  # closed by a successful exec
    pid = os.fork()
    if pid == 0:
        _become(argv, failed_w)
    os.close(failed_w)
    reason = os.read(failed_r, 4096)
    if reason:
        os.waitpid(pid, 0)
        os.write(2, reason)
        return NOT_STARTED
    deadline = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            _kill_group(pid)  # what the program itself left behind
            return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        left = deadline - time.monotonic()
        ready, _, _ = select.select([0, wake_r], [], [], max(0.0, left))
        if wake_r in ready:
            os.read(wake_r, 64)
        gone = 0 in ready and os.read(0, 1) == b""
        if gone or left <= 0:
            _kill_group(pid)
            os.waitpid(pid, 0)
            return ORPHANED if gone else TIMED_OUT


def _become(argv: list[str], failed_w: int) -> None:
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.execvp(argv[0], argv)
    except OSError as exc:
        os.write(failed_w, f"{argv[0]}: {os.strerror(exc.errno or 0)}".encode())
    os._exit(NOT_STARTED)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # nobody of the group is left


if __name__ == "__main__":
    try:
        os.setpgid(0, 0)  # a Ctrl-C at the host must not end us before the group
    except PermissionError:
        pass
    os._exit(run(float(sys.argv[1]), sys.argv[2:]))
