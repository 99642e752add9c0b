"""The checkout that these tools work on."""

import subprocess
import sys
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[3]


def fail(tool: str, text: str, code: int = 1) -> NoReturn:
    """End the tool with one clear line on stderr; 1 for a fault, 64 for wrong use."""
    print(f"{tool}: {text}", file=sys.stderr)
    sys.exit(code)


def files(root: Path = ROOT) -> list[Path]:
    """Files that git holds or would take, relative to `root`, sorted. RuntimeError outside a checkout."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root, capture_output=True
    )
    if done.returncode:
        raise RuntimeError(f"git ls-files failed in {root}: {done.stderr.decode(errors='replace').strip()}")
    found = {Path(name.decode()) for name in done.stdout.split(b"\0") if name}
    return sorted(path for path in found if (root / path).is_file())
