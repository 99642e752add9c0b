"""Several scenarios at a time, each an `interlink-lab run` of its own, told when it has ended."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace

from rich.console import Console
from rich.markup import escape

from interlink_lab.verdict import Verdict

CLOSING = " passed in "
JOBS_MAX = 4  # more than that gains nothing, and late looks at files tell less


def default_jobs() -> int:
    """A scenario waits more than it works: two for each core."""
    return min(JOBS_MAX, 2 * (os.cpu_count() or 1))


def run_many(
    console: Console, asked: Sequence[Verdict], more: Sequence[str], jobs: int, told: Callable[[Verdict], None]
) -> list[Verdict]:
    """Run what these verdicts, which are none yet, ask for, `jobs` at a time, each with `more` arguments.

    `told` gets each verdict as it comes. A signal ends all of them in order.
    """
    running: list[tuple[str, subprocess.Popen[str]]] = []
    verdicts: list[Verdict] = []

    def run(one: Verdict) -> tuple[Verdict, str]:
        argv = [sys.executable, "-m", "interlink_lab.cli", "run", *one.arguments, "--json", *more]
        pipe = subprocess.PIPE
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True) as process:
            running.append((one.scenario, process))
            said, words = process.communicate()
        running.remove((one.scenario, process))
        return _ended(one, said, words)

    with ThreadPoolExecutor(jobs) as pool, console.status("starting") as status:
        left: set[Future[tuple[Verdict, str]]] = {pool.submit(run, one) for one in asked}
        try:
            while left:
                ended, left = wait(left, timeout=0.5, return_when=FIRST_COMPLETED)
                for each in ended:
                    verdict, words = each.result()
                    verdicts.append(verdict)
                    console.print(escape(words), end="", soft_wrap=True)
                    told(verdict)
                names = ", ".join(sorted(name for name, _ in running))
                status.update(escape(f"{len(verdicts)} of {len(asked)} done; {names}"))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for _, process in running:
                process.send_signal(signal.SIGINT)
            raise
    return verdicts


def _ended(asked: Verdict, said: str, words: str) -> tuple[Verdict, str]:
    """The verdict that a run printed, and its words without the closing line, of which there is one for all."""
    lines = words.splitlines(keepends=True)
    if lines and CLOSING in lines[-1]:
        words = "".join(lines[:-1])
    try:
        return Verdict.of(json.loads(said)), words
    except ValueError:
        error = f"ended without a verdict: {words.strip()[-300:]}"
        return replace(asked, result="broken", error=error), f"BROKEN {asked.scenario}\n{words}"
