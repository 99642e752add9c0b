"""Requirement ids on tests: `--req ID[,ID]` selects by id; a wrong mark is an error before anything runs.

`tests/conftest.py` and `host_tests/conftest.py` share these functions.
"""

import re

import pytest

# How many ids each letter has; docs/spec.toml has one row for each of them.
COUNTS = {"G": 8, "M": 31, "S": 3, "C": 11, "N": 3, "X": 6, "L": 3, "T": 6, "B": 7, "V": 3, "H": 21}
MAX_IDS = 3
_ID = re.compile(r"([A-Z])([1-9][0-9]?)")


def is_id(text: object) -> bool:
    """True for an id that exists, such as M4."""
    found = _ID.fullmatch(text) if isinstance(text, str) else None
    return found is not None and int(found[2]) <= COUNTS.get(found[1], 0)


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
