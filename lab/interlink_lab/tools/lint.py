"""`just lint`: all checks, each by its name, and one closing line. Exit 1 when one of them complains."""

import subprocess
import sys
import time

from interlink_lab.tools.repo import ROOT

CHECKS = {
    "ruff check": ["ruff", "check", "--quiet", "."],
    "ruff format": ["ruff", "format", "--check", "--quiet", "."],
    "mypy": ["mypy", "--no-error-summary"],
    "floors": ["interlink_lab.tools.floors"],
    "hygiene": ["interlink_lab.tools.hygiene"],
}


def main() -> None:
    start = time.monotonic()
    failed = []
    for name, command in CHECKS.items():
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        print(f"{'ok  ' if done.returncode == 0 else 'FAIL'} {name}", flush=True)
        if done.returncode:
            failed.append(name)
            print(done.stdout.rstrip())
    seconds = time.monotonic() - start
    print(f"lint: {len(CHECKS) - len(failed)} passed, {len(failed)} failed in {seconds:.1f}s")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
