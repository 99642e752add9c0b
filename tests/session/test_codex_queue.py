"""The Codex adapter with a recording program: how it is called, and what its answers mean (X2 to X6, F13)."""

import functools
import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.codex_stub import HANG, OK, CodexStub, fails, wait_gone
from support.keys import BOB
from support.world import until

from interlink.errors import UsageError
from interlink.hosts.base import Notice, Outcome
from interlink.hosts.codex import Codex
from interlink.hosts.failed import FailedStore
from interlink.settings import Settings
from interlink.state.paths import Layout

THREAD = "01234567-89ab-cdef-0123-456789abcdef"
ADD = "failed to queue session message: thread/queue/add failed: "
NO_SESSION = "Error: No active session found matching 'no-such-name'."
NO_ROLLOUT = f"Error: {ADD}failed to read thread: invalid thread-store request: no rollout found for thread id x"
EPHEMERAL = f"Error: {ADD}ephemeral thread does not support queued submissions: x (code -32600)"
HUNG_DAEMON = (
    "Error: cannot queue through an embedded app server while a local app-server daemon is running; remove "
    "configuration overrides or use --remote"
)
READONLY = "Error: attempt to write a readonly database"


class Rig:
    """One adapter on a state root of its own, with short pauses."""

    def __init__(self, root: str, stub: CodexStub | None, **changed: Any) -> None:
        self.settings = Settings()
        self.settings.codex_backoff_s, self.settings.codex_timeout_s = 0.2, 30
        for name, value in changed.items():
            assert hasattr(self.settings, name)
            setattr(self.settings, name, value)
        self.layout = Layout(root)
        self.failed = FailedStore(self.layout, BOB.public, THREAD, self.settings)
        program = stub.bin if stub else "/nowhere/codex"
        self.adapter = Codex(program, THREAD, self.failed, self.settings, _now)

    def hand(self, text: str = "wake up", kind: str = "notice", id: str = "n1") -> Outcome:
        return anyio.run(self.adapter.handoff, Notice(id=id, text=text, through=1, count=1, kind=kind))

    def saved(self) -> list[tuple[str, bool]]:
        """(text, whether it is the ordinary notice) of what is saved."""
        return [(e.text, e.notice) for e in self.failed.entries(_now())]


def _now() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def stub(tmp_path: Path) -> CodexStub:
    return CodexStub(tmp_path)


@pytest.mark.req("X2", "H10", "H11")
def test_one_run_is_an_argument_vector_without_a_shell(state_root: str, stub: CodexStub) -> None:
    text = "--foo $(touch /tmp/never) ; `x` 'y' \"z\" \\ é 😀\nsecond line"
    outcome = Rig(state_root, stub).hand(text)
    assert (outcome.state, outcome.ok) == ("host_queued", True)
    (call,) = stub.calls
    assert call.argv == ["queue", "--thread", THREAD, f"--message={text}"]
    assert call.stdin == "" and call.stdout == "/dev/null"


@pytest.mark.req("X2")
def test_what_is_too_long_for_the_host_or_no_text_is_never_run(state_root: str, stub: CodexStub) -> None:
    rig = Rig(state_root, stub)
    assert rig.hand("é" * 6144).ok  # 12,288 bytes
    assert rig.hand("é" * 6144 + "x").permanent and rig.hand("a\0b").permanent
    assert len(stub.calls) == 1


@pytest.mark.req("X3", "H10")
@pytest.mark.parametrize(
    ("answer", "runs", "permanent"),
    [
        (OK, 1, None),
        (
            {"code": 0, "err": "Warning: message was queued, but could not resume thread x: start a daemon"},
            1,
            None,
        ),
        (fails(NO_SESSION), 1, True),
        (fails(NO_ROLLOUT), 1, True),
        (fails(EPHEMERAL), 1, True),
        (fails("error: unexpected argument '--resume' found", 2), 1, True),
        (fails("error: a value is required for '--message <TEXT>' but none was supplied", 2), 1, True),
        (fails(HUNG_DAEMON), 3, False),
        (fails(READONLY), 3, False),
        ({"code": 3}, 3, False),
        ({"killed": True, "code": 0}, 3, False),
    ],
)
def test_a_permanent_refusal_ends_at_once_and_any_other_after_three_runs(
    state_root: str, stub: CodexStub, answer: dict[str, Any], runs: int, permanent: bool | None
) -> None:
    stub.answers(answer)
    rig = Rig(state_root, stub, codex_backoff_s=0.1)
    outcome = rig.hand()
    assert len(stub.calls) == runs
    assert outcome.ok == (permanent is None) and not outcome.uncertain
    if permanent is not None:
        assert outcome.permanent == permanent and outcome.state == "delivery_failed"
        words = str(answer.get("err", "")).strip()
        assert words in outcome.reason if words else "ended with" in outcome.reason
        assert rig.saved() == [("wake up", True)]
    else:
        assert rig.saved() == []


@pytest.mark.req("X3", "H14")
def test_an_unknown_thread_hints_at_a_codex_home_that_was_not_passed_on(
    state_root: str, stub: CodexStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.answers(fails(NO_ROLLOUT))
    assert 'env_vars = ["CODEX_HOME"]' in Rig(state_root, stub).hand().reason
    monkeypatch.setenv("CODEX_HOME", "/somewhere")
    assert "CODEX_HOME" not in Rig(state_root, stub).hand().reason
    assert [c.home for c in stub.calls] == ["", "/somewhere"]


@pytest.mark.req("X3")
def test_runs_are_the_pause_apart_and_a_success_in_between_ends_them(state_root: str, stub: CodexStub) -> None:
    stub.answers(fails(READONLY), fails(READONLY), OK)
    rig = Rig(state_root, stub, codex_backoff_s=0.4)
    assert rig.hand().ok and rig.saved() == []
    gaps = [later.at - earlier.at for earlier, later in itertools.pairwise(stub.calls)]
    assert len(gaps) == 2 and min(gaps) >= 0.4
    assert Settings().codex_backoff_s == 2 and Settings().codex_attempts == 3 and Settings().codex_timeout_s == 30


@pytest.mark.req("X3", "X6")
def test_a_hang_is_saved_as_uncertain_and_nothing_of_it_is_left(state_root: str, stub: CodexStub) -> None:
    stub.answers(HANG)
    rig = Rig(state_root, stub, codex_timeout_s=1.0)
    outcome = rig.hand()
    assert outcome.uncertain and not outcome.ok and not outcome.permanent and "unknown" in outcome.reason
    assert rig.saved() == [("wake up", True)]
    (call,) = stub.calls  # one run: it may have been queued
    wait_gone(call.pid, call.child)


@pytest.mark.req("X6")
def test_cancelled_or_closed_it_leaves_no_program(state_root: str, stub: CodexStub) -> None:
    stub.answers(HANG)
    rig = Rig(state_root, stub)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(rig.adapter.queue, "text")
            await until(lambda: stub.calls, "the program to run")
            group.cancel_scope.cancel()
        await anyio.to_thread.run_sync(wait_gone, stub.calls[0].pid, stub.calls[0].child)

    anyio.run(main)


def test_a_child_that_keeps_standard_error_open_delays_no_success(state_root: str, stub: CodexStub) -> None:
    stub.answers({"code": 0, "leaves_child": True})
    began = time.monotonic()
    assert Rig(state_root, stub).hand().ok
    assert time.monotonic() - began < 25  # the program's limit is 30 s
    os.kill(stub.calls[0].child, 9)


@pytest.mark.req("X3")
def test_a_missing_program_says_which_option_mends_it(state_root: str, stub: CodexStub) -> None:
    outcome = Rig(state_root, None).hand()
    assert outcome.permanent and "/nowhere/codex" in outcome.reason and "--codex-bin" in outcome.reason
    Path(stub.bin).chmod(0o600)
    outcome = Rig(state_root, stub).hand()
    assert outcome.permanent and "ermission denied" in outcome.reason


@pytest.mark.req("X4")
def test_one_slot_for_ordinary_notices_that_a_success_clears(state_root: str, stub: CodexStub) -> None:
    stub.answers(fails(NO_SESSION))
    rig = Rig(state_root, stub)
    rig.hand("first")
    rig.hand("a pairing notice", kind="pairing")
    rig.hand("second")
    assert rig.saved() == [("a pairing notice", False), ("second", True)]
    stub.answers(OK)
    rig.hand("third")
    assert rig.saved() == [("a pairing notice", False)]


@pytest.mark.req("X4")
def test_failures_are_bounded_expire_and_leave_legacy_entries_alone(state_root: str, stub: CodexStub) -> None:
    rig = Rig(state_root, stub, failed_max=4)
    legacy = {"id": "old1", "msg_id": "m", "sender": "alice", "text": "body", "reason": "r", "notice": False}
    path = Path(rig.failed.path)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps([legacy]), "utf-8")
    now = _now()
    for number in range(3):
        rig.failed.save(f"n{number}", "pairing", "r", now, notice=False)
    stub.answers(fails(NO_SESSION))
    assert not rig.hand("one too many", kind="pairing").ok  # not kept, so that it is tried again (T3)
    day = int(rig.settings.failed_ttl_s * 1000)
    assert [e.id for e in rig.failed.entries(now + day)] == ["old1"]
    with pytest.raises(UsageError, match="no failed delivery"):
        rig.failed.discard("none", now)
    rig.failed.discard("old1", now)
    assert "old1" not in [e.id for e in rig.failed.entries(now)]


@pytest.mark.req("T3", "X5")
def test_a_pairing_notice_is_tried_three_times_and_then_saved(state_root: str, stub: CodexStub) -> None:
    stub.answers(fails(READONLY))
    rig = Rig(state_root, stub, codex_backoff_s=0.05)
    assert rig.hand("knock", kind="pairing").ok and len(stub.calls) == 3  # kept: nobody has to try it again
    assert rig.saved() == [("knock", False)]
    Path(rig.failed.path).unlink()
    Path(rig.failed.path).mkdir()
    assert not rig.hand("knock", kind="pairing").ok
    ordinary = rig.hand("mail")  # the diagnostic is lost, its outcome is told all the same
    assert not ordinary.ok and "readonly" in ordinary.reason
    stub.answers(OK)
    assert rig.hand("mail").ok


@pytest.mark.req("H10")
@pytest.mark.parametrize(
    ("package", "resumes"),
    [
        ("0.171.0", True),
        ("1.0.0", True),
        ("0.171.0-alpha.2", True),
        ("0.160.0", False),
        ("junk", False),
        (None, False),
    ],
)
def test_resume_is_used_where_the_installed_version_has_it(
    state_root: str, tmp_path: Path, package: str | None, resumes: bool
) -> None:
    stub = CodexStub(tmp_path, package)
    link = tmp_path / "codex-link"
    link.symlink_to(stub.bin)  # as a package manager installs it
    stub.bin = str(link)
    Rig(state_root, stub).hand()
    assert stub.calls[0].argv[4:] == (["--resume"] if resumes else [])


@pytest.mark.req("H10")
def test_a_program_that_does_not_know_resume_is_asked_without_it(state_root: str, tmp_path: Path) -> None:
    stub = CodexStub(tmp_path, "0.171.0")
    stub.answers(fails("error: unexpected argument '--resume' found", 2), OK)
    rig = Rig(state_root, stub)
    assert rig.hand().ok and rig.hand().ok
    assert [c.argv[4:] for c in stub.calls] == [["--resume"], [], []]


@pytest.mark.req("X1")
@pytest.mark.parametrize("thread", ["", "main", THREAD[:-1], THREAD + "0", THREAD.replace("-", ""), f" {THREAD}"])
def test_only_a_full_thread_id_will_do(state_root: str, thread: str) -> None:
    make = functools.partial(Codex, "codex", failed=None, settings=Settings(), now_ms=_now)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="full UUID"):
        make(thread_id=thread)
