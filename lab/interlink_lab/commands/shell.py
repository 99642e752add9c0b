"""What the lab's commands share as programs: exit codes, and how they end.

0 passed; 1 an invariant does not hold; 3 the lab could not run it, which says nothing about the product; 64 usage;
130 ended by a signal.
"""

import math
import signal
import sys
import traceback
from typing import NoReturn

import click

EXIT_BROKEN = 3
EXIT_USAGE = 64
EXIT_SIGNAL = 130


def above_zero(_ctx: click.Context, _param: click.Parameter, value: float | None) -> float | None:
    """The check of an option that takes seconds."""
    if value is not None and not (math.isfinite(value) and value > 0):
        raise click.BadParameter(f"{value} is no number of seconds above 0")
    return value


def usage(wrong: object) -> NoReturn:
    """Say it and exit 64."""
    click.echo(str(wrong), err=True)
    sys.exit(EXIT_USAGE)


def run_command(command: click.Command, name: str) -> NoReturn:
    """Run a command to its exit code. SIGTERM ends it as Ctrl-C does: what it started ends with it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        code = command.main(prog_name=name, standalone_mode=False)
    except click.UsageError as exc:
        exc.show()
        sys.exit(EXIT_USAGE)
    except click.Abort:
        click.echo("ended by a signal: no verdict", err=True)
        sys.exit(EXIT_SIGNAL)
    except OSError as exc:
        click.echo(f"{name}: {exc}", err=True)
        sys.exit(EXIT_BROKEN)
    except Exception:  # noqa: BLE001 - a fault of the lab must not be read as one of the product
        traceback.print_exc()
        sys.exit(EXIT_BROKEN)
    sys.exit(code if isinstance(code, int) else 0)
