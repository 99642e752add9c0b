"""Command line of `interlink-mcp wait`, and the one place where its exit code is made (H1, F1).

0: nothing to do (another listener, channel mode, host gone, told to end). 1: a fault. 64: a wrong argument.
2 means "wake the model" and is given only after a notice was written and its cursor committed. The process
leaves through os._exit, so that nothing at its end can turn into another code.
"""

import os
import sys
from collections.abc import Sequence

from interlink.errors import EXIT_FAULT, EXIT_OK, InterlinkError, UsageError
from interlink.settings import TABLE, load
from interlink.state.paths import Layout, check_session, state_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

PROGRAM = "interlink-mcp wait"
USAGE = f"""usage: {PROGRAM} [--session ID] [--renew-after-secs 1..3000]

Waits for the session's inbox. When a message arrives it writes a notice to standard error and exits 2,
which wakes a host that started it as a hook with asyncRewake.

  --session ID            the session to listen for (INTERLINK_SESSION); otherwise that of the host's
                          server, otherwise session_id of the hook payload on standard input, else main
  --renew-after-secs N    idle seconds after which the host is asked to start it again (default 3000)

exit: 0 nothing to do, 1 fault, 2 wake the host, 64 wrong arguments
"""


class Arguments:
    """What the command line said; "" and None where it said nothing."""

    def __init__(self) -> None:
        self.session = ""
        self.renew_after_s: float | None = None
        self.help = False


def parse(argv: Sequence[str]) -> Arguments:
    """The arguments behind `wait`. Raises UsageError. An empty value counts as not given."""
    out = Arguments()
    words = iter(argv)
    for word in words:
        name, equals, value = word.partition("=")
        if word in ("--help", "-h"):
            out.help = True
        elif name in ("--session", "--renew-after-secs"):
            if not equals:
                given = next(words, None)
                if given is None:
                    raise UsageError(f"{name} needs a value; see {PROGRAM} --help")
                value = given
            if name == "--session":
                out.session = check_session(value) if value else ""
            else:
                out.renew_after_s = _seconds(value) if value else None
        else:
            raise UsageError(f"unknown argument {word[:60]!r}; see {PROGRAM} --help")
    return out


def _seconds(value: str) -> float:
    low, high, _ = TABLE["renew_after_s"]
    number = int(value) if value.isascii() and value.isdigit() and len(value) < 10 else 0
    if not low <= number <= high:
        raise UsageError(
            f"--renew-after-secs {value[:60]!r} is not valid: use a whole number from {low:g} to {high:g}"
        )
    return number


def run(argv: Sequence[str]) -> "NoReturn":
    """Listen and end this process."""
    code = EXIT_FAULT
    try:
        code = _main(argv)
    except InterlinkError as exc:
        _complain(str(exc))
        code = exc.exit_code
    except BaseException as exc:  # noqa: BLE001 - also SystemExit: no exception may choose the exit code
        _complain(f"internal error, {type(exc).__name__}: {exc}")
    finally:
        os._exit(code)


def _main(argv: Sequence[str]) -> int:
    if not _plug_standard_streams():
        return EXIT_FAULT
    arguments = parse(argv)
    if arguments.help:
        os.write(1, USAGE.encode("ascii"))
        return EXIT_OK
    from interlink.listener.loop import Listener
    from interlink.listener.watch import exit_on_ending_signals

    exit_on_ending_signals()
    return Listener(
        Layout(state_root(os.environ)),
        load(os.environ),
        os.environ,
        session=arguments.session,
        renew_after_s=arguments.renew_after_s,
    ).run()


def _plug_standard_streams() -> bool:
    """Give a missing standard stream /dev/null, so that no file of ours gets its number.

    False without a standard error: there is nobody to hand a notice to.
    """
    found = True
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
            found = fd != 2
    return found


def _complain(text: str) -> None:
    from interlink.listener.loop import emit
    from interlink.text import clean_line

    emit(2, f"{PROGRAM}: {clean_line(text, 500)}\n".encode("utf-8", "replace"))


if __name__ == "__main__":
    run(sys.argv[1:])
