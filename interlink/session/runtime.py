"""Starts a session, keeps trying while something is missing, and ends it in order (H7, X1).

    WAITING --key, state root and (Codex) thread id are there--> OPEN --cancelled--> closed
       ^-- what is missing stands in `fault`; tried again every few seconds and at every tool call
       ^-- one of the session's tasks failed: it is closed, and opened anew

The server never refuses to start: its tools say what is missing and how to mend it.
"""

import traceback

import anyio
from anyio import to_thread

from interlink import log
from interlink.errors import InterlinkError, SetupError, UsageError
from interlink.session.config import Config
from interlink.session.session import AdapterFactory, Session, open_session
from interlink.settings import Settings
from interlink.trust.identity import load_key

RETRY_S = 2.0
OPEN_WAIT_S = 5.0

UNBOUND_ID = "unbound"
UNBOUND = (
    "this Codex session is not bound yet: interlink's hooks bind it at the first turn. If they do not, review "
    "and trust them in Codex (hooks need review), or see `interlink doctor`"
)

SUB_AGENT = (
    "this is the server of a Codex sub-agent and is not bound: interlink writes and reads for the parent thread "
    "alone. Leave messages to the parent"
)


class Runtime:
    """`config` None = the options are wrong; `fault` then says how. One per process."""

    def __init__(self, config: Config | None, fault: str, settings: Settings) -> None:
        self.config = config
        self.fault = fault
        self.settings = settings
        self.session: Session | None = None
        self.bound: str | None = config.session if config else None
        self.unbound = UNBOUND  # what the tools say while no thread is bound
        self._desk: Session | None = None
        self._try_now = anyio.Event()
        self._changed = anyio.Event()
        self._started = anyio.Event()

    async def run(self, make_adapter: AdapterFactory) -> None:
        """Open the session as soon as that is possible, then run it until cancelled."""
        told = ""
        while self.config is not None:
            fault = await self._open(make_adapter)
            self._started.set()
            if self.session is not None:
                await self._run_open(self.session)
            elif fault != told:
                log.event("not_ready", reason=fault)
                told = fault
            with anyio.move_on_after(RETRY_S):
                await self._try_now.wait()
        log.event("not_ready", reason=self.fault)
        self._started.set()
        await anyio.sleep_forever()

    async def _open(self, make_adapter: AdapterFactory) -> str:
        config, session_id = self.config, self.bound
        assert config is not None
        if session_id is None:
            self.fault = self.unbound
        else:
            try:
                self.session = await to_thread.run_sync(
                    open_session, config, session_id, self.settings, make_adapter
                )
                self.fault = ""
                if self._desk is not None:  # what was set while the thread was unbound
                    self.session.here.summary = self._desk.here.summary
            except InterlinkError as exc:
                self.fault = str(exc)
        self._try_now = anyio.Event()
        self._changed.set()
        self._changed = anyio.Event()
        return self.fault

    async def _run_open(self, session: Session) -> None:
        """Until cancelled, or one of its tasks failed: `fault` says so until it is open again."""
        try:
            await session.run()
        except Exception as exc:  # noqa: BLE001 - a fault of ours must not leave a server that answers but hears nothing
            self.session = None
            self.fault = "this session failed by a fault of its own and is opened anew: try again in a moment"
            log.event("session_failed", error=_first(exc))
        finally:
            await session.aclose()

    async def ready(self) -> Session:
        """The open session; SetupError says what is missing. Tries at once, for what was just mended."""
        await self._started.wait()
        if self.session is None and self.config is not None and self.bound is not None:
            changed = self._changed
            self._try_now.set()
            with anyio.move_on_after(OPEN_WAIT_S):
                await changed.wait()
        if self.session is None:
            raise SetupError(self.fault or "the session is still starting: try again")
        return self.session

    async def desk(self) -> Session:
        """A session for what needs none: peers and the roster, also while a Codex thread is unbound (X1).

        It is not open: it polls nothing, announces nothing, and its mailbox is not to be read.
        """
        await self._started.wait()
        if self.session is not None or self.config is None or self.bound is not None:
            return await self.ready()
        if self._desk is None:
            identity = await to_thread.run_sync(load_key, self.config.key_path)
            self._desk = Session(self.config, UNBOUND_ID, self.settings, identity)
        return self._desk

    def ignore_sub_agent(self) -> None:
        """A sub-agent's hook called: nothing changes but what an unbound server says (H13)."""
        self.unbound = SUB_AGENT
        if self.bound is None and self.fault == UNBOUND:
            self.fault = SUB_AGENT

    def bind(self, thread_id: str) -> None:
        """Bind a Codex session (X1). UsageError for a second id: an instance cannot be rebound."""
        if self.bound is not None and self.bound != thread_id:
            raise UsageError(f"this server is bound to thread {self.bound}, and cannot be bound to another")
        self.bound = thread_id
        self._try_now.set()


def _first(exc: BaseException) -> str:
    """Kind and place of the first exception of a group; not its text, which may hold a body."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    at = traceback.extract_tb(exc.__traceback__)[-1]
    return f"{type(exc).__name__} in {at.name} line {at.lineno}"
