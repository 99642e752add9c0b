"""`interlink doctor`: what is wrong, and what to do about it. Takes no lock, changes no file."""

import os
from collections import Counter

import click

from interlink.cli import options, shown
from interlink.doctor.finding import BROKEN, LEVELS, OK, WARN, Finding
from interlink.doctor.run import examine
from interlink.errors import EXIT_FAULT, EXIT_OK
from interlink.text import clean_line

_MAX_CHARS = 1000
_MARKS = {OK: "ok", WARN: "WARN", BROKEN: "BROKEN"}


@click.command(
    name="doctor",
    context_settings=options.HELP,
    epilog="Exit codes: 0 nothing is broken (warnings may be there); 1 something is; 64 a wrong command line.",
)
@click.option("--problems", is_flag=True, help="Leave out what is in order.")
@options.key_option
@options.peers_option
@options.url_option
@options.token_option
@options.json_option
def command(problems: bool, as_json: bool, **paths: str | None) -> int:
    """Look at everything and say what is wrong: key, peers, relays, clocks, sessions, notices, listeners, locks,
    hooks, files.

    It only looks. Give it the options and the environment of the server that it is about. --json holds no
    credentials and no message.
    """
    findings = examine(paths, os.environ, options.now_ms())
    levels = Counter(f.level for f in findings)
    chosen = [f for f in findings if f.level != OK or not problems]
    if as_json:
        shown.print_json({**{level: levels[level] for level in LEVELS}, "findings": [_as_json(f) for f in chosen]})
    else:
        for found in chosen:
            _print(found)
        shown.say(f"{levels[BROKEN]} broken, {shown.count(levels[WARN], 'warning')}, {levels[OK]} in order")
    return EXIT_FAULT if levels[BROKEN] else EXIT_OK


def _print(found: Finding) -> None:
    shown.say(f"{_MARKS[found.level]:<7} {found.check:<9} {clean_line(found.text, _MAX_CHARS)}")
    if found.advice:
        shown.say(f"{'':<17} -> {clean_line(found.advice, _MAX_CHARS)}")


def _as_json(found: Finding) -> dict[str, object]:
    return {
        "level": found.level,
        "check": found.check,
        "text": clean_line(found.text, _MAX_CHARS),
        "advice": clean_line(found.advice, _MAX_CHARS),
        "data": dict(found.data),
    }
