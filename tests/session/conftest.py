"""A world of hosts for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    try:
        yield made
    finally:
        made.close()
