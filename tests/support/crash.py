"""Ends a process at every one of its file operations, and shows what is on disk afterwards.

    for crash in crashes(tmp_path, ACT, prepare=lambda root: ...):
        assert read(crash.root) in (OLD, NEW), crash

`ACT` is Python source that sees `root`, a folder which `prepare` has filled. It runs in a forked child
whose `os.open`, `os.write`, `os.fsync`, `os.replace` and so on are counted. A first run records the calls;
then, for each call, one child ends (`os._exit`) before it, one after it, and for a write one in the
middle. With `how=("fail",)` the call raises OSError instead and the child goes on.

This is a process kill: what the kernel took stays. `unsynced(steps)` judges the power cut: it names what
a recorded run left without a sync, or renamed before its sync.

Linux and other systems with fork. Calls outside `root` do not count.
"""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

CRASH = 86  # exit code of a child that ended where it was told to
HOWS = ("before", "after", "torn")


@dataclass(frozen=True)
class Step:
    """One counted call: its name, the paths it touched, whether it made a new directory entry."""

    name: str
    paths: tuple[str, ...]
    new: bool = False

    def __str__(self) -> str:
        return f"os.{self.name}({', '.join(self.paths)})"


@dataclass(frozen=True)
class Crash:
    """The state after one child. `how`: before, after, torn, fail, or done for the undisturbed run."""

    how: str
    at: int
    step: Step | None
    root: str
    steps: tuple[Step, ...]
    error: str | None = None  # with "fail": "Type: text" of what came out of ACT, None when it swallowed it

    def __str__(self) -> str:
        return f"{self.how} call {self.at} of {len(self.steps)}, {self.step}" if self.step else "undisturbed"


def crashes(
    folder: Path,
    act: str,
    *,
    prepare: Callable[[str], None] = lambda root: None,
    setup: str = "",
    how: Sequence[str] = HOWS,
    code: int = errno.ENOSPC,
) -> Iterator[Crash]:
    """One Crash for each call and each `how`, then the undisturbed run (`how` "done") as the last.

    `setup` is source that runs once, before any fork (imports); its names are seen by `act`. `code` is
    the errno of "fail". AssertionError when `act` raises undisturbed, or does not repeat its calls.
    """
    with _Driver(setup, act, folder) as driver:
        steps = tuple(driver.record(_fresh(folder, "record", prepare)))
        assert steps, "the act makes no file operation below its root: nothing to crash"
        for at, step in enumerate(steps, 1):
            for one in how:
                if one == "torn" and step.name not in ("write", "pwrite"):
                    continue
                root = _fresh(folder, f"{at}-{one}", prepare)
                answer = driver.run(root, at, one, code)
                reached = answer["code"] == CRASH if one != "fail" else answer["failed"]
                assert reached, f"call {at} ({step}) was not reached again: {answer}"
                error = answer["error"]
                yield Crash(one, at, step, root, steps, None if error is None else str(error))
        yield Crash("done", 0, None, os.path.realpath(folder / "record"), steps)


def _fresh(folder: Path, name: str, prepare: Callable[[str], None]) -> str:
    root = folder / name
    root.mkdir(mode=0o700)
    real = os.path.realpath(root)  # as the kernel names what is open
    prepare(real)
    return real


def unsynced(steps: Sequence[Step], *, ignore: Sequence[str] = (".lock",)) -> list[str]:
    """What a power cut after these steps may take away, as sentences; empty when all is durable.

    Paths that end in one of `ignore` may be lost.
    """
    data: set[str] = set()  # files with bytes that were not synced
    entries: dict[str, set[str]] = {}  # folder -> names made or renamed in it since its last sync
    found = []

    def entry(path: str) -> None:
        entries.setdefault(os.path.dirname(path), set()).add(path)

    for step in steps:
        first = step.paths[0]
        if step.name in ("write", "pwrite", "writev", "ftruncate", "truncate"):
            data.add(first)
        elif step.name in ("fsync", "fdatasync"):
            data.discard(first)
            entries.pop(first, None)
        elif step.name in ("replace", "rename", "link"):
            if first in data and not first.endswith(tuple(ignore)):
                found.append(f"{first} was renamed before its bytes were synced")
            data.discard(first)
            entry(step.paths[-1])
        elif step.new or step.name in ("unlink", "remove"):
            entry(first)
    kept = [path for path in sorted(data) if not path.endswith(tuple(ignore))]
    found += [f"the bytes of {path} were not synced" for path in kept]
    for folder, paths in sorted(entries.items()):
        found += [f"{folder} was not synced after {p}" for p in sorted(paths) if not p.endswith(tuple(ignore))]
    return found


class _Driver:
    """A child that has done the setup once and forks for each run."""

    def __init__(self, setup: str, act: str, folder: Path) -> None:
        self._errors = folder / "stderr"
        with self._errors.open("wb") as stderr:
            self._child = subprocess.Popen(
                [sys.executable, os.path.abspath(__file__)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        self._ask({"setup": setup, "act": act})

    def __enter__(self) -> "_Driver":
        return self

    def __exit__(self, *_exc: object) -> None:
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.close()
        self._child.wait()
        self._child.stdout.close()

    def _ask(self, question: dict[str, object]) -> dict[str, object]:
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.write(json.dumps(question) + "\n")
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        assert line, f"the crash driver ended: {self._errors.read_text()}"
        answer: dict[str, object] = json.loads(line)
        return answer

    def record(self, root: str) -> list[Step]:
        answer = self._ask({"root": root, "at": 0, "how": "done", "code": 0})
        assert answer["code"] == 0, f"the act failed undisturbed: {answer['error']}\n{self._errors.read_text()}"
        calls = answer["calls"]
        assert isinstance(calls, list)
        return [Step(name, tuple(paths), new) for name, paths, new in calls]

    def run(self, root: str, at: int, how: str, code: int) -> dict[str, object]:
        return self._ask({"root": root, "at": at, "how": how, "code": code})


# --- below: what runs inside the child -------------------------------------------------------------

_BY_FD = ("write", "pwrite", "writev", "fsync", "fdatasync", "ftruncate", "fchmod")
_BY_PATH = (
    "open",
    "replace",
    "rename",
    "unlink",
    "remove",
    "mkdir",
    "rmdir",
    "truncate",
    "chmod",
    "link",
    "symlink",
)


def _patch(root: str, at: int, how: str, code: int, calls: list[tuple[str, list[str], bool]]) -> None:
    """Replace the counted functions of `os` in this process."""

    def wrapped(name: str) -> Callable[..., object]:
        real = getattr(os, name)

        def call(*args: object, **kwargs: object) -> object:
            paths = _touched(name, args)
            if not any(p == root or p.startswith(root + os.sep) for p in paths):
                return real(*args, **kwargs)
            new = name in ("open", "mkdir", "symlink") and not os.path.lexists(paths[-1])
            number = len(calls) + 1
            if number == at and how == "before":
                os._exit(CRASH)
            if number == at and how == "torn":
                data = memoryview(args[1])  # type: ignore[arg-type]
                real(args[0], data[: len(data) // 2], *args[2:])
                os._exit(CRASH)
            calls.append((name, paths, new))
            if number == at and how == "fail":
                raise OSError(code, os.strerror(code), paths[0])
            try:
                result = real(*args, **kwargs)
            finally:  # also after a call that fails by itself, such as the open of a missing file
                if number == at and how == "after":
                    os._exit(CRASH)
            calls[number - 1] = (name, paths, new and os.path.lexists(paths[-1]))
            return result

        return call

    for name in _BY_FD + _BY_PATH:
        if hasattr(os, name):
            setattr(os, name, wrapped(name))


def _touched(name: str, args: tuple[object, ...]) -> list[str]:
    if name in _BY_FD or isinstance(args[0], int):
        try:
            return [os.readlink(f"/proc/self/fd/{args[0]}")]
        except OSError:
            return [f"fd {args[0]}"]
    wanted = 2 if name in ("replace", "rename", "link", "symlink") else 1
    return [os.path.abspath(os.fsdecode(a)) for a in args[:wanted] if isinstance(a, (str, bytes, os.PathLike))]


def _forked(names: dict[str, object], act: str, question: dict[str, object], reply: int) -> None:
    """In the fork: run the act, send the answer through the pipe `reply`, end."""
    os.dup2(2, 1)
    calls: list[tuple[str, list[str], bool]] = []
    send, real_exit, error = os.write, os._exit, None
    root, at, how, code = (question[k] for k in ("root", "at", "how", "code"))
    assert isinstance(root, str) and isinstance(at, int) and isinstance(how, str) and isinstance(code, int)
    _patch(root, at, how, code, calls)
    try:
        exec(compile(act, "<act>", "exec"), {**names, "root": root})
    except BaseException as exc:  # noqa: BLE001 - whatever the act raises is its result
        error = f"{type(exc).__name__}: {exc}"
    failed = len(calls) >= at > 0
    send(
        reply,
        json.dumps({"code": int(error is not None), "error": error, "calls": calls, "failed": failed}).encode(),
    )
    real_exit(0)


def _main() -> None:
    first = json.loads(sys.stdin.readline())
    names: dict[str, object] = {}
    exec(compile(first["setup"], "<setup>", "exec"), names)
    print("{}", flush=True)
    for line in sys.stdin:
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read_end)
            _forked(names, first["act"], json.loads(line), write_end)
        os.close(write_end)
        with open(read_end, "rb") as pipe:
            answer = pipe.read()
        _pid, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        print(answer.decode() or json.dumps({"code": code, "error": None, "failed": False}), flush=True)


if __name__ == "__main__":
    _main()
