"""One node of a run: a machine of its own, as far as the lab is concerned. A process or a container runs it.

    python -m interlink_lab.node FOLDER

It starts the relay or the hosts of its node, signals them, changes their files, and reports what it sees. It ends,
with all that it started, when its stdin ends.
"""

import sys
from pathlib import Path

import anyio

from interlink_lab.node.node import Node


async def _main() -> None:
    await Node(Path(sys.argv[1])).serve()


anyio.run(_main)
