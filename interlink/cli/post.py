"""`interlink post`: a CI job, a cron job or a hook puts a message into a session's mailbox (L1 to L3)."""

import json
import os

import click

from interlink.cli import options, shown
from interlink.errors import EXIT_FAULT, EXIT_OK, UsageError
from interlink.hosts import registry
from interlink.mailbox import staging, states
from interlink.session import known, local
from interlink.session.known import Place
from interlink.settings import Settings
from interlink.state.paths import Layout
from interlink.state.process import Process


@click.command(
    name="post",
    context_settings=options.HELP,
    epilog="Exit codes: 0 stored, or known already; 1 nothing was kept (mailbox full, disk); 64 a wrong argument.",
)
@click.option("--session", default="", help="Session id or a unique prefix; default INTERLINK_SESSION.")
@click.option("--source", required=True, help="Who says it: the sender is shown as local:SOURCE.")
@click.option("--id", "msg_id", default="", help="Your id of the message: the same again is a repeat.")
@click.option("--class", "klass", default="actionable", show_default=True, help="actionable, or ephemeral.")
@click.option("--seq", type=int, help="Your sequence number: tells two equal messages with one id apart.")
@click.option("--supersedes", help="Ephemeral only: retires unread ones of this source with the same key.")
@click.option("--resume-id", help="Acknowledging one of a group retires all of it, also later ones.")
@options.identity_option
@options.key_option
@options.json_option
def command(
    session: str,
    source: str,
    msg_id: str,
    klass: str,
    seq: int | None,
    supersedes: str | None,
    resume_id: str | None,
    identity: str,
    key: str | None,
    as_json: bool,
) -> int:
    """Put the text on standard input into a session's mailbox, as a message of local:SOURCE.

    It is on disk before this returns, with a receipt like a peer's message. A server that runs for the session
    tells its agent within a second or so; with none running it waits. It proves no more than that a process of
    this user wrote it.

    An actionable message wakes the agent. An ephemeral one wakes nobody and vanishes after ten minutes.
    """
    settings = options.settings()
    where = options.config(key=key)
    layout = Layout(where.root)
    given = session or os.environ.get("INTERLINK_SESSION", "") or _session_of_host(layout)
    if not given:
        raise UsageError(f"which session? Name it with --session. {_running(layout)}")
    own, _problem = options.own_key(where)
    place, there = known.choose_place(given, identity, own, known.places(layout))
    what = local.Source(
        name=options.plain("source", source),
        msg_id=options.plain("id", msg_id),
        klass=klass,
        seq=seq,
        supersedes=supersedes,
        resume_id=resume_id,
    )
    local.check_source(what.name, settings)  # before a person types a text in vain
    text = shown.read_text(settings, "Nothing was kept.")
    posted = local.post(layout, place.identity, place.session, text, what, settings, options.now_ms())
    _warn(layout, place, there)
    return _tell(place, posted, settings, as_json)


def _session_of_host(layout: Layout) -> str:
    pid = registry.hook_host_pid(os.environ)
    return registry.session_of(layout, Process.of(pid) if pid is not None else None) or ""


def _running(layout: Layout) -> str:
    shown_ones = [Place(r.identity, r.session).shown for r in known.running(layout)][:10]
    return f"Running now: {', '.join(shown_ones) or 'none'}"


def _warn(layout: Layout, place: Place, there: bool) -> None:
    if any((r.identity, r.session) == place for r in known.running(layout)):
        return
    if there:
        shown.note(f"no server runs for session {place.shown} now: its agent is told when one starts")
    else:
        shown.note(
            f"session {place.shown} is not known here: the message waits until a server starts with that id "
            "(see `interlink status` for the ids, `interlink adopt` to move mail)"
        )


def _tell(place: Place, posted: local.Posted, settings: Settings, as_json: bool) -> int:
    record = posted.record
    kept = posted.outcome in (staging.STORED, staging.REPEATED)
    receipt = {"sender": posted.sender, "msg_id": posted.receipt_id}
    if record is not None and record.delivery_id:
        receipt["delivery_id"] = record.delivery_id
    if as_json:
        shown.print_json(
            {
                "outcome": {staging.REPEATED: "repeated", staging.KEPT: "full"}.get(
                    posted.outcome, posted.outcome
                ),
                "identity": place.identity,
                "session": place.session,
                "receipt": receipt if kept else None,
                "state": record.state if record is not None and kept else None,
                "collided": posted.collided,
                "suppressed": posted.suppressed,
            }
        )
        return EXIT_OK if kept else EXIT_FAULT
    if not kept:
        shown.note(_refused(place, posted, settings))
        return EXIT_FAULT
    line = f"Receipt: {json.dumps(receipt, separators=(',', ':'))}"
    if posted.outcome == staging.REPEATED:
        shown.say(
            f"repeated: session {place.shown} has this message already; nothing was stored "
            f"({shown.count(posted.suppressed, 'repeat')} without a sequence number so far). {line}"
        )
        return EXIT_OK
    notes = ""
    if posted.collided:
        notes = " Another message of this source has that id, so the receipt has its own."
    if record is not None and record.state == states.RECEIVER_ACKNOWLEDGED:
        notes += " Its resume group was acknowledged before, so it is retired at once."
    shown.say(f"stored in session {place.shown}.{notes} {line}")
    return EXIT_OK


def _refused(place: Place, posted: local.Posted, settings: Settings) -> str:
    if posted.outcome == staging.UNDELIVERABLE:
        return (
            f"the message is too long for the mailbox of session {place.shown} "
            f"({settings.mailbox_max_bytes} bytes in all): it was set aside and will not be shown"
        )
    return (
        f"the mailbox of session {place.shown} is full ({settings.mailbox_max_records} messages or "
        f"{shown.size(settings.mailbox_max_bytes)} unread): nothing was kept. Post it again once its agent has "
        "acknowledged some"
    )
