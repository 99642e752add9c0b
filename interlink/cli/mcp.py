"""`interlink-mcp`: the MCP server; `interlink-mcp wait`, the listener; `interlink-mcp nudge`, a reminder.

The last two start after every turn or tool call of the host, so they are reached without importing anything else.
"""

import sys

from interlink.errors import EXIT_OK


def main() -> int:
    """Entry point. Returns when the server has ended in good order; `wait` ends the process itself."""
    argv = sys.argv[1:]
    if argv[:1] == ["wait"]:
        from interlink.listener.main import run

        run(argv[1:])
    if argv[:1] == ["nudge"]:
        from interlink.listener.nudge import run as nudge

        nudge(argv[1:])
    from interlink.cli.serve import main as serve

    serve(argv)
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
