"""What the host tests share: what may be missing, and where the real programs are."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import isolation, reqs

from interlink_lab.tools import hosts

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


def _need(what: str, present: bool, how: str) -> None:
    if present:
        return
    text = f"{what} is missing: {how}"
    if os.environ.get("INTERLINK_REQUIRE_HOSTS") == "1":
        pytest.fail(text)
    pytest.skip(text)


@pytest.fixture(scope="session")
def need() -> Callable[[str, bool, str], None]:
    """`need(what, present, how)`: go on, skip, or with INTERLINK_REQUIRE_HOSTS=1 fail."""
    return _need


@pytest.fixture(scope="session")
def host() -> Callable[[str, str], Path]:
    """`host(name, version)`: the path of a real host's program."""

    def find(name: str, version: str) -> Path:
        path = hosts.program(name, version)
        _need(f"{name} {version}", path.is_file(), "run ./dev hosts-install")
        return path

    return find


if sys.platform == "win32":
    collect_ignore_glob = ["*"]  # containers and the hosts' Unix sockets
