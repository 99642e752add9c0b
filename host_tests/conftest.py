"""What the host tests share: what may be missing, where the programs are, that nothing is left, and a table."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import isolation, reqs
from support.forks import forks

from host_tests import leftovers, reporting
from host_tests.claude_scene import World, scene
from host_tests.peer import MAKES, relay
from interlink_lab.programs import Relay
from interlink_lab.tools import hosts

TEST_S = 600
_first = pytest.StashKey[bool]()
_running: list[pytest.Item] = []  # the test that is set up, run or torn down in this process


def pytest_addoption(parser: pytest.Parser) -> None:
    reqs.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_first] = isolation.begin()


def pytest_unconfigure(config: pytest.Config) -> None:
    if config.stash.get(_first, False):
        isolation.end()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    reqs.select(config, items)
    for item in items:  # several programs start in one test: a guard against hangs, never a measure
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_S))


def pytest_sessionstart(session: pytest.Session) -> None:
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(session.config, "workerinput"):
        for line in reporting.programs(session.config.rootpath):
            terminal.write_line(line)


def pytest_runtest_setup(item: pytest.Item) -> None:
    _running[:] = [item]
    forks()  # lives as long as the run: started before the test has its own home


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    stats = terminalreporter.stats
    pairs = (("passed", "passed"), ("failed", "failed"), ("error", "failed"), ("skipped", "skipped"))
    found = [(outcome, report) for key, outcome in pairs for report in stats.get(key, [])]
    of_tests = [(outcome, report) for outcome, report in found if isinstance(report, pytest.TestReport)]
    for line in (*reporting.measures(of_tests), *reporting.table(of_tests)):
        terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def own_home() -> Iterator[str]:
    """HOME, XDG_STATE_HOME and XDG_CONFIG_HOME of this test alone, removed at its end."""
    yield from isolation.one_home()


@pytest.fixture(autouse=True)
def nothing_left(own_home: str) -> Iterator[None]:
    """A process with this test's home in its environment that outlives the test is killed: a failure."""
    yield
    left = leftovers.end(own_home)
    assert not left, f"left running by this test: {left}"


@pytest.fixture(params=hosts.known()["claude"][1])
def claude(request: pytest.FixtureRequest, host: Callable[[str, str], Path]) -> Path:
    """The program of each pinned Claude Code."""
    return host("claude", request.param)


@pytest.fixture(params=hosts.known()["codex"][1])
def program(request: pytest.FixtureRequest, host: Callable[[str, str], Path]) -> Path:
    """The program of each pinned Codex."""
    return host("codex", request.param)


@pytest.fixture
def world(own_home: str) -> Iterator[World]:
    """Claude's scene (see `claude_scene`), below the test's own home."""
    with scene(Path(own_home) / "scene") as found:
        yield found


@pytest.fixture(params=MAKES)
def bus(request: pytest.FixtureRequest, tmp_path: Path, peer: Callable[[], Path]) -> Iterator[Relay]:
    """A relay of each make."""
    one = relay(tmp_path / "relay", request.param, peer())
    one.start()
    yield one
    one.stop()


@pytest.fixture
def measured() -> Callable[[str], None]:
    """`measured("what: 1.2 s")`: a line for the end of the run."""

    def keep(text: str) -> None:
        for item in _running:
            item.user_properties.append((reporting.MEASURED, text))

    return keep


def _uses(what: str) -> None:
    for item in _running:
        item.user_properties.append((reporting.PROPERTY, what))


def _need(what: str, present: bool, how: str) -> None:
    _uses(what)
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


@pytest.fixture(scope="session")
def peer() -> Callable[[], Path]:
    """`peer()`: the folder with the programs of the peer of another make."""

    def find() -> Path:
        folder = hosts.peer()
        version = hosts.known()[hosts.PEER][1][-1]
        _need(f"{hosts.PEER} {version}", folder is not None, "run ./dev hosts-install peer")
        assert folder is not None
        return folder

    return find


if sys.platform == "win32":
    collect_ignore_glob = ["*"]  # containers and the hosts' Unix sockets
