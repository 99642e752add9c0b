"""Changes of trust are the person's (G8): asked by elicitation, else the command to run is printed."""

import os
import shlex

from interlink.errors import UsageError, WireError
from interlink.session.session import Session
from interlink.text import fingerprint, shown_name
from interlink.tools import arguments as args
from interlink.tools.surface import Answer, Connection
from interlink.trust.identity import check_public_key
from interlink.trust.peers import check_petname

ASK_TIMEOUT_S = 600.0


class CannotAsk(UsageError):
    """The host cannot ask its person; the text holds the command that they run instead."""


def tools_may_change_trust() -> bool:
    """INTERLINK_TRUST=tools: the person lets agents change who is trusted."""
    return os.environ.get("INTERLINK_TRUST", "") == "tools"


async def confirmed(connection: Connection, question: str, command: str) -> None:
    """Returns when the person agreed; UsageError, with the command to run, in every other case."""
    if tools_may_change_trust():
        return
    if connection.can_elicit:
        answer = await connection.elicit(
            question,
            {
                "type": "object",
                "properties": {"confirm": {"type": "boolean", "title": "Yes, do it"}},
                "required": ["confirm"],
            },
            ASK_TIMEOUT_S,
        )
        if answer is not None and answer.get("confirm") is True:
            return
        raise UsageError("your user did not agree: nothing was changed")
    raise CannotAsk(
        f"who is trusted is for your user to decide, and this host cannot ask them. Tell them to run: {command}\n"
        "Nothing was changed."
    )


def person_command(session: Session, *words: str) -> str:
    """The command line that a person runs instead, with the files of this server."""
    files = ["--peers", session.config.peers_path, "--key", session.config.key_path]
    return shlex.join(["interlink", *words, *files])


def peers_command(session: Session, *words: str) -> str:
    """The `interlink peers` command line that a person runs instead."""
    return person_command(session, "peers", *words)


async def add_peer(session: Session, a: args.AddPeer, connection: Connection) -> Answer:
    check_petname(a.petname, session.settings)
    try:
        check_public_key(a.key)
    except WireError as exc:
        raise UsageError(f"the key is not valid: {exc}") from exc
    await confirmed(
        connection,
        f"Trust the key {a.key} (fingerprint {fingerprint(a.key)}) as {shown_name(a.petname)}? "
        "Its messages will reach this agent.",
        peers_command(session, "add", a.petname, a.key),
    )
    session.peers.add(a.petname, a.key)
    session.nudge()
    return Answer(f"{a.petname} [{fingerprint(a.key)}] is a peer now.")


async def remove_peer(session: Session, a: args.RemovePeer, connection: Connection) -> Answer:
    if a.petname not in session.peers.current().by_name:
        raise UsageError(f"no peer {shown_name(a.petname)}: see list_peers")
    await confirmed(
        connection,
        f"Remove {shown_name(a.petname)} from the peers? Its messages will be refused, unread ones held back.",
        peers_command(session, "remove", a.petname),
    )
    session.peers.remove(a.petname)
    session.nudge()
    return Answer(f"{a.petname} is no peer any more; its unread messages are held back.")
