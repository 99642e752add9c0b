"""The report for a terminal."""

from typing import Any

from rich.console import Console
from rich.markup import escape

from interlink_lab.report.load import Recorded, identity
from interlink_lab.report.text import clean, line

MESSAGES = 40
EVENTS = 200
AROUND_S = 2.0  # of time before and after what proves a violation
COLOURS = {"passed": "green", "failed": "red"}


def show(console: Console, run: Recorded, data: dict[str, Any], all_events: bool = False) -> None:
    """Print verdict, violations, faults, messages, events."""
    colour = COLOURS.get(data["result"], "yellow")
    counts = ", ".join(f"{count} {name}" for name, count in data["counts"].items())
    console.print(
        f"[bold {colour}]{data['result']}[/] {_safe(data['scenario'])} \\[{_safe(data['backend'])}] {counts}"
    )
    for text in (data["error"], *data["notes"]):
        if text:
            console.print(f"  {_safe(text)}")
    if data["replay"]:
        console.print(f"  run it again: {_safe(data['replay'])}")
    for number, wrong in enumerate(data["violations"], 1):
        often = f" (found {wrong['count']} times)" if wrong["count"] > 1 else ""
        console.print(f"\n[bold red]{number}. {_safe(wrong['invariant'])}[/]: {_safe(wrong['text'])}{often}")
        for at in wrong["events"]:
            console.print(f"   e{at:<6}" + escape(line(data["events"][at])), soft_wrap=True)
        for event in wrong["foreign"]:
            console.print("   not in this history: " + escape(line(event)), soft_wrap=True)
    if data["bands"]:
        console.print("\n[bold]Faults[/]")
        for band in data["bands"]:
            what = f"{_safe(band['fault'])} on {_safe(band['target'])}"
            console.print(f"  {band['begin']:9.3f} to {band['end']:9.3f} s  {what}", soft_wrap=True)
    _messages(console, data)
    console.print("\n[bold]Events[/]")
    _events(console, run, data, all_events)


def _safe(value: object) -> str:
    return escape(clean(str(value)))


def _messages(console: Console, data: dict[str, Any]) -> None:
    """A row a message: when it was sent, how much later each further step was; those not done first to stay."""
    rows = data["messages"]
    if not rows:
        return
    steps = data["steps"]
    kept = sorted(range(len(rows)), key=lambda n: (rows[n]["done"], n))[:MESSAGES]
    width = max(len(clean(rows[n]["token"])) for n in kept)
    way = max(len(clean(rows[n]["sender"] + rows[n]["receiver"])) for n in kept) + 4
    console.print("\n[bold]Messages[/]: s since the start, then s after the step before (accepted: as told)")
    console.print(f"  {'':<{width}} {'':<{way}} " + " ".join(f"{step:>8}" for step in steps), soft_wrap=True)
    for number in sorted(kept):
        row, before, cells = rows[number], None, []
        for step in steps:
            at = row["steps"].get(step)
            time = None if at is None else data["events"][at]["t"]
            cells.append("-" if time is None else f"{time:.3f}" if before is None else f"{time - before:+.3f}")
            before = before if time is None else time
        names = clean(f"{row['sender']} -> {row['receiver']}")
        text = f"{clean(row['token']):<{width}} {names:<{way}} " + " ".join(f"{cell:>8}" for cell in cells)
        text = escape(f"{text}  {row['outcome']}")
        console.print(f"  {text}" if row["done"] else f"[red]> {text}[/]", soft_wrap=True)
    if len(rows) > len(kept):
        console.print(f"  {len(rows) - len(kept)} more: the page lists them")


def _events(console: Console, run: Recorded, data: dict[str, Any], all_events: bool) -> None:
    """All of them, or those near to what proves a violation, or the first ones."""
    wrong = {at for v in data["violations"] for at in v["events"]}
    proof = [data["events"][at]["t"] for at in wrong]
    marked = {identity(data["events"][at]) for at in wrong}
    shown, left = 0, 0
    for number, event in enumerate(run.history.ordered(), 1):
        near = not proof or any(abs(event["t"] - t) <= AROUND_S for t in proof)
        if not all_events and (not near or shown >= EVENTS) and identity(event) not in marked:
            left += 1
            continue
        shown += 1
        bad = identity(event) in marked
        text = f"{'>' if bad else ' '} e{number:<6}" + escape(line(event))
        console.print(f"[red]{text}[/]" if bad else text, soft_wrap=True)
    if left:
        console.print(f"  {left} more: --all prints them, the page draws them")
