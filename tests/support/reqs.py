"""Requirement ids on tests: `--req ID[,ID]` selects by id; a wrong mark is an error before anything runs.

`tests/conftest.py` and `host_tests/conftest.py` share these functions.
"""

import functools

import pytest

from interlink_lab.tools.spec import requirements

MAX_IDS = 3


@functools.cache
def known() -> frozenset[str]:
    """Every id that docs/spec.toml has a row for."""
    return frozenset(requirements()[0])


def is_id(text: object) -> bool:
    """True for an id that exists, such as M4."""
    return isinstance(text, str) and text in known()


def ids_of(item: pytest.Item) -> set[str]:
    """The ids that a collected test carries, also through its class and its module."""
    return {str(one) for mark in item.iter_markers("req") for one in mark.args}


def add_option(parser: pytest.Parser) -> None:
    """Add `--req`, once for the whole run."""
    try:
        parser.addoption(
            "--req",
            action="append",
            default=[],
            metavar="ID[,ID]",
            help="run only tests that carry one of these ids",
        )
    except ValueError:
        return  # the other folder's conftest has added it


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Check every mark (pytest.UsageError names the test), then keep the tests that `--req` asks for."""
    for item in items:
        found = ids_of(item)
        if wrong := sorted(one for one in found if not is_id(one)):
            raise pytest.UsageError(f"{item.nodeid}: no such requirement: {', '.join(wrong)}")
        if len(found) > MAX_IDS:
            raise pytest.UsageError(f"{item.nodeid}: {len(found)} requirement ids, {MAX_IDS} at most")
    wanted = {one.strip() for group in config.getoption("--req") for one in group.split(",") if one.strip()}
    if unknown := sorted(one for one in wanted if not is_id(one)):
        raise pytest.UsageError(f"--req: no such requirement: {', '.join(unknown)}")
    if wanted:
        kept = [item for item in items if ids_of(item) & wanted]
        config.hook.pytest_deselected(items=[item for item in items if not ids_of(item) & wanted])
        items[:] = kept
