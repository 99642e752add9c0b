"""`interlink-mcp`: the MCP server, and `interlink-mcp wait`, the listener.

The listener starts after every turn of the host, so it is reached without importing anything else.
"""

import sys


def main() -> int:
    """Entry point. Returns the server's exit code; `wait` ends the process itself."""
    argv = sys.argv[1:]
    if argv[:1] == ["wait"]:
        from interlink.listener.main import run

        run(argv[1:])
    from interlink.cli.serve import main as serve

    return serve(argv)


if __name__ == "__main__":
    sys.exit(main())
