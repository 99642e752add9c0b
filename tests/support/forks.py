"""`interlink` processes that are forked from one which has loaded it: a start costs 10 ms instead of 150.

Each run is a process of its own, with its own environment, arguments and standard streams, that ends through
`main` and its exit code. What belongs to the start of an interpreter (locale, standard streams that are closed)
is tested with a fresh one: `subprocess.run(program("interlink"))`.
"""

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence

_PARENT = """
import gc, importlib, io, json, os, sys
import interlink.cli.main as program
for module, _ in program.COMMANDS.values():
    importlib.import_module(module)
gc.freeze()

def child(ask):
    flags = (os.O_RDONLY, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number, (path, flag) in enumerate(zip(ask["files"], flags)):
        fd = os.open(path, flag, 0o600)
        os.dup2(fd, number)
        os.close(fd)
    sys.stdin, sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.open(n, mode, closefd=False), encoding="utf-8", errors="surrogateescape")
        for n, mode in ((0, "rb"), (1, "wb"), (2, "wb"))
    )
    os.environ.clear()
    os.environ.update(ask["env"])
    os.chdir(ask["cwd"])
    os.umask(ask["umask"])
    sys.argv = ["interlink", *ask["args"]]
    code = 99
    try:
        program.main()
    except SystemExit as exc:
        code = exc.code or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

asks = io.open(int(sys.argv[1]), "rb")
answers = int(sys.argv[2])
for line in asks:
    pid = os.fork()
    if pid == 0:
        try:
            child(json.loads(line))
        finally:
            os._exit(98)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.write(answers, b"%d\\n" % code)
"""


class Forks:
    """One loaded parent. `run` from any thread, one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        ask_read, ask_write = os.pipe()
        answer_read, answer_write = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PARENT, str(ask_read), str(answer_write)],
            stdin=subprocess.DEVNULL,
            pass_fds=(ask_read, answer_write),
        )
        os.close(ask_read)
        os.close(answer_write)
        self._asks = open(ask_write, "wb", buffering=0)
        self._answers = open(answer_read, "rb")

    def run(self, args: Sequence[str], stdin: bytes, environ: Mapping[str, str]) -> tuple[int, bytes, bytes]:
        """Exit code, standard output, standard error."""
        with self._lock, tempfile.TemporaryDirectory(dir="/tmp") as folder:
            paths = [os.path.join(folder, name) for name in ("in", "out", "err")]
            with open(paths[0], "wb") as file:
                file.write(stdin)
            umask = os.umask(0)
            os.umask(umask)
            ask = {"args": list(args), "files": paths, "env": dict(environ), "cwd": os.getcwd(), "umask": umask}
            self._asks.write(json.dumps(ask).encode("ascii") + b"\n")
            answer = self._answers.readline()
            assert answer, "the parent of the forks ended"
            out, err = (_read(path) for path in paths[1:])
            return int(answer), out, err

    def close(self) -> None:
        """End the parent."""
        self._asks.close()
        self._process.wait()
        self._answers.close()


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


_forks: list[Forks] = []


def forks() -> Forks:
    """The one of this test process."""
    if not _forks:
        _forks.append(Forks())
        atexit.register(_forks[0].close)
    return _forks[0]
