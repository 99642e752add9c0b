"""`interlink adopt`: the mail of a session that no host uses any more goes into another (M30)."""

import click

from interlink.cli import options, shown
from interlink.errors import EXIT_FAULT, EXIT_OK
from interlink.session import adopt as adoption
from interlink.session import known
from interlink.state.paths import Layout, check_session


@click.command(
    name="adopt",
    context_settings=options.HELP,
    epilog="Exit codes: 0 all of it moved; 1 something is left (run it again), or OLD is in use; 64 wrong usage.",
)
@click.argument("old")
@click.option(
    "--into", "new", required=True, help="The session that takes the mail: `interlink status` has the ids."
)
@options.identity_option
@options.key_option
@options.json_option
def command(old: str, new: str, identity: str, key: str | None, as_json: bool) -> int:
    """Move the mail of session OLD, which no host uses any more, into another session of the same identity.

    Messages keep their receipts, delivery ids and states; what OLD could not send yet moves too, and is sent when
    a server of the other session starts the next time. Refused while a server uses OLD. After a crash, run it
    again: nothing is lost, nothing is there twice.

    Mail that still waits at a relay for OLD is not touched: a server started with `--session OLD` gets it.
    """
    settings = options.settings()
    where = options.config(key=key)
    layout = Layout(where.root)
    check_session(old)
    check_session(new)
    own, _problem = options.own_key(where)
    place, _there = known.choose_place(old, identity, own, known.places(layout))
    done = adoption.adopt(layout, place.identity, place.session, new, settings, options.now_ms())
    live = any((r.identity, r.session) == (place.identity, new) for r in known.running(layout))
    if as_json:
        shown.print_json({"identity": place.identity, "old": place.session, "into": new, **done._asdict()})
    else:
        _tell(place.session, new, done)
    if not live:
        shown.note(f"no server runs for session {new} now: its agent is told when one starts")
    elif done.unsent:
        shown.note(f"the unsent messages go out when the server of session {new} is started again")
    return EXIT_FAULT if done.left else EXIT_OK


def _tell(old: str, new: str, done: adoption.Adopted) -> None:
    shown.say(
        f"{old} -> {new}: {done.unread} unread, {done.consumed} consumed and {done.unsent} unsent messages moved"
        + (f"; {done.already} were there already" if done.already else "")
    )
    if done.renamed:
        shown.say(f"{shown.count(done.renamed, 'receipt')} changed: {new} has other messages under the old ones")
    if done.left:
        shown.note(
            f"{shown.count(done.left, 'unread message')} found no room in {new} and stayed in {old}: run this "
            "again once its agent has acknowledged some"
        )
