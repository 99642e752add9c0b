"""Server and hooks meet on one session whatever ids the host gives them (H4, C5)."""

import os
import sys

import pytest
from support.listener import (
    KEY,
    OTHER_KEY,
    Child,
    Wait,
    cursor,
    host,
    layout,
    notice,
    of,
    put,
    server,
    size,
    until,
    waiting,
)

from interlink.errors import SetupError, StateError, UsageError
from interlink.hosts import registry
from interlink.state import files
from interlink.state.process import Process


def entries() -> list[str]:
    """Every file and directory below `host/`."""
    found = []
    for folder, names, others in os.walk(layout().host_dir()):
        found += [os.path.join(folder, name) for name in names + others]
    return found


def resolve(child: Child, **options: str) -> tuple[str, str]:
    """What a hook of this host finds, with the payload id `s1`."""
    environ = {name: value for name, value in options.items() if name.isupper()}
    found = registry.resolve(
        layout(), environ, Process.of(child.pid), option=options.get("option", ""), payload=lambda: "s1"
    )
    return found.session, found.source


@pytest.mark.req("H4", "C5")
def test_one_server_decides_over_the_payload() -> None:
    with host() as one_host, server(one_host.pid, "served"):
        with waiting(session="served", env=of(one_host)) as one:
            put(notice(), session="served")
            assert one.end()[0] == 2
        assert cursor("served") == size("served")
        assert resolve(one_host) == ("served", "server")


@pytest.mark.req("C5")
def test_what_a_person_chose_comes_first() -> None:
    with host() as one_host, server(one_host.pid, "served"):
        assert resolve(one_host, option="o", INTERLINK_SESSION="e") == ("o", "option")
        assert resolve(one_host, option="", INTERLINK_SESSION="e") == ("e", "environment")
        assert resolve(one_host, option="", INTERLINK_SESSION="") == ("served", "server")
        with waiting(session="e", env={**of(one_host), "INTERLINK_SESSION": "e"}) as one:
            # Also later: no registered server moves it away.
            put(notice(), session="served")
            put(notice(), session="e")
            assert one.end()[0] == 2
    assert cursor("served") is None


@pytest.mark.req("H4")
def test_two_sessions_are_ambiguous_and_two_servers_of_one_are_not() -> None:
    with host() as one_host, server(one_host.pid, "a"):
        with server(one_host.pid, "a", OTHER_KEY):
            assert resolve(one_host) == ("a", "server")
            assert len(registry.servers_of(layout(), Process.of(one_host.pid))) == 2
        with server(one_host.pid, "b"):
            assert resolve(one_host) == ("s1", "payload")
        assert resolve(one_host) == ("a", "server")


@pytest.mark.req("H4", "C5")
def test_without_a_server_it_is_the_payload_and_then_main() -> None:
    with host() as one_host, host() as other, server(other.pid, "elsewhere"):
        assert resolve(one_host) == ("s1", "payload")
        found = registry.resolve(layout(), {}, Process.of(one_host.pid))
        assert (found.session, found.source) == ("main", "fallback")
        assert registry.resolve(layout(), {}, None).session == "main"


@pytest.mark.req("H4")
def test_a_killed_server_counts_no_more_and_the_next_one_cleans_up() -> None:
    with host() as one_host:
        with server(one_host.pid, "dead") as gone:
            gone.kill()
            left = entries()
            assert any(f"{gone.pid}.json" in path for path in left)
            assert resolve(one_host) == ("s1", "payload")
            assert entries() == left  # who only looks removes nothing
        with server(one_host.pid, "alive"):
            assert not any(str(gone.pid) in os.path.basename(path) for path in entries())
            assert resolve(one_host) == ("alive", "server")
        assert [os.path.basename(path) for path in entries()] == ["register.lock"]


@pytest.mark.req("H4")
def test_hosts_that_have_ended_are_cleaned_up() -> None:
    with host() as gone_host, server(gone_host.pid, "a") as gone:
        gone.kill()
    with host() as one_host, server(one_host.pid, "b"):
        names = os.listdir(layout().host_dir())
        me = Process.of(one_host.pid)
        assert me is not None and sorted(names) == sorted([me.text, "register.lock"])
        assert [(h, [s.session for s in servers]) for h, servers in registry.hosts(layout())] == [(me, ["b"])]


@pytest.mark.req("H4")
@pytest.mark.parametrize(
    "left", [b"", b"[]", b"{}", b"\xff", b'{"session":"../x","identity":"k","server":"a-1-1"}']
)
def test_entries_that_are_none_are_passed_over(left: bytes) -> None:
    with host() as one_host, server(one_host.pid, "a"):
        me = Process.of(one_host.pid)
        assert me is not None
        with open(os.path.join(layout().host_dir(), me.text, "1.json"), "wb") as f:
            f.write(left)
        assert resolve(one_host) == ("a", "server")


@pytest.mark.req("H4")
def test_another_process_with_the_same_pid_is_no_server() -> None:
    with host() as one_host, server(one_host.pid, "a") as one_server:
        (path,) = [path for path in entries() if path.endswith(f"{one_server.pid}.json")]
        there = Process.of(one_server.pid)
        assert there is not None
        with open(path, encoding="utf-8") as f:
            text = f.read()
        with open(path, "w", encoding="utf-8") as f:
            f.write(text.replace(there.text, Process(there.pid, "1", there.boot).text))
        assert resolve(one_host) == ("s1", "payload")


@pytest.mark.req("H4", "M29")
def test_entries_are_private() -> None:
    with host() as one_host, server(one_host.pid, "a"):
        for path in [layout().host_dir(), *entries()]:
            assert os.stat(path).st_mode & 0o777 == (0o700 if os.path.isdir(path) else 0o600), path


@pytest.mark.req("H4")
def test_a_launcher_between_host_and_server_is_seen_through() -> None:
    shell = ["/bin/sh", "-c", '"$@"; exit $?', "sh", sys.executable]
    with server(0, "behind", command=shell) as launched:
        me = Process.me()
        assert registry.session_of(layout(), me) == "behind"
        assert registry.session_of(layout(), Process.of(launched.pid)) == "behind"
        assert launched.pid != int(launched.said)
    assert registry.session_of(layout(), me) is None


@pytest.mark.req("H4", "H5")
def test_a_server_that_registers_later_moves_the_listener() -> None:
    with host() as one_host, waiting(env=of(one_host)) as one, server(one_host.pid, "late"):
        one.listening("late")
        with waiting("--session", "s1", env={"INTERLINK_LISTENER_LOCK_WAIT_S": "0"}):
            pass  # the lock that it held before is free
        put(notice(), session="late")
        assert one.end()[0] == 2
    assert cursor("late") == size("late")


@pytest.mark.req("H4", "C3")
def test_where_the_late_servers_session_has_a_listener_there_is_nothing_to_do() -> None:
    pinned = {"INTERLINK_SESSION": "late"}
    with host() as one_host, waiting(session="late", env={**of(one_host), **pinned}) as first:
        second = Wait(env=of(one_host)).listening("s1")
        with server(one_host.pid, "late"):
            assert second.end() == (0, "", "")
            assert first.proc.poll() is None


@pytest.mark.req("H4")
def test_after_a_clear_the_next_listener_meets_the_server_again() -> None:
    with host() as one_host, server(one_host.pid, "before"):
        for payload_id in ("before", "after-clear"):
            one = Wait(payload=f'{{"session_id":"{payload_id}"}}'.encode(), env=of(one_host)).listening("before")
            put(notice(), session="before")
            assert one.end()[0] == 2


def test_bad_ids_are_refused_where_they_come_from() -> None:
    with pytest.raises(UsageError):
        registry.resolve(layout(), {}, None, option="a b")
    with pytest.raises(UsageError):
        registry.resolve(layout(), {"INTERLINK_SESSION": "a b"}, None)
    with pytest.raises(SetupError, match="payload"):
        registry.resolve(layout(), {}, None, payload=lambda: "a b")
    with pytest.raises(UsageError):
        registry.register(layout(), os.getppid(), "a b", KEY)


@pytest.mark.req("H4", "H7", "M17")
@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_registration_that_fails_holds_nothing(monkeypatch: pytest.MonkeyPatch, fails_at: int) -> None:
    """A full disk at the start: the same process registers as soon as there is room again."""
    write, calls = files.atomic_write, []

    def full(path: str, data: bytes, **options: bool) -> tuple[int, int, int]:
        calls.append(path)
        if len(calls) == fails_at:
            raise StateError("no space")
        return write(path, data, **options)

    chain = [Process.me(), host_process(os.getppid())]
    monkeypatch.setattr(registry, "host_chain", lambda _pid: chain)
    monkeypatch.setattr(files, "atomic_write", full)
    with pytest.raises(StateError):
        registry.register(layout(), os.getppid(), "a", KEY)
    assert not [path for path in entries() if path.endswith(".json")]
    held = registry.register(layout(), os.getppid(), "a", KEY)  # at once: nobody holds the locks
    assert [registry.session_of(layout(), process) for process in chain] == ["a", "a"]
    held.release()


def host_process(pid: int) -> Process:
    found = Process.of(pid)
    assert found is not None
    return found


@pytest.mark.req("H4")
def test_many_servers_register_and_leave_at_once() -> None:
    code = """
import os, sys
from interlink.hosts import registry
from interlink.state.paths import Layout, state_root
layout = Layout(state_root(os.environ))
print("ready", flush=True)
sys.stdin.readline()
for n in range(15):
    registry.register(layout, int(sys.argv[1]), "a", "K" * 43).release()
held = registry.register(layout, int(sys.argv[1]), "a", "K" * 43)
print("done", flush=True)
sys.stdin.read()
"""
    with host() as one_host:
        many = [Child(code, str(one_host.pid)) for _ in range(4)]
        for child in many:
            assert child.proc.stdin is not None
            child.proc.stdin.write("\n")
            child.proc.stdin.flush()
        for child in many:
            assert child.proc.stdout is not None and child.proc.stdout.readline() == "done\n"
        assert len(registry.servers_of(layout(), Process.of(one_host.pid))) == 4
        for child in many:
            child.kill()
        until(lambda: not registry.servers_of(layout(), Process.of(one_host.pid)), "no live server")
