"""Steps that a process under test traces into a file."""

import time
from pathlib import Path

from support.mcp_client import GUARD_S


class Steps:
    """What another process has done so far: it appends one line at each step."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "trace"

    def all(self) -> list[str]:
        """The steps up to now."""
        return self.path.read_text().split("\n")[:-1] if self.path.exists() else []

    def wait_for(self, step: str) -> None:
        """Returns once this step is done. AssertionError after GUARD_S."""
        until = time.monotonic() + GUARD_S
        while step not in self.all():
            assert time.monotonic() < until, f"{step!r} did not come: {self.all()}"
            time.sleep(0.01)
