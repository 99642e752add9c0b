"""`interlink export`: mailboxes and the log of what was sent, for a person's own tools or for the way back."""

import json
import os
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from interlink.cli import options, shown
from interlink.cli.inbox import chosen
from interlink.errors import UsageError
from interlink.mailbox.export import lines, rust_form
from interlink.mailbox.look import look
from interlink.outlog import Journal
from interlink.session.known import Place
from interlink.settings import Settings
from interlink.state import files
from interlink.state.paths import Layout

FORMATS = ("jsonl", "rust")


@click.command(
    name="export",
    context_settings=options.HELP,
)
@click.option("--session", default="", help="Session id or a unique prefix; default: all of this identity.")
@options.identity_option
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="jsonl", show_default=True, help="jsonl or rust."
)
@click.option("--out", default="-", help="Folder for IDENTITY/SESSION.jsonl or .json; default: standard output.")
@options.key_option
def command(session: str, identity: str, form: str, out: str, key: str | None) -> None:
    """Write out mailboxes. Changes nothing, consumes nothing.

    jsonl: an object a line. All have kind, identity, session and state. A record or a tombstone (a consumed
    message without its body) has receipt, source_id, peer, superseded_by, seq, arrived_ms, done_ms, fingerprint;
    a record also message (as on the wire), local, size; a tombstone ts, update, group. What was sent (outbound)
    has msg_id, peer, to, route, text, ts, task_id, status, in_reply_to, accepted_ms, reason.

    rust: the mailbox file of the Rust system, which can be put in the place of ours; standard error says what
    that form cannot hold.
    """
    settings = options.settings()
    where = options.config(key=key)
    layout = Layout(where.root)
    own, _problem = options.own_key(where)
    places = chosen(layout, session, identity, own)
    if not places:
        shown.note("no mailbox here: nothing to export")
    if form == "rust" and out == "-" and len(places) > 1:
        raise UsageError(f"{len(places)} mailboxes: name one with --session, or a folder with --out")
    for place in places:
        data = _rust(layout, place) if form == "rust" else b"".join(_jsonl(layout, place, settings))
        if out == "-":
            click.echo(data, nl=False)
        else:
            _save(out, place, data, "json" if form == "rust" else "jsonl")


def _rust(layout: Layout, place: Place) -> bytes:
    data, dropped = rust_form(look(layout, *place))
    if dropped:
        what = ", ".join(f"{number} {name}" for name, number in dropped.items())
        shown.note(f"{place.shown}: left out, since that form cannot hold it: {what}")
    shown.note(f"{place.shown}: arrival times, delivery ids and fingerprints are left out, too")
    return data


def _jsonl(layout: Layout, place: Place, settings: Settings) -> Iterator[bytes]:
    for line in lines(look(layout, *place)):
        yield _encode(line)
    journal = Journal(layout, place.identity, place.session, settings)
    journal.load()
    for sent in journal.entries.values():
        yield _encode({**msgspec.structs.asdict(sent), **place._asdict(), "kind": "outbound"})


def _encode(line: dict[str, Any]) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode("ascii") + b"\n"


def _save(out: str, place: Place, data: bytes, ext: str) -> None:
    folder = os.path.join(os.path.abspath(out), place.identity)
    path = os.path.join(folder, f"{place.session}.{ext}")
    try:
        files.make_dirs(folder)
    except OSError as exc:
        raise files.explain(exc, f"make the folder {folder}") from exc
    files.atomic_write(path, data)
    shown.say(path)
