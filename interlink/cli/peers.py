"""`interlink peers`: who is trusted. The person's own way to change it (G8)."""

from typing import Any

import click

from interlink.cli import options, shown
from interlink.settings import Settings
from interlink.text import fingerprint, shown_name
from interlink.trust.peers import PeersFile

# A petname or a key may begin with `-` (one key in 64 does): what is no option of ours is an argument. Without
# short options, so that no letter of a key is taken for one.
_WORDS: dict[str, Any] = {"help_option_names": ["--help"], "ignore_unknown_options": True}


def _open(key: str | None, peers: str | None) -> tuple[PeersFile, str, Settings]:
    settings = options.settings()
    where = options.config(key=key, peers=peers)
    own, _problem = options.own_key(where)
    return PeersFile(where.peers_path, own, settings), own, settings


def _paths(ctx: click.Context, key: str | None, peers: str | None) -> tuple[str | None, str | None]:
    """Options of the words before the subcommand hold for it too; its own ones win."""
    before: dict[str, Any] = ctx.obj or {}
    return key or before.get("key"), peers or before.get("peers")


@click.group(name="peers", invoke_without_command=True, context_settings=options.HELP)
@options.peers_option
@options.key_option
@options.json_option
@click.pass_context
def command(ctx: click.Context, peers: str | None, key: str | None, as_json: bool) -> None:
    """Who is trusted, under which name. Without a subcommand: list.

    Only messages of these keys, and of your own, are admitted. A change takes effect at once.
    """
    ctx.obj = {"key": key, "peers": peers}
    if ctx.invoked_subcommand is None:
        _list(key, peers, as_json)


@command.command(name="list", context_settings=options.HELP)
@options.peers_option
@options.key_option
@options.json_option
@click.pass_context
def list_peers(ctx: click.Context, peers: str | None, key: str | None, as_json: bool) -> None:
    """List the peers: petname, fingerprint, key."""
    _list(*_paths(ctx, key, peers), as_json)


def _list(key: str | None, peers: str | None, as_json: bool) -> None:
    file, _own, settings = _open(key, peers)
    found = sorted(file.current().by_name.items())
    if as_json:
        rows = [{"petname": n, "key": k, "fingerprint": fingerprint(k)} for n, k in found]
        shown.print_json({"path": file.path, "peers": rows})
        return
    if not found:
        shown.say(f"No peers yet in {file.path}: interlink peers add PETNAME KEY")
    width = max((len(shown_name(name, settings.name_max_chars)) for name, _ in found), default=0)
    for name, public in found:
        shown.say(f"{shown_name(name, settings.name_max_chars):<{width}}  [{fingerprint(public)}]  {public}")


@command.command(name="add", context_settings=_WORDS)
@click.argument("petname")
@click.argument("public_key", metavar="KEY")
@options.peers_option
@options.key_option
@click.pass_context
def add(ctx: click.Context, petname: str, public_key: str, peers: str | None, key: str | None) -> None:
    """Trust KEY (43 characters, from its owner) under the name PETNAME.

    Compare the fingerprint, the key's first 8 characters, with its owner over another way.
    """
    file, _own, _settings = _open(*_paths(ctx, key, peers))
    file.add(options.plain("petname", petname), options.plain("key", public_key))
    shown.say(f"{shown_name(petname)} [{fingerprint(public_key)}] is trusted: messages of that key are admitted.")


@command.command(name="remove", context_settings=_WORDS)
@click.argument("petname")
@options.peers_option
@options.key_option
@click.pass_context
def remove(ctx: click.Context, petname: str, peers: str | None, key: str | None) -> None:
    """Trust PETNAME's key no longer. Its unread messages are held back, until it is added again or pruned."""
    file, _own, _settings = _open(*_paths(ctx, key, peers))
    file.remove(options.plain("petname", petname))
    shown.say(f"{shown_name(petname)} is no peer any more: its messages are refused, unread ones held back.")


@command.command(name="show", context_settings=options.HELP)
@options.peers_option
@options.key_option
@options.json_option
@click.pass_context
def show(ctx: click.Context, peers: str | None, key: str | None, as_json: bool) -> None:
    """Show your own public key, to give to peers, and where the files are."""
    key, peers = _paths(ctx, key, peers)
    where = options.config(key=key, peers=peers)
    own, problem = options.own_key(where)
    file = PeersFile(where.peers_path, own, options.settings())
    names = file.current().by_name
    if as_json:
        shown.print_json(
            {
                "key": own or None,
                "fingerprint": fingerprint(own) or None,
                "problem": problem or None,
                "key_path": where.key_path,
                "path": file.path,
                "peers": len(names),
            }
        )
        return
    if own:
        shown.say(f"your public key   {own}")
        shown.say(f"fingerprint       {fingerprint(own)}")
        shown.say(f"a peer runs       interlink peers add PETNAME {own}")
    else:
        shown.say(f"your public key   none: {problem}")
    shown.say(f"key file          {where.key_path}")
    shown.say(f"peers file        {file.path} ({shown.count(len(names), 'peer')})")
