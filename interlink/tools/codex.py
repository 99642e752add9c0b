"""The tools of Codex mode: binding by a hook, and the failed deliveries (X1, X4, H12, H13)."""

import msgspec
from anyio import to_thread

from interlink import log
from interlink.errors import SetupError, UsageError
from interlink.hosts.codex import Codex, check_thread
from interlink.hosts.failed import FailedStore, Failure
from interlink.session.runtime import Runtime
from interlink.session.session import Session, now_ms
from interlink.text import clean_line, defang
from interlink.tools import arguments as args
from interlink.tools.render import cut_utf8
from interlink.tools.surface import Answer, Call

ROOM = 4096  # bytes of an answer kept free for what stands around a body
REASON_CHARS = 400
BOUND = Answer("{}")  # a hook's answer is parsed as hook output: anything else lands in the model's context


def bind_codex_session(runtime: Runtime, a: args.BindCodex, call: Call) -> Answer:
    """Bind this server to the thread of the hook that calls."""
    if runtime.config is None:
        raise SetupError(runtime.fault)
    if runtime.config.host != "codex":
        raise UsageError("this server is not in Codex mode (--host codex): there is nothing to bind")
    if "callId" in call.meta:
        raise UsageError("only a trusted local hook may bind the session, not the model")
    check_thread(a.thread_id)
    real = call.meta.get("threadId")
    if isinstance(real, str) and real != a.thread_id:
        log.event("bind_ignored", reason="hook of a sub-agent", thread=real[:36])
        runtime.ignore_sub_agent()
        return BOUND
    runtime.bind(a.thread_id)
    return BOUND


async def failed_deliveries(session: Session, a: args.FailedDeliveries) -> Answer:
    """List, read, retry or discard what could not be handed to the host."""
    store = FailedStore(session.layout, session.identity.public, session.id, session.settings)
    now = now_ms()
    if a.action == "list":
        entries = await to_thread.run_sync(store.entries, now)
        return Answer(msgspec.json.encode([_row(e) for e in entries]).decode("utf-8"))
    if not a.id:
        raise UsageError(f"action={a.action} needs the id of a failed delivery: see action=list")
    entry = await to_thread.run_sync(store.find, a.id, now)
    if a.action == "read":
        # A legacy entry is a whole message: it may forge nothing, and be longer than an answer.
        data = defang(entry.text).encode("utf-8", "replace")
        start, end = cut_utf8(data, 0, session.settings.answer_max_bytes - ROOM)
        cut = f"\n[bytes {start} to {end} of {len(data)}; the rest is in {store.path}]" if end < len(data) else ""
        reason = clean_line(entry.reason, REASON_CHARS)
        return Answer(f"Failed delivery {entry.id} ({reason}):\n{data[:end].decode('utf-8')}{cut}")
    if a.action == "discard":
        await to_thread.run_sync(store.discard, a.id, now)
        return Answer(f"Failed delivery {entry.id} is discarded. No message was consumed by that.")
    if not isinstance(session.adapter, Codex):
        raise UsageError("retry works in Codex mode alone: read it, then discard it")
    outcome = await session.adapter.queue(entry.text)
    if not outcome.ok:
        raise UsageError(f"retry failed: {outcome.reason}. It stays saved.")
    await to_thread.run_sync(store.discard, a.id, now_ms())
    return Answer(
        f"host_queued: Codex has failed delivery {entry.id} in its queue; whether a turn runs is unknown."
    )


def _row(entry: Failure) -> dict[str, object]:
    return {
        "id": entry.id,
        "msg_id": entry.msg_id,
        "sender": entry.sender,
        "reason": entry.reason,
        "bytes": len(entry.text.encode("utf-8")),
    }
