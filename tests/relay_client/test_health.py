"""When a relay counts as down, and which lines of it are logged."""

import pytest

from interlink.errors import RelayError
from interlink.relay.answers import Unreachable
from interlink.relay.health import Health

URL = "http://relay"


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line.partition(" event=")[2] for line in capsys.readouterr().err.splitlines()]


@pytest.mark.req("M17")
def test_each_reason_is_told_once_however_often_and_in_whatever_turn_it_comes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    health = Health(URL, 0)
    for n in range(50):
        health.failed("poll", RelayError("odd" if n % 2 else "even"), n)
    assert [line.split("error=")[1] for line in lines(capsys)] == ["even", "odd"]
    for n in range(50):
        health.failed("poll", RelayError(f"made up {n}"), n)
    assert len(lines(capsys)) == 6, "no more than eight reasons of one time of trouble"
    health.ok("poll", 100)
    health.ok("poll", 101)
    assert lines(capsys) == [f"relay_up url={URL} op=poll"]
    health.failed("poll", RelayError("even"), 102)
    assert len(lines(capsys)) == 1, "told again after it was up"


@pytest.mark.req("M17")
def test_a_relay_is_down_while_any_of_its_steady_calls_fails() -> None:
    health = Health(URL, 5)
    assert (health.up, health.since_ms, health.error) == (None, 5, "")
    health.ok("announce", 10)
    assert (health.up, health.since_ms) == (True, 10)
    health.failed("poll", RelayError("p"), 20)
    health.failed("send", RelayError("s"), 30)
    assert (health.up, health.since_ms, health.error) == (False, 20, "p; s")
    health.ok("poll", 40)
    assert (health.up, health.since_ms, health.error) == (False, 20, "s")
    health.ok("send", 50)
    assert (health.up, health.since_ms, health.error) == (True, 50, "")


def test_a_roster_alone_makes_no_relay_down() -> None:
    health = Health(URL, 0)
    health.ok("poll", 1)
    health.failed("roster", RelayError("r"), 2)
    assert (health.up, health.since_ms, health.error, health.failing("roster")) == (True, 1, "", True)


def test_any_answer_ends_the_troubles_of_reaching_it_and_no_other() -> None:
    health = Health(URL, 0)
    health.failed("poll", Unreachable("away"), 1)
    health.failed("announce", RelayError("a"), 1)
    health.ok("send", 2)
    assert (health.up, health.error) == (False, "a")
    health.ok("announce", 3)
    assert (health.up, health.error) == (True, "")
