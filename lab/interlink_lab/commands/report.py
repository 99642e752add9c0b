"""`interlink-lab report RUN`: a run's timeline as text and as one HTML file."""

import sys
from pathlib import Path

import click
from rich.console import Console

from interlink_lab.commands.shell import EXIT_BROKEN, run_command, usage
from interlink_lab.report.browser import Browser, BrowserFailed, find
from interlink_lab.report.load import load
from interlink_lab.report.page import page
from interlink_lab.report.terminal import show
from interlink_lab.report.timeline import timeline

PICTURE = (1360, 860)  # px


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--text", "text_only", is_flag=True, help="print, write no file")
@click.option("--html", "html_only", is_flag=True, help="write the file, print its name alone")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="the HTML file [RUN/report.html]")
@click.option("--recheck", is_flag=True, help="check the history again in place of what verdict.json says")
@click.option("--picture", type=click.Path(path_type=Path), default=None, help="PNG of the page, by Chromium")
@click.option("--all", "all_events", is_flag=True, help="print all events, not just those around what is wrong")
def command(
    run: Path, text_only: bool, html_only: bool, out: Path | None, recheck: bool, picture: Path | None,
    all_events: bool,
) -> None:  # fmt: skip
    """Show a recorded run: the folder of a run, or its history.jsonl."""
    try:
        recorded = load(run, recheck)
        data = timeline(recorded)
    except (OSError, ValueError) as exc:
        usage(f"no recorded run in {run}: {exc}")
    path = out or recorded.folder / "report.html"
    if not text_only:
        path.write_text(page(data), "utf-8")
    if not html_only:
        show(Console(highlight=False), recorded, data, all_events)
    if not text_only:
        click.echo(str(path) if html_only else f"timeline: {path}")
        if picture is not None:
            _picture(path, picture)


def _picture(page_file: Path, to: Path) -> None:
    """The upper part of the page, as the README and the documents show it. Exit 3 without a browser."""
    program = find()
    if program is None:
        click.echo("no Chromium on PATH (Debian: apt-get install chromium)", err=True)
        sys.exit(EXIT_BROKEN)
    try:
        with Browser(program) as browser:
            browser.window(*PICTURE)
            browser.open(page_file)
            browser.picture(to)
    except BrowserFailed as exc:
        click.echo(f"no picture: {exc}", err=True)
        sys.exit(EXIT_BROKEN)
    click.echo(f"picture: {to}")


if __name__ == "__main__":
    run_command(command, "interlink-lab report")
