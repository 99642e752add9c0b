"""`interlink-mcp wait`: waits for a session's inbox and wakes the host by exit 2. Standard library only."""
