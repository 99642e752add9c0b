"""Fixtures and rules that hold for every test."""

from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from support import isolation, reqs

# Same examples on every run: a failure is a change of the code. `just fuzz` looks for new ones.
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True, max_examples=100)
hypothesis.settings.register_profile("fuzz", deadline=None, max_examples=3000)
hypothesis.settings.load_profile("suite")

_first = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    reqs.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_first] = isolation.begin()


def pytest_unconfigure(config: pytest.Config) -> None:
    if config.stash.get(_first, False):
        isolation.end()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    reqs.select(config, items)


@pytest.fixture(autouse=True)
def own_home() -> Iterator[str]:
    """HOME, XDG_STATE_HOME and XDG_CONFIG_HOME of this test alone; its children inherit them."""
    yield from isolation.one_home()


@pytest.fixture
def state_root(own_home: str) -> str:
    """The state root of this test, made, 0700: what `paths.state_root(os.environ)` answers."""
    root = Path(own_home) / "state" / "interlink"
    root.mkdir(mode=0o700, parents=True)
    return str(root)
