"""A look at a mailbox file that changes nothing: no lock, no copy set aside, no log (for `inbox`, `doctor`)."""

from interlink.mailbox.box import Box
from interlink.state import files
from interlink.state.paths import Layout


def look(layout: Layout, identity: str, session: str) -> Box:
    """The present content; empty where there is no file. StateError or CorruptFile where it cannot be read."""
    path = layout.mailbox(identity, session)
    data = files.read_bytes(path)
    if data is None:
        return Box(identity, session)
    return Box.decode(data, identity, session, path)
