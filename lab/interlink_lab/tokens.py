"""How the lab finds its own messages and the product's notices again in texts."""

import re

TOKEN = re.compile(r"\[\[(m:[A-Za-z0-9._:-]+)\]\]")
"""In each message of the lab: which one it is."""

NOTICE_ID = re.compile(r'receive_messages\(notification_id="([^"]+)"\)')
"""In each inbox notice of the product."""

CHANNEL = "claude/channel"
"""The capability of a server that pushes its notices, and in the name of its pushes (N1)."""
