"""Peers files for tests: written by hand, read with the settings that a test wants."""

import json
from pathlib import Path

from support.keys import ALICE, identity

from interlink.settings import Settings
from interlink.trust.peers import PeersFile

ME = identity(9)
ZERO_KEY = "A" * 43  # a point of order four


def peers_file(path: Path, **settings: int) -> PeersFile:
    changed = Settings()
    for name, value in settings.items():
        setattr(changed, name, value)
    return PeersFile(str(path), ME.public, changed)


def write(path: Path, content: object) -> None:
    """Write the file in place: a text as it is, anything else as JSON."""
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text, "utf-8")


def entry(who: object = ALICE) -> dict[str, object]:
    return {"key": getattr(who, "public", who)}
