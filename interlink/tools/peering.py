"""The tools about peers and this session (B3, B4, B6, G8)."""

from interlink.session.runtime import UNBOUND
from interlink.session.session import Session
from interlink.text import fingerprint
from interlink.tools import arguments as args
from interlink.tools.surface import Answer


async def list_peers(session: Session, _a: args.Nothing) -> Answer:
    peers = session.peers.current()
    roster = await session.roster({*peers.by_key, session.identity.public})
    rows = []
    lines = []
    for petname, key in sorted(peers.by_name.items()):
        seen = [s for s in roster or () if s.key == key]
        sessions = [
            {"session": s.session.session_id, "state": s.word(session.settings), "age_s": s.age_ms // 1000}
            for s in seen
        ]
        rows.append({"petname": petname, "key": key, "sessions": sessions})
        shown = ", ".join(f"{s['session']} ({s['state']})" for s in sessions[:10]) or "no announced session"
        lines.append(f"- {petname} [{fingerprint(key)}]: {shown}")
    own = [s for s in roster or () if s.key == session.identity.public and s.session.session_id != session.id]
    if own:
        shown = ", ".join(f"{s.session.session_id} ({s.word(session.settings)})" for s in own[:10])
        lines.append(f"- self [{fingerprint(session.identity.public)}]: {shown}")
    head = f"{len(rows)} peers." if rows else "No peers yet: pair first; your user runs `interlink peers add`."
    if roster is None:
        head += " No relay answers, so who is live is unknown."
    return Answer("\n".join((head, *lines)), {"peers": rows, "relay_answers": roster is not None})


async def get_my_session_id(session: Session, _a: args.Nothing) -> Answer:
    if not session.opened:
        return Answer(
            f"{UNBOUND}. The key is {session.identity.public}.", {"session": None, "key": session.identity.public}
        )
    me = {"session": session.id, "key": session.identity.public, "name": session.config.name}
    return Answer(
        f"Session {session.id} of key {me['key']} (fingerprint {fingerprint(me['key'])}), named {me['name']}.", me
    )
