"""Before the host's hook timeout the listener asks to be started anew (C4)."""

import sys

import pytest
from support.listener import cursor, host, notice, of, put, wait_once, waiting

from interlink.settings import Settings

# The listener with its clock and its waiting replaced: each wait passes as much time as it was asked for.
PAUSED = """
import os, sys
from interlink.listener import main, watch
from interlink.listener.loop import Listener
from interlink.settings import load
from interlink.state.paths import Layout, state_root

class Passing:
    def __init__(self): self.now = 1000.0
    def arm(self, folder): pass
    def wait(self, timeout_s, changed):
        assert timeout_s > 0, timeout_s
        self.now += timeout_s

clock = Passing()
one = Listener(Layout(state_root(os.environ)), load(os.environ), os.environ, session="s1",
               renew_after_s=main.parse(sys.argv[1:]).renew_after_s, now=lambda: clock.now, watch=clock)
code = one.run()
os.write(1, str(clock.now - 1000.0).encode())
os._exit(code)
"""


@pytest.mark.req("C4", "V1")
@pytest.mark.parametrize(
    ("args", "env", "after"),
    [
        ([], {}, 3000),
        (["--renew-after-secs", "3000"], {}, 3000),
        (["--renew-after-secs", "7"], {}, 7),
        (["--renew-after-secs", ""], {"INTERLINK_RENEW_AFTER_S": "90"}, 90),
    ],
)
def test_it_renews_exactly_then(args: list[str], env: dict[str, str], after: float) -> None:
    poll = {"INTERLINK_LISTENER_POLL_S": "7.3"}
    code, err, out = wait_once(*args, command=[sys.executable, "-c", PAUSED], env={**env, **poll}, payload=None)
    assert code == 2 and err.startswith("[interlink listener renewal]") and err.count("\n") == 1
    assert float(out) == pytest.approx(after)
    assert cursor() is None


@pytest.mark.req("C4", "C7")
def test_a_renewal_moves_no_cursor_and_a_partial_record_stays() -> None:
    put(notice(1))
    assert wait_once()[0] == 2
    before = cursor()
    with waiting("--renew-after-secs", "1") as one:
        code, err, _ = one.end()
    assert code == 2 and err.startswith("[interlink listener renewal]") and cursor() == before


@pytest.mark.req("C4")
def test_records_come_before_the_renewal() -> None:
    put(notice(1))
    code, err, _ = wait_once("--renew-after-secs", "1")
    assert code == 2 and "renewal" not in err


@pytest.mark.req("C4", "H3")
def test_a_host_that_is_gone_is_not_asked() -> None:
    with (
        host() as one_host,
        waiting("--renew-after-secs", "1", env={**of(one_host), "INTERLINK_LISTENER_POLL_S": "60"}) as one,
    ):
        one_host.kill()
        assert one.end() == (0, "", "")


@pytest.mark.req("C4")
def test_the_default_ends_before_the_hooks_hour() -> None:
    assert Settings().renew_after_s == 3000
