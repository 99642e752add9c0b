"""`interlink prune`: tidy what sessions left that nothing holds any more (T6), purge held-back mail (G7)."""

import click

from interlink.cli import options, shown
from interlink.doctor.survey import held_back
from interlink.errors import EXIT_FAULT, EXIT_OK, UsageError
from interlink.mailbox.look import look
from interlink.session import known
from interlink.session import prune as pruning
from interlink.settings import Settings
from interlink.state import files
from interlink.state.paths import Layout
from interlink.text import fingerprint
from interlink.trust.identity import match_keys
from interlink.trust.peers import PeersFile


@click.command(name="prune", context_settings=options.HELP)
@click.option("--dry-run", is_flag=True, help="Only list what would be done; takes no lock, changes nothing.")
@click.option(
    "--held-back",
    "held_back_of",
    metavar="KEY",
    default="",
    help="Only this: throw away the unread mail of a removed peer (key or fingerprint, as `doctor` shows it).",
)
@options.identity_option
@options.key_option
@options.peers_option
@options.json_option
def command(
    dry_run: bool, held_back_of: str, identity: str, key: str | None, peers: str | None, as_json: bool
) -> int:
    """Tidy what sessions left that no server and no listener uses any more.

    Consumed notices, consumed messages and tombstones past their time, mailboxes that are empty and old, temporary
    files of processes that are gone. Unread and unsent messages stay, and so do lock files and the copies of
    corrupt files.
    """
    settings = options.settings()
    where = options.config(key=key, peers=peers)
    layout = Layout(where.root)
    if not dry_run:
        files.ensure_root(layout.root)
    own, _problem = options.own_key(where)
    if held_back_of:
        petnames = PeersFile(where.peers_path, own, settings).current().by_key
        who = known.choose_identity(identity, own, known.identities(layout))
        return _held_back(layout, held_back_of, who, petnames, settings, dry_run, as_json)
    done = pruning.prune(layout, settings, options.now_ms(), dry_run=dry_run)
    if as_json:
        shown.print_json(
            {
                "dry_run": dry_run,
                "steps": [s._asdict() for s in done.steps],
                "held": [h._asdict() for h in done.held],
                "faults": done.faults,
            }
        )
    else:
        for step in done.steps:
            shown.say(f"{step.what}  {step.where}: {step.detail} ({shown.size(step.bytes)})")
        for held in done.held:
            shown.say(f"left alone  {held.where}: in use by {held.why}")
        total = shown.size(sum(s.bytes for s in done.steps))
        verb = "would be freed; nothing was changed" if dry_run else "freed"
        shown.say(f"{shown.count(len(done.steps), 'step')}, about {total} {verb}")
    for fault in done.faults:
        shown.note(fault)
    return EXIT_FAULT if done.faults else EXIT_OK


def _held_back(
    layout: Layout,
    sender: str,
    who: str,
    petnames: dict[str, str],
    settings: Settings,
    dry_run: bool,
    as_json: bool,
) -> int:
    now = options.now_ms()
    places = known.mailboxes(layout, who)
    keys = {r.message.sender for p in places for r in held_back(look(layout, *p), petnames, now)}
    found = match_keys(sender, keys)
    if len(found) != 1:
        what = "several keys: give the full one" if found else "nobody whose mail is held back here"
        raise UsageError(
            f"{sender[:60]!r} is {what}. Held back: {', '.join(map(fingerprint, sorted(keys))) or 'none'}"
        )
    rows = []
    for place in places:
        count = pruning.purge_sender(layout, place, found[0], settings, now, dry_run=dry_run)
        rows.append({"identity": who, "session": place.session, "purged": count})
        if count and not as_json:
            verb = "would be thrown away" if dry_run else "thrown away"
            shown.say(f"{place.shown}: {shown.count(count, 'held-back message')} {verb}")
    if as_json:
        shown.print_json({"dry_run": dry_run, "sender": found[0], "mailboxes": rows})
    return EXIT_OK
