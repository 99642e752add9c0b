"""Codex CLI: a notice goes into the thread's queue by `codex queue` (X2, X3, X5, X6, H10, H11).

Exit 0 says only that the text is in a queue: whether a turn will run is unknown, so the schedule goes on.

    run --exit 0--> host_queued            run --time is up--> delivery_failed, uncertain (it may be queued)
    run --refused for good--> delivery_failed      run --other error--> again, `codex_attempts` times in all
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread
from anyio.abc import Process

from interlink import log
from interlink.errors import StateError, UsageError
from interlink.hosts import supervise
from interlink.hosts.base import DELIVERY_FAILED, HOST_QUEUED, Notice, Outcome
from interlink.hosts.failed import FailedStore
from interlink.settings import Settings
from interlink.text import clean_line

THREAD = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
# Words of `codex queue` for what no second try mends.
PERMANENT: Final = (
    "no active session found",
    "no rollout found",
    "ephemeral thread does not support",
    "unexpected argument",
    "unrecognized subcommand",
    "required arguments were not provided",
)
RESUME_SINCE: Final = (0, 171)
STDERR_BYTES: Final = 16_384
GRACE_S: Final = 5.0  # beyond the program's own limit, for its supervisor
LAST_WORDS_S: Final = 0.5  # for what a program said before it ended


def check_thread(thread_id: str) -> str:
    """A full thread UUID; UsageError for a name, a prefix or anything else."""
    if not THREAD.fullmatch(thread_id):
        raise UsageError("expected the full UUID of the current Codex thread, not a name or prefix")
    return thread_id


class Codex:
    """The adapter of one bound thread."""

    name = "codex"
    uses_inbox = False

    def __init__(
        self, codex_bin: str, thread_id: str, failed: FailedStore, settings: Settings, now_ms: Callable[[], int]
    ) -> None:
        self._bin = codex_bin
        self._thread = check_thread(thread_id)
        self._failed = failed
        self._settings = settings
        self._now_ms = now_ms
        self._resume: bool | None = None
        self._running: set[Process] = set()

    async def handoff(self, notice: Notice) -> Outcome:
        """Queue one notice, within the limits above; a failure is saved for `failed_deliveries`."""
        outcome = await self.queue(notice.text)
        ordinary = notice.kind == "notice"
        kept = True
        try:
            if outcome.ok:
                if ordinary:
                    await to_thread.run_sync(self._failed.clear_notices, self._now_ms())
            else:
                await to_thread.run_sync(
                    lambda: self._failed.save(
                        notice.id, notice.text, outcome.reason, self._now_ms(), notice=ordinary
                    )
                )
        except StateError as exc:  # the diagnostic is lost, not the message: polling goes on (X5)
            log.event("failed_delivery_not_saved", error=exc)
            kept = False
        if not outcome.ok and not ordinary and kept:
            return Outcome(outcome.state, ok=True, reason=outcome.reason)  # saved: not tried for ever (T3)
        return outcome

    async def queue(self, text: str) -> Outcome:
        """Run the queue program until it takes the text, refuses it for good, or the tries are used up."""
        if len(text.encode("utf-8")) > self._settings.notice_max_bytes or "\0" in text:
            return _failed(f"the notice has more than {self._settings.notice_max_bytes} bytes or a NUL", True)
        outcome = _failed("not tried", False)
        for attempt in range(1, self._settings.codex_attempts + 1):
            if attempt > 1:
                await anyio.sleep(self._settings.codex_backoff_s)
            outcome = await self._run_once(text)
            if outcome.ok or outcome.permanent or outcome.uncertain:
                break
            log.event("codex_queue_retry", attempt=attempt, reason=outcome.reason)
        return outcome

    async def _run_once(self, text: str) -> Outcome:
        limit = self._settings.codex_timeout_s
        argv = [self._bin, "queue", "--thread", self._thread, f"--message={text}"]
        if await self._has_resume():
            argv.append("--resume")
        try:
            code, said = await self._supervised(argv, limit)
        except OSError as exc:
            return _failed(f"cannot start {self._bin}: {os.strerror(exc.errno or 0)}", True)
        if code == 0:
            if said:
                log.event("codex_queue_says", text=said)
            return Outcome(HOST_QUEUED, ok=True)
        if code == supervise.TIMED_OUT:
            reason = f"codex queue did not end within {limit:g} s; whether the notice is queued is unknown"
            return Outcome(DELIVERY_FAILED, ok=False, uncertain=True, reason=reason)
        if code == supervise.NOT_STARTED:
            return _failed(f"cannot start codex: {said}; set --codex-bin or INTERLINK_CODEX_BIN", True)
        if self._resume and code == 2 and "--resume" in said:  # another version than its package says
            self._resume = False
            return await self._run_once(text)
        lowered = said.lower()
        permanent = code == 2 or any(words in lowered for words in PERMANENT)
        hint = ""
        if "no rollout found" in lowered and not os.environ.get("CODEX_HOME"):
            hint = ' (if Codex runs with a CODEX_HOME, pass it on: env_vars = ["CODEX_HOME"] in config.toml)'
        return _failed(f"codex queue ended with {code}: {said or 'no words'}{hint}", permanent)

    async def _supervised(self, argv: list[str], limit_s: float) -> tuple[int, str]:
        """Exit code and the cleaned last words of a program that cannot outlive us."""
        wrapped = [sys.executable, "-I", "-S", supervise.__file__, str(limit_s), *argv]
        process = await anyio.open_process(
            wrapped, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        self._running.add(process)
        said = bytearray()
        try:
            with anyio.move_on_after(limit_s + GRACE_S):
                async with anyio.create_task_group() as group:
                    group.start_soon(_listen, process, said)
                    code = await process.wait()
                    # What it left running elsewhere may hold its standard error open: that is not waited for.
                    group.cancel_scope.deadline = anyio.current_time() + LAST_WORDS_S
                return code, _last_words(bytes(said))
            return supervise.TIMED_OUT, ""
        finally:
            self._running.discard(process)
            with anyio.CancelScope(shield=True):
                await process.aclose()  # closes the pipe: the supervisor kills what runs

    async def _has_resume(self) -> bool:
        if self._resume is None:
            self._resume = await to_thread.run_sync(installed_version, self._bin) >= RESUME_SINCE
            log.event("codex", resume=self._resume)
        return self._resume

    async def aclose(self) -> None:
        """Kill what runs."""
        for process in list(self._running):
            await process.aclose()


async def _listen(process: Process, said: bytearray) -> None:
    """Keep the end of what a process says on its standard error."""
    assert process.stderr is not None
    async for chunk in process.stderr:
        said += chunk
        del said[: max(0, len(said) - STDERR_BYTES)]


def _failed(reason: str, permanent: bool) -> Outcome:
    return Outcome(DELIVERY_FAILED, ok=False, reason=reason, permanent=permanent)


def _last_words(raw: bytes) -> str:
    """The last line of a program's standard error, cleaned; the warning about /tmp says nothing of the call."""
    lines = [clean_line(line, 300) for line in raw.decode("utf-8", "replace").splitlines()]
    wanted = [line for line in lines if line and not line.startswith("WARNING: proceeding")]
    errors = [line for line in wanted if line.lower().startswith(("error", "warning"))]
    return (errors or wanted or [""])[0]


def installed_version(codex_bin: str) -> tuple[int, ...]:
    """The version in the package that the program belongs to; () where it belongs to none. Runs nothing."""
    found = shutil.which(codex_bin)
    if found is None:
        return ()
    for folder in list(Path(found).resolve().parents)[:6]:
        try:
            package = json.loads((folder / "package.json").read_text("utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(package, dict) and str(package.get("name", "")).startswith("@openai/codex"):
            numbers = re.match(r"(\d+)\.(\d+)", str(package.get("version", "")))
            return tuple(int(n) for n in numbers.groups()) if numbers else ()
    return ()
