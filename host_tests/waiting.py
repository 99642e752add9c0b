"""Waiting for what other programs do."""

import time
from collections.abc import Callable
from typing import Any

GUARD_S = 120.0  # against hangs, never a measure


def until(condition: Callable[[], Any], what: str) -> Any:
    """What the condition gives once it gives something. AssertionError after GUARD_S."""
    end = time.monotonic() + GUARD_S
    while not (found := condition()):
        assert time.monotonic() < end, f"still waiting for: {what}"
        time.sleep(0.02)
    return found
