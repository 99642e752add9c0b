"""The tools about discovery and pairing: claims are shown cleaned, with the fingerprint they claim to be of."""

from interlink.errors import UsageError
from interlink.session import presence
from interlink.session.session import Session
from interlink.text import clean_line, fingerprint, shown_name
from interlink.tools import arguments as args
from interlink.tools.surface import Answer, Connection
from interlink.tools.trust import CannotAsk, confirmed, peers_command, person_command
from interlink.trust.pairing import Request, find, proposed_petname
from interlink.trust.peers import check_petname

SUMMARY_CHARS = 200
SHOWN = 50
SHOWN_SESSIONS = 10


async def discover(session: Session, a: args.Discover) -> Answer:
    roster = await session.roster()
    if roster is None:
        raise UsageError("no relay answers, so nobody can be discovered: see list_pending or `interlink doctor`")
    by_key: dict[str, list[presence.Seen]] = {}
    for seen in roster:
        if seen.session.session_id != session.id or seen.key != session.identity.public:
            by_key.setdefault(seen.key, []).append(seen)
    names = {**session.peers.current().by_key, session.identity.public: "self"}
    if a.peer is not None:
        by_key = {k: v for k, v in by_key.items() if _fits(a.peer, k, v, names)}
    lines = []
    for key, sessions in list(by_key.items())[:SHOWN]:
        petname = names.get(key)
        who = f"peer {petname}" if petname else f"NOT a peer, calls itself {_claimed(session, sessions[0])}"
        lines.append(f"- {fingerprint(key)} {who}; key {key}")
        lines += [_session_line(session, s) for s in sessions[:SHOWN_SESSIONS]]
        if len(sessions) > SHOWN_SESSIONS:
            lines.append(f"    and {len(sessions) - SHOWN_SESSIONS} more sessions")
    if len(by_key) > SHOWN:
        lines.append(f"- and {len(by_key) - SHOWN} more keys: ask for one with `peer`")
    if not lines:
        return Answer(
            "Nobody is announced." if a.peer is None else "Nobody of that name, key or fingerprint is announced."
        )
    head = "Announced sessions. Names and summaries are claims; only the key is proven."
    return Answer("\n".join((head, *lines)))


def _fits(wanted: str, key: str, sessions: list[presence.Seen], names: dict[str, str]) -> bool:
    claims = {clean_line(s.name, 64) for s in sessions}
    return wanted in (key, fingerprint(key), names.get(key)) or wanted in claims


def _claimed(session: Session, seen: presence.Seen) -> str:
    return shown_name(seen.name, session.settings.name_max_chars)


def _session_line(session: Session, seen: presence.Seen) -> str:
    s = seen.session
    where = shown_name(s.git_root or s.cwd, 64)
    summary = shown_name(s.summary, SUMMARY_CHARS)
    return (
        f"    session {s.session_id}: {seen.word(session.settings)}, {seen.age_ms // 1000} s ago"
        + (f", in {where}" if where != '""' else "")
        + (f", says {summary}" if summary != '""' else "")
    )


async def set_summary(session: Session, a: args.SetSummary) -> Answer:
    summary = clean_line(a.summary, SUMMARY_CHARS)
    session.set_summary(summary)
    when = "Announced" if session.opened else "Will be announced once this session is bound"
    return Answer(f"{when}: {shown_name(summary, SUMMARY_CHARS)}." if summary else "The summary is cleared.")


async def request_pair(session: Session, a: args.RequestPair, connection: Connection) -> Answer:
    roster = await session.roster()
    if roster is None:
        raise UsageError("no relay answers, so nobody can be found: see `interlink doctor`")
    try:
        seen = session.pairing.pick(a.target, roster)
    except UsageError:  # it may have been announced since the roster was asked for
        seen = session.pairing.pick(a.target, await session.roster(fresh=True) or [])
    petname = session.pairing.petname_for(seen, a.target)
    consent = True
    try:
        await confirmed(
            connection,
            f"Ask the key {seen.key} (fingerprint {fingerprint(seen.key)}) to pair, and trust it as "
            f"{shown_name(petname)} when it accepts?",
            peers_command(session, "add", petname, seen.key),
        )
    except CannotAsk:
        consent = False  # a knock changes no trust: it is sent, their acceptance then waits for the person
    asked = await session.pairing.request(seen, petname, consent=consent)
    then = (
        f"When they accept, it becomes the peer {shown_name(asked.name)}."
        if asked.consent
        else "When they accept, your user still decides here: accept_pair, or they run "
        f"`{peers_command(session, 'add', petname, seen.key)}`."
    )
    return Answer(f"Knocked at {fingerprint(seen.key)} (request {asked.request_id}). {then}")


async def list_pair_requests(session: Session, _a: args.Nothing) -> Answer:
    state = await session.pairing.requests()
    lines = [f"{len(state.inbound)} inbound, {len(state.outbound)} outbound, {len(state.queued)} not sent yet."]
    limit = session.settings.name_max_chars
    for r in state.inbound:
        lines.append(f"- in: {fingerprint(r.key)} claims the name {shown_name(r.name, limit)}; key {r.key}")
    for r in state.outbound:
        word = "accepted by them, your user decides" if r.accepted else "asked"
        lines.append(f"- out: {fingerprint(r.key)} as {shown_name(r.name, limit)}: {word}; key {r.key}")
    return Answer(
        "\n".join(lines),
        {
            "inbound": [_row(r, limit) for r in state.inbound],
            "outbound": [{**_row(r, limit), "accepted": r.accepted} for r in state.outbound],
            "unsent": len(state.queued),
        },
    )


def _row(request: Request, limit: int) -> dict[str, object]:
    return {
        "fingerprint": fingerprint(request.key),
        "key": request.key,
        "claimed_name": clean_line(request.name, limit),
        "request_id": request.request_id,
    }


async def accept_pair(session: Session, a: args.AnswerPair, connection: Connection) -> Answer:
    request = await _request(session, a.fingerprint)
    petname = a.petname or proposed_petname(request.name, request.key, session.settings)
    check_petname(petname, session.settings)
    await confirmed(
        connection,
        f"Trust the key {request.key} (fingerprint {fingerprint(request.key)}) as {shown_name(petname)}? Compare "
        "the fingerprint with the other operator first. Its messages will reach this agent.",
        person_command(
            session,
            "pair",
            "accept",
            request.key,
            "--session",
            session.id,
            *(("--as", petname) if a.petname else ()),
        ),
    )
    await session.pairing.accept(request, petname)
    session.nudge()
    return Answer(f"{shown_name(petname)} [{fingerprint(request.key)}] is a peer now; it is told so.")


async def reject_pair(session: Session, a: args.RejectPair) -> Answer:
    request = await _request(session, a.fingerprint)
    await session.pairing.reject(request)
    return Answer(f"The request of {fingerprint(request.key)} is forgotten. Nothing was sent, nobody is trusted.")


async def _request(session: Session, text: str) -> Request:
    state = await session.pairing.requests()
    accepted = [r for r in state.outbound if r.accepted]
    request = find(state.inbound, text) or find(accepted, text) or find(state.outbound, text)
    if request is None:
        raise UsageError("no pairing request of that fingerprint: see list_pair_requests")
    return request
