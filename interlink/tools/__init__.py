"""The MCP face: tools, and the room that serves them. Nothing is imported here: `serving` alone loads the SDK."""
