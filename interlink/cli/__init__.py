"""The commands. `run` is the one place where click's exits become ours. Light on purpose: no imports here."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    import click


def run(command: "click.Command", prog: str) -> "NoReturn":
    """Run a click command and exit: 64 for a usage error, 1 for a fault, never 2 (H1).

    The errors are one line on stderr. `command` returns its exit code, None being 0.
    """
    import sys

    import click

    from interlink.errors import EXIT_FAULT, EXIT_OK, EXIT_USAGE, InterlinkError

    try:
        code = command.main(prog_name=prog, standalone_mode=False)
    except click.exceptions.Exit as exc:
        code = exc.exit_code
    except click.UsageError as exc:
        where = exc.ctx.command_path if exc.ctx else prog
        _say(prog, f"{exc.format_message()} (see {where} --help)")
        code = EXIT_USAGE
    except click.ClickException as exc:
        _say(prog, exc.format_message())
        code = EXIT_FAULT
    except (click.Abort, KeyboardInterrupt):
        code = EXIT_FAULT
    except InterlinkError as exc:
        _say(prog, str(exc))
        code = exc.exit_code
    sys.exit(EXIT_OK if code is None else int(code))


def _say(prog: str, text: str) -> None:
    import sys

    from interlink.text import clean_line

    sys.stderr.write(f"{prog}: {clean_line(text, 2000)}\n")
