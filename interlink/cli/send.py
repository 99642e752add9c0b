"""`interlink send`: one signed message from a shell or a script (B4, F6)."""

import os
import secrets
from typing import Any

import click

from interlink.cli import options, shown
from interlink.errors import EXIT_FAULT, EXIT_OK, RelayError, UsageError, WireError
from interlink.hosts import registry
from interlink.relay import light
from interlink.relay.each import ask_each
from interlink.session import presence
from interlink.session.config import Config, read_token
from interlink.session.limits import check_size
from interlink.settings import Settings
from interlink.state.paths import Layout, check_session
from interlink.state.process import Process
from interlink.text import fingerprint, shown_name
from interlink.trust import wire
from interlink.trust.gate import SELF
from interlink.trust.identity import load_key
from interlink.trust.peers import PeersFile

STATUSES = sorted(wire.STATUSES)


@click.command(
    name="send",
    context_settings=options.HELP,
    epilog="Exit codes: 0 a relay has it; 1 no relay took it, and nothing was kept; 64 a wrong argument.",
)
@click.argument("petname")
@click.argument("text")
@click.option(
    "--session", default="", help="The peer's session id or a unique prefix; default: its only live one."
)
@click.option("--from-session", default="", help="Your session that answers go to; default: that of this host.")
@click.option("--task", "task_id", help="Id of the task that this belongs to.")
@click.option("--status", type=click.Choice(STATUSES), help="What this says of the task.")
@click.option("--in-reply-to", help="msg_id of the message that this answers.")
@options.key_option
@options.peers_option
@options.url_option
@options.token_option
@options.json_option
def command(petname: str, text: str, as_json: bool, **given: Any) -> int:
    """Send TEXT (`-`: standard input) to PETNAME, or to `self` for another session of your own.

    A text that begins with a dash goes behind `--`.

    It goes to all relays at once and is done when one has it. Nothing is kept here: unlike the agent's own tool
    this does not try again. Without a session that answers go to (--from-session, INTERLINK_SESSION, or the
    server of the host that runs this command) the message names none, and an answer goes to whichever session of
    yours is live.
    """
    settings = options.settings()
    paths = {name: given[name] for name in ("key", "peers", "url", "token_file")}
    where = options.config(**paths)
    body = shown.read_text(settings, "Nothing was sent.") if text == "-" else options.plain("text", text)
    identity = load_key(where.key_path)
    peers = PeersFile(where.peers_path, identity.public, settings).current()
    to, key = presence.whose(options.plain("petname", petname), peers, identity.public)
    if given["status"] and not given["task_id"]:
        raise UsageError("a message with a status belongs to a task: give --task. Nothing was sent.")
    if not where.urls:
        raise UsageError("there is no relay address: give --url, or set INTERLINK_URL. Nothing was sent.")
    token = read_token(where.token_file)
    own_session = _own_session(given["from_session"], where)
    target = _target(to, key, given["session"], own_session, where, token, settings)
    msg = wire.Message(
        sender=identity.public,
        to=key,
        text=body,
        ts=options.now_ms(),
        msg_id=secrets.token_hex(16),
        status=given["status"],
        task_id=given["task_id"] or None,
        in_reply_to=given["in_reply_to"] or None,
        reply_to=wire.make_route(identity.public, own_session) if own_session else None,
    )
    payload = _checked(msg, identity, settings)
    results = ask_each(
        where.urls, lambda url: light.send(url, target.route, payload, token, settings.send_timeout_s)
    )
    return _tell(msg, target, results, as_json)


def _own_session(given: str, where: Config) -> str:
    """Where answers go: the option, INTERLINK_SESSION, the server of this host process; "" for none."""
    session = given or os.environ.get("INTERLINK_SESSION", "")
    if session:
        return check_session(session)
    pid = registry.hook_host_pid(os.environ)
    return registry.session_of(Layout(where.root), Process.of(pid) if pid is not None else None) or ""


def _target(
    petname: str, key: str, wanted: str, own: str, where: Config, token: str | None, settings: Settings
) -> presence.Target:
    rosters = ask_each(where.urls, lambda url: light.roster(url, token, settings.call_timeout_s))
    found = [r for r in rosters.values() if not isinstance(r, RelayError)]
    entries = [entry for roster in found for entry in roster]
    seen = presence.read_roster(entries, options.now_ms(), settings, {key}) if found else None
    if seen is None and not wanted:
        why = "; ".join(f"{url}: {exc}" for url, exc in rosters.items())
        raise RelayError(
            f"no relay answers, so {shown_name(petname)}'s sessions are unknown ({why}). Nothing was sent."
        )
    target = presence.choose(petname, key, wanted or None, seen, (), own, None, settings)
    if petname == SELF and target.session == own:
        raise UsageError(
            "this is a message to that very session: name another session of yours. Nothing was sent."
        )
    return target


def _checked(msg: wire.Message, identity: Any, settings: Settings) -> str:
    try:
        check_size(msg, settings)
        payload = wire.encode_message(wire.sign_message(msg, identity))
        wire.decode_message(payload)  # what a receiver would refuse is an error here
    except (WireError, UnicodeError) as exc:
        raise UsageError(f"{exc}. Nothing was sent.") from exc
    return payload


def _tell(msg: wire.Message, target: presence.Target, results: dict[str, Any], as_json: bool) -> int:
    failed = {url: str(exc) for url, exc in results.items() if isinstance(exc, RelayError)}
    taken = len(failed) < len(results)
    if as_json:
        shown.print_json(
            {
                "msg_id": msg.msg_id,
                "to": target.petname,
                "key": target.key,
                "session": target.session,
                "state": "bus_accepted" if taken else "not_sent",
                "relays": {url: failed.get(url, "accepted") for url in results},
                "note": target.note or None,
            }
        )
        return EXIT_OK if taken else EXIT_FAULT
    for url, why in failed.items():
        shown.note(f"relay {url}: {why}")
    to = f"{shown_name(target.petname)} [{fingerprint(target.key)}], session {target.session}"
    if not taken:
        shown.note(f"not sent to {to}: no relay took it, and nothing was kept here. Run it again later.")
        return EXIT_FAULT
    note = f" {target.note}." if target.note else ""
    shown.say(f"sent to {to}: msg_id {msg.msg_id}. A relay has it; whether it was read is unknown.{note}")
    return EXIT_OK
