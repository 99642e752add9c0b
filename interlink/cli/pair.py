"""`interlink pair`: the person's own answer to a knock, where the host cannot ask (G4, G8, B6)."""

import os
from typing import Any

import click

from interlink.cli import options, shown
from interlink.errors import UsageError
from interlink.session import known
from interlink.session.config import Config
from interlink.settings import Settings
from interlink.state.paths import Layout, is_session
from interlink.text import clean_line, fingerprint, shown_name
from interlink.trust.identity import Identity, load_key
from interlink.trust.pairing import PairingStore, Request, State, find, proposed_petname
from interlink.trust.peers import PeersFile

# A fingerprint may begin with `-`: what is no option of ours is an argument.
_WORDS: dict[str, Any] = {"help_option_names": ["--help"], "ignore_unknown_options": True}
session_option = click.option("--session", default="", help="The session that was knocked at; default: any.")


@click.group(name="pair", context_settings=options.HELP, invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Requests to pair, and your answer. Without a subcommand: list.

    Compare the fingerprint with the other operator, by voice or chat, before you accept. Names are claims.
    """
    if ctx.invoked_subcommand is None:
        _list("", None, False)


@command.command(name="list", context_settings=options.HELP)
@session_option
@options.key_option
@options.json_option
def list_requests(session: str, key: str | None, as_json: bool) -> None:
    """List who knocked here, and whom we asked."""
    _list(session, key, as_json)


def _list(session: str, key: str | None, as_json: bool) -> None:
    rows = []
    for store_session, state in _states(*_open(key), session):
        for way, requests in (("in", state.inbound), ("out", state.outbound)):
            rows += [{"session": store_session, "way": way, **_row(r)} for r in requests]
    if as_json:
        shown.print_json(rows)
        return
    for row in rows:
        what = "knocks, and claims the name" if row["way"] == "in" else "was asked, to be the peer"
        shown.say(
            f"{row['session']}: [{row['fingerprint']}] {what} {shown_name(str(row['name']))}; key {row['key']}"
        )
    if not rows:
        shown.say("no pairing request waits")


def _row(request: Request) -> dict[str, object]:
    return {
        "fingerprint": fingerprint(request.key),
        "key": request.key,
        "name": clean_line(request.name, 64),
        "accepted": request.accepted,
    }


@command.command(name="accept", context_settings=_WORDS)
@click.argument("who", metavar="FINGERPRINT")
@click.option("--as", "petname", default="", help="The name that you give it; default: the one that it claims.")
@session_option
@options.key_option
@options.peers_option
def accept(who: str, petname: str, session: str, key: str | None, peers: str | None) -> None:
    """Trust the key with this FINGERPRINT (or full key), and let it know.

    It is told by the session's server: now where one runs, else when one starts.
    """
    where, identity, settings = _open(key, peers)
    place, request = _find(where, identity, settings, session, options.plain("fingerprint", who))
    name = petname or proposed_petname(request.name, request.key, settings)
    _accept(where, identity, settings, place, request, name)
    shown.say(f"{shown_name(name)} [{fingerprint(request.key)}] is trusted: messages of that key are admitted.")


def _accept(
    where: Config, identity: Identity, settings: Settings, session: str, request: Request, petname: str
) -> None:
    import anyio  # these load the relay client, which nothing else here needs

    from interlink.relay.client import Relays
    from interlink.session.pairing import Pairing
    from interlink.trust.wire import make_route

    async def nobody(_text: str, _kind: str) -> bool:
        return True

    async def run() -> None:
        relays = Relays([], settings)
        pairing = Pairing(
            PairingStore(Layout(where.root), identity.public, session),
            identity,
            make_route(identity.public, session),
            where.name,
            PeersFile(where.peers_path, identity.public, settings),
            relays,
            settings,
            options.now_ms,
            nobody,
        )
        await pairing.accept(request, petname)
        await relays.aclose()

    anyio.run(run)


@command.command(name="reject", context_settings=_WORDS)
@click.argument("who", metavar="FINGERPRINT")
@session_option
@options.key_option
def reject(who: str, session: str, key: str | None) -> None:
    """Forget a request. Nothing is sent, nobody is trusted."""
    where, identity, settings = _open(key)
    place, request = _find(where, identity, settings, session, options.plain("fingerprint", who))
    PairingStore(Layout(where.root), identity.public, place).update(lambda state: _forget(state, request.key))
    shown.say(f"the request of [{fingerprint(request.key)}] is forgotten")


def _forget(state: State, key: str) -> None:
    from interlink.session.pairing import drop

    drop(state, key)


def _open(key: str | None, peers: str | None = None) -> tuple[Config, Identity, Settings]:
    settings = options.settings()
    where = options.config(key=key, peers=peers)
    return where, load_key(where.key_path), settings


def _states(where: Config, identity: Identity, _settings: Settings, session: str) -> list[tuple[str, State]]:
    """(session, its pairing state) of one session or of all that have one."""
    layout = Layout(where.root)
    folder = os.path.dirname(layout.pairing(identity.public, "x"))
    names = sorted(known.listed(folder))
    sessions = [n[:-5] for n in names if n.endswith(".json") and is_session(n[:-5]) and session in ("", n[:-5])]
    if session and not sessions:
        raise UsageError(f"session {session[:60]!r} has no pairing request: see `interlink pair list`")
    return [(s, PairingStore(layout, identity.public, s).read()) for s in sessions]


def _find(where: Config, identity: Identity, settings: Settings, session: str, who: str) -> tuple[str, Request]:
    found = []
    for place, state in _states(where, identity, settings, session):
        accepted = [r for r in state.outbound if r.accepted]
        request = find(state.inbound, who) or find(accepted, who) or find(state.outbound, who)
        if request is not None:
            found.append((place, request))
    if len({request.key for _, request in found}) > 1:
        raise UsageError(f"the fingerprint {who[:20]!r} belongs to {len(found)} keys: give the full key")
    if not found:
        raise UsageError(f"no pairing request of {who[:60]!r}: see `interlink pair list`")
    return found[0]
