"""Server and listeners of the packaged plugin meet on one session, whatever ids the host hands out (H4).

The host is a fake that starts both as a real one was seen to do, with the ids that a real one was seen to give.
"""

import os
from pathlib import Path
from typing import NamedTuple

import pytest
from support.cli import layout, me, ok
from support.fake_host import FakeHost
from support.listener import FAST, cursor, size, until
from support.setup import hook_commands, install

from interlink import inbox
from interlink.hosts import registry
from interlink.state.locks import holder_pids
from interlink.state.process import Process

ENV = {**FAST, "INTERLINK_URL": "http://127.0.0.1:9", "INTERLINK_RECONCILE_S": "0.1"}


class Case(NamedTuple):
    """The ids that host gives server and hooks, the payload's `source`, and what a person pinned."""

    server: str
    hook: str
    source: str
    pin: str = ""

    @property
    def env(self) -> dict[str, str]:
        return {"INTERLINK_SESSION": self.pin} if self.pin else {}

    @property
    def session(self) -> str:
        return self.pin or self.server


NEW, OLD, RANDOM = "0b7d9a52-new", "5f1c2e94-old", "c3a8d610-random"
CASES = {
    "startup": Case(NEW, NEW, "startup"),
    "resume": Case(OLD, OLD, "resume"),
    "fork": Case(NEW, NEW, "fork"),
    "continue": Case(RANDOM, OLD, "resume"),
    "clear": Case(OLD, NEW, "clear"),
    "pinned": Case(RANDOM, OLD, "resume", pin="desk"),
}


class Session:
    """A fake host with the packaged plugin: its commands, as rendered for a program at this path."""

    def __init__(self, host: FakeHost, folder: Path, case: Case) -> None:
        self.host, self.case = host, case
        self.program = install(folder / "a b")
        self.commands = hook_commands(self.program)

    def serve(self) -> None:
        self.host.server(str(self.program), CLAUDE_CODE_SESSION_ID=self.case.server, **self.case.env)

    def served(self) -> None:
        """Returns once the server is registered under the host."""
        here = Process.of(self.host.pid)
        until(lambda: registry.session_of(layout(), here) == self.case.session, f"a server of {self.case.session}")

    def fire(self, event: str, **more: object) -> int:
        """The host's event, with the payload that it gives then."""
        payload = {"session_id": self.case.hook, "cwd": "/w", "hook_event_name": event, **more}
        env = {"CLAUDE_CODE_SESSION_ID": self.case.hook, **self.case.env}
        return self.host.hook(self.commands[event], payload, **env)

    def listening(self, session: str = "") -> None:
        """Returns once a listener holds the session's lock."""
        path = layout().inbox(session or self.case.session, "lock")
        until(lambda: holder_pids(path), f"a listener of {session or self.case.session}")


def post(session: str, ident: str) -> None:
    ok("post", "--source", "ci", "--session", session, "--id", ident, stdin="the build is red")


def woken(host: FakeHost, hook: int) -> None:
    code, said = host.ended(hook)
    assert code == 2 and said.startswith("[Interlink inbox notice]") and "the build" not in said, said


@pytest.mark.req("H4", "C5", "H5")
@pytest.mark.parametrize("name", list(CASES))
def test_server_and_hooks_meet(name: str, tmp_path: Path) -> None:
    me()
    with FakeHost(env=ENV) as host:
        one = Session(host, tmp_path, CASES[name])
        one.serve()
        one.served()
        hook = one.fire("SessionStart", source=one.case.source)
        one.listening()
        post(one.case.session, "m1")
        woken(host, hook)
        assert cursor(one.case.session) == size(one.case.session)
        # At once, not by way of the hook's own id.
        assert one.case.hook == one.case.session or not os.path.exists(layout().inbox(one.case.hook, "lock"))
        for event in ("Stop", "StopFailure"):
            again = one.fire(event)
            if event == "Stop":
                one.listening()
                armed = again
        assert host.ended(again) == (0, "")  # one listener a session
        assert host.running(armed)


@pytest.mark.req("H4", "H5")
@pytest.mark.parametrize("name", ["startup", "continue", "clear"])
def test_they_meet_also_where_the_hook_is_there_first(name: str, tmp_path: Path) -> None:
    me()
    with FakeHost(env=ENV) as host:
        one = Session(host, tmp_path, CASES[name])
        hook = one.fire("SessionStart", source=one.case.source)
        one.listening(one.case.hook)
        one.serve()
        one.served()
        one.listening()
        post(one.case.session, "m1")
        woken(host, hook)
    assert cursor(one.case.session) == size(one.case.session)


@pytest.mark.req("H4")
def test_two_hosts_of_one_user_keep_apart(tmp_path: Path) -> None:
    me()
    with FakeHost(env=ENV) as left, FakeHost(env=ENV) as right:
        ours = Session(left, tmp_path / "1", Case("a", "x", "clear"))
        theirs = Session(right, tmp_path / "2", Case("b", "x", "clear"))  # one id for the hooks of both
        hooks = []
        for one in (ours, theirs):
            one.serve()
            one.served()
            hooks.append(one.fire("SessionStart", source="clear"))
            one.listening()
        post("b", "m1")
        woken(right, hooks[1])
        assert left.running(hooks[0])


@pytest.mark.req("H6")
def test_a_one_shot_run_is_not_held_up(tmp_path: Path) -> None:
    me()
    with FakeHost("--model", "m", "-p", "hello", env=ENV) as host:
        one = Session(host, tmp_path, CASES["startup"])
        one.serve()
        one.served()
        post(one.case.session, "m1")
        until(lambda: os.path.exists(layout().inbox(one.case.session)), "the notice")
        for event in ("SessionStart", "Stop", "StopFailure"):
            assert host.ended(one.fire(event)) == (0, ""), event
        code, said = host.ended(one.fire("PostToolUse", tool_name="Bash"))
        assert (code, said) == (0, "")
    # Mail and notice are there for the next session that stays.
    assert (
        len(inbox.read(layout(), one.case.session, max_records=9, max_bytes=1 << 20, lock_wait_s=9).records) == 1
    )


@pytest.mark.req("H3", "C3")
def test_a_host_that_goes_takes_its_listener_along_and_a_resumed_one_has_its_own(tmp_path: Path) -> None:
    me()
    with FakeHost(env=ENV) as host:
        one = Session(host, tmp_path, CASES["startup"])
        one.serve()
        one.served()
        one.fire("SessionStart", source="startup")
        one.listening()
        os.kill(host.pid, 9)
        # A resumed session is there at once: it waits for the lock, and gets it.
        with FakeHost(env=ENV) as later:
            next_one = Session(later, tmp_path, CASES["startup"])
            next_one.serve()
            hook = next_one.fire("SessionStart", source="resume")
            next_one.served()
            post(next_one.case.session, "m1")
            woken(later, hook)
