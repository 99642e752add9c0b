"""One relay for the tests of a module that need no special one: each test uses routes of its own."""

import itertools
from collections.abc import Callable, Iterator

import pytest
from support.relay import Client, RelayProcess

_numbers = itertools.count()


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    """A relay with the defaults."""
    with RelayProcess("--db", str(tmp_path_factory.mktemp("relay") / "queue.db")) as process:
        yield process


@pytest.fixture
def client(relay: RelayProcess) -> Iterator[Client]:
    """A connection to the module's relay."""
    found = relay.client
    yield found
    found.close()


@pytest.fixture
def route() -> str:
    """A recipient that no other test uses."""
    return f"KEY{next(_numbers)}#session-é"


@pytest.fixture
def run(tmp_path: object) -> Iterator[Callable[..., RelayProcess]]:
    """Starts relays with the given arguments, each on a queue of its own unless told otherwise; ends them all."""
    started: list[RelayProcess] = []

    def start(*args: str, **options: object) -> RelayProcess:
        if not {"--db", "--memory"} & set(args) and not options.pop("default_db", False):
            args = ("--db", f"{tmp_path}/relay{len(started)}/queue.db", *args)
        process = RelayProcess(*args, **options)  # type: ignore[arg-type]
        started.append(process)
        return process.start()

    yield start
    for process in started:
        process.kill()
