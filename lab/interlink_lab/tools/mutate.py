"""`just mutate`: seeds one bug at a time into a copy of the tree, and sees whether the tests find it.

    mutate [--only NAME|ID,...] [--jobs 2] [--total 1500] [--list]

The bugs are in tests/mutants/*.toml, each with the id of the requirement that it breaks:

    [[mutant]]
    name = "rename-before-sync"      # unique
    id = "T2"                        # the tests that carry this id have to find it
    file = "interlink/state/files.py"
    find = '''exact text, there once'''
    replace = '''what stands there instead'''
    tests = ["tests/state"]          # optional: look there only

Each runs in a copy with an environment of its own, whose interpreter finds the copied packages first and then
what is installed here; so do the programs that tests start. Tests that fail without the bug are an error, and
so is a bug that keeps the tests from being collected. Exit 0 when all were killed, 1 otherwise, 64 for wrong use.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import tomllib
import venv
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from interlink_lab.tools.repo import ROOT, fail, files
from interlink_lab.tools.spec import Parser, requirements

TOTAL_S = 1500
JOBS = 2
# A mutant's tests get this many times what they take without it, and some seconds, before they count as hanging.
SLOWER, EXTRA_S = 4, 30


@dataclass(frozen=True)
class Mutant:
    """One seeded bug, as its file says."""

    name: str
    id: str
    file: str
    find: str
    replace: str
    tests: tuple[str, ...] = ()

    @property
    def selection(self) -> tuple[str, ...]:
        """Arguments of pytest that choose the tests."""
        return ("--req", self.id, *self.tests)


@dataclass(frozen=True)
class Run:
    """One run of pytest. `code` None: it was ended because it took too long."""

    code: int | None
    output: str
    seconds: float

    @property
    def failed(self) -> str:
        """The first test that failed, "" when none is named."""
        for line in self.output.splitlines():
            if line.startswith(("FAILED ", "ERROR ")):
                return line.partition(" ")[2].partition(" - ")[0]
        return ""


def load(root: Path = ROOT) -> list[Mutant]:
    """All mutants, checked against the tree. Ends with 1 and one line for each that is wrong."""
    found: list[Mutant] = []
    wrong = []
    for path in sorted((root / "tests" / "mutants").glob("*.toml")):
        for row in tomllib.loads(path.read_text("utf-8")).get("mutant", []):
            try:
                mutant = Mutant(**{**row, "tests": tuple(row.get("tests", ()))})
            except TypeError as exc:
                wrong.append(f"{path.name}: {row.get('name', '?')}: {exc}")
                continue
            found.append(mutant)
            wrong += [f"{path.name}: {mutant.name}: {text}" for text in faults(mutant, root)]
    names = [mutant.name for mutant in found]
    wrong += [f"{name}: this name is there twice" for name in sorted({n for n in names if names.count(n) > 1})]
    if wrong:
        fail("mutate", "\nmutate: ".join(wrong))
    return found


def faults(mutant: Mutant, root: Path) -> list[str]:
    """What is wrong with a mutant before it runs."""
    if mutant.id not in requirements(root)[0]:
        return [f"no such id: {mutant.id}"]
    path = root / mutant.file
    if not path.is_file():
        return [f"{mutant.file} does not exist"]
    count = path.read_text("utf-8").count(mutant.find)
    if count != 1:
        return [f"its text is {count} times in {mutant.file}, not once"]
    return [] if mutant.find != mutant.replace else ["it changes nothing"]


@contextmanager
def copy(root: Path, mutant: Mutant | None) -> Iterator[Path]:
    """A copy of the tree with its environment, with the bug in it; removed at the end."""
    base = Path(tempfile.mkdtemp(prefix="mut-"))
    try:
        tree = base / "t"
        for path in files(root):
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / path, tree / path, follow_symlinks=False)
        if mutant is not None:
            target = tree / mutant.file
            target.write_text(target.read_text("utf-8").replace(mutant.find, mutant.replace), "utf-8")
        environment(tree)
        (base / "tmp").mkdir()
        yield tree
    finally:
        shutil.rmtree(base, ignore_errors=True)


def environment(tree: Path) -> None:
    """`tree/.venv`: the copied packages, then what is installed for this interpreter; and the programs."""
    folder = tree / ".venv"
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
    installed = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (site / "tree.pth").write_text("\n".join([str(tree), str(tree / "lab"), *installed]) + "\n")
    scripts = tomllib.loads((tree / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    for name, target in scripts.items():
        module, _, function = target.partition(":")
        path = folder / "bin" / name
        path.write_text(
            f"#!{folder / 'bin' / 'python'}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
        )
        path.chmod(0o755)


def pytest(tree: Path, selection: tuple[str, ...], limit_s: float) -> Run:
    """Run the chosen tests in a copy, in a process group that has ended when this returns."""
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST", "VIRTUAL_ENV"))}
    folder = tree / ".venv" / "bin"
    env = {
        **keep,
        "PATH": f"{folder}{os.pathsep}{keep.get('PATH', os.defpath)}",
        "TMPDIR": str(tree.parent / "tmp"),
    }
    python = str(folder / "python")
    start = time.monotonic()
    probe = subprocess.run(
        [python, "-I", "-c", "import interlink; print(interlink.__file__)"],
        env=env,
        capture_output=True,
        text=True,
    )
    if probe.returncode == 0 and not Path(probe.stdout.strip()).is_relative_to(tree):
        return Run(99, f"the copy is not what runs, but {probe.stdout}", 0)
    child = subprocess.Popen(
        [python, "-m", "pytest", "-x", "-p", "no:cacheprovider", *selection],
        cwd=tree,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = child.communicate(timeout=max(limit_s, 1))
        code: int | None = child.returncode
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        output, _ = child.communicate()
        code = None
    finally:
        try:
            os.killpg(child.pid, signal.SIGKILL)  # what a test left, and all of it when we are interrupted
        except ProcessLookupError:
            pass  # nothing was left
    return Run(code, output, time.monotonic() - start)


class Session:
    """All runs of one call."""

    def __init__(self, root: Path, total_s: float) -> None:
        self._root = root
        self._end = time.monotonic() + total_s
        self._print = threading.Lock()
        self._baselines: dict[tuple[str, ...], Run] = {}

    def left_s(self) -> float:
        return self._end - time.monotonic()

    def say(self, word: str, mutant: Mutant, text: str) -> None:
        with self._print:
            print(f"{word:<8} {mutant.id:<4} {mutant.name}  {text}", flush=True)

    def baseline(self, selection: tuple[str, ...]) -> None:
        """Run the chosen tests without a bug."""
        if self.left_s() > 0:
            with copy(self._root, None) as tree:
                self._baselines[selection] = pytest(tree, selection, self.left_s())

    def judge(self, mutant: Mutant) -> str:
        """Run one mutant; its verdict is killed, survived, error or skipped."""
        base = self._baselines.get(mutant.selection)
        if base is None or self.left_s() <= 0:
            self.say("skipped", mutant, "the time of this run is over")
            return "skipped"
        if base.code != 0:
            why = "no test carries this id" if base.code == 5 else f"its tests fail without it: {base.failed}"
            self.say("error", mutant, why if base.code is not None else "its tests did not end without it")
            if base.code not in (5, None):
                print(base.output[-3000:])
            return "error"
        limit = min(base.seconds * SLOWER + EXTRA_S, self.left_s())
        with copy(self._root, mutant) as tree:
            run = pytest(tree, mutant.selection, limit)
        if run.code == 1:
            self.say("killed", mutant, f"{run.seconds:.1f} s  {run.failed}")
        elif run.code is None:
            self.say("killed", mutant, f"its tests hung ({limit:.0f} s)")
        elif run.code == 0:
            self.say("SURVIVED", mutant, f"{run.seconds:.1f} s")
            return "survived"
        else:
            self.say("error", mutant, f"its tests do not start (pytest exit {run.code})")
            print(run.output[-3000:])
            return "error"
        return "killed"


def choose(mutants: list[Mutant], only: str) -> list[Mutant]:
    """Those whose name or id is in a comma-separated list; all of them for an empty one."""
    wanted = [one.strip() for one in only.split(",") if one.strip()]
    for one in wanted:
        if not any(one in (m.name, m.id) for m in mutants):
            fail("mutate", f"--only {one}: no mutant of this name or id (see --list)", 64)
    return [m for m in mutants if not wanted or m.name in wanted or m.id in wanted]


def main(argv: list[str] | None = None, root: Path = ROOT) -> int:
    parser = Parser(prog="mutate", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", metavar="NAME|ID,...", help="these alone")
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"runs at one time ({JOBS})")
    parser.add_argument("--total", type=float, default=TOTAL_S, help=f"seconds for all of it ({TOTAL_S})")
    parser.add_argument("--list", action="store_true", help="name the mutants and end")
    args: argparse.Namespace = parser.parse_args(argv)
    if args.jobs < 1 or args.total <= 0:
        parser.error("--jobs and --total have to be positive")
    chosen = choose(load(root), args.only)
    if args.list:
        print("\n".join(f"{m.id:<4} {m.name}  {m.file}" for m in chosen))
        return 0
    start = time.monotonic()
    session = Session(root, args.total)
    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(session.baseline, dict.fromkeys(m.selection for m in chosen)))
        verdicts = list(pool.map(session.judge, chosen))
    counts = {word: verdicts.count(word) for word in ("killed", "survived", "error", "skipped")}
    shown = ", ".join(f"{number} {word}" for word, number in counts.items())
    ids = len({m.id for m in chosen})
    print(f"mutate: {shown}; {len(chosen)} mutants of {ids} ids in {time.monotonic() - start:.0f}s")
    return 0 if counts["killed"] == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
