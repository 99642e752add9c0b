"""The report of a run: what is drawn, what text says, and that nothing in a history gets into the page."""

import json
import re
from pathlib import Path

import pytest
from rich.console import Console
from support.lab_history import Script, delivered

from interlink_lab.checker import check
from interlink_lab.report.load import load
from interlink_lab.report.page import page
from interlink_lab.report.terminal import show
from interlink_lab.report.text import line
from interlink_lab.report.timeline import timeline
from interlink_lab.verdict import row

HOSTILE = "</script><img src=x onerror=alert(1)>\u2028<!--"


@pytest.fixture
def script() -> Script:
    script = Script()
    delivered(script)
    return script


def saved(script: Script, folder: Path) -> Path:
    """The history of a run, in a folder as a run leaves it, without a verdict."""
    rows = "".join(json.dumps(event) + "\n" for event in script.history.events)
    (folder / "history.jsonl").write_text(rows, "utf-8")
    return folder


def test_a_message_is_an_arrow_from_step_to_step(script: Script, tmp_path: Path) -> None:
    script.end()
    data = timeline(load(saved(script, tmp_path)))
    kinds = [arrow["kind"] for arrow in data["arrows"]]
    assert set(kinds) >= {"send", "notice", "wake", "fetch", "ack"}
    assert not data["violations"]
    (message,) = data["messages"]
    assert message["token"] == "m:1"


def test_a_violation_is_linked_to_the_events_that_prove_it(script: Script, tmp_path: Path) -> None:
    script.fetch(1)
    script.end()
    data = timeline(load(saved(script, tmp_path)))
    (wrong,) = data["violations"]
    assert wrong["invariant"] == "acked-never-again" and wrong["rule"]
    kinds = [data["events"][number]["kind"] for number in wrong["events"]]
    assert kinds == ["ack", "fetch.begin", "fetch"]


def test_a_fault_is_a_band_over_its_target(script: Script, tmp_path: Path) -> None:
    script.add("lab", "fault", id=1, fault="pause", target="bob.server", lasts=True)
    script.add("lab", "fault.end", 1.5, id=1)
    script.end()
    data = timeline(load(saved(script, tmp_path)))
    (band,) = data["bands"]
    assert band["fault"] == "pause" and band["end"] - band["begin"] == pytest.approx(1.5)
    assert band["lanes"]


def test_nothing_of_a_history_becomes_a_part_of_the_page(script: Script, tmp_path: Path) -> None:
    script.add(HOSTILE, HOSTILE, text=HOSTILE)
    script.sent(token=HOSTILE, msg_id=HOSTILE)
    script.end()
    html = page(timeline(load(saved(script, tmp_path))))
    assert "<img" not in html and "\u2028" not in html
    assert html.count("</script>") == 2 and html.count("<!--") == 0
    assert re.search(r"<script[^>]*src|<link|https?://(?!www\.w3\.org)", html) is None  # it loads nothing
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    assert HOSTILE in json.dumps(json.loads(data), ensure_ascii=False)  # and it is all there


def test_text_shows_the_verdict_its_proof_and_the_messages(script: Script, tmp_path: Path) -> None:
    script.fetch(1)
    script.end()
    run = load(saved(script, tmp_path))
    console = Console(record=True, width=200, file=open("/dev/null", "w"))
    show(console, run, timeline(run))
    text = console.export_text()
    assert "acked-never-again" in text and "m:1" in text


def test_a_line_of_text_has_no_control_characters() -> None:
    said = line({"t": 1.0, "party": "bob.host", "n": 1, "kind": "wake", "text": "\x1b[31mred\n\u202eback"})
    assert said.isprintable() and "red" in said


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        load(tmp_path)
    (tmp_path / "history.jsonl").write_text("[1, 2]\n", "utf-8")
    with pytest.raises(ValueError):
        timeline(load(tmp_path))


def test_the_report_says_what_the_checker_says(script: Script, tmp_path: Path) -> None:
    script.fetch(1)
    script.end()
    found = [row(violation) for violation in check(script.history)]
    assert [v["invariant"] for v in load(saved(script, tmp_path)).violations] == [v["invariant"] for v in found]
