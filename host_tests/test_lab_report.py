"""The report in a real browser: drawn, linked, reached by keyboard, and deaf to what a history holds."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.lab_history import Script, delivered

from interlink_lab.report.browser import Browser, find
from interlink_lab.report.load import load
from interlink_lab.report.page import page
from interlink_lab.report.timeline import timeline

HOSTILE = "</script><img src=x onerror=\"document.title='taken'\">"


@pytest.fixture(scope="module")
def browser(need: Callable[[str, bool, str], None]) -> Iterator[Browser]:
    program = find()
    need("Chromium", program is not None, "Debian: apt-get install chromium")
    assert program is not None
    with Browser(program) as found:
        yield found


@pytest.fixture
def script() -> Script:
    script = Script()
    delivered(script)
    script.add("lab", "fault", id=1, fault="pause", target="bob.server", lasts=True)
    script.add("lab", "fault.end", 1.0, id=1)
    return script


def report(script: Script, folder: Path) -> tuple[Path, dict[str, list[object]]]:
    """The page of a history, and its data."""
    script.end()
    rows = "".join(json.dumps(event) + "\n" for event in script.history.events)
    (folder / "history.jsonl").write_text(rows, "utf-8")
    data = timeline(load(folder))
    path = folder / "report.html"
    path.write_text(page(data), "utf-8")
    return path, data


@pytest.mark.req("V3")
@pytest.mark.parametrize(("width", "dark"), [(1360, False), (420, True)])
def test_what_there_is_is_drawn(browser: Browser, script: Script, tmp_path: Path, width: int, dark: bool) -> None:
    path, data = report(script, tmp_path)
    browser.window(width, 860, dark)
    browser.open(path)
    assert browser.console == []
    assert browser.requests == [path.resolve().as_uri()]  # and nothing else was asked for
    assert browser.value("document.querySelectorAll('#scroll svg .band, #chart svg .band').length") >= len(
        data["bands"]
    )
    kinds = {arrow["kind"] for arrow in data["arrows"]}  # type: ignore[index]
    for kind in kinds:
        assert browser.value(f"document.querySelectorAll('#chart svg .k-{kind}').length") > 0, kind
    wide = browser.value("document.documentElement.scrollWidth <= window.innerWidth")
    assert wide, "the page itself must not scroll sideways"


@pytest.mark.req("V3")
def test_a_failed_invariant_leads_to_its_events(browser: Browser, script: Script, tmp_path: Path) -> None:
    script.fetch(1)  # what was acknowledged comes back
    path, data = report(script, tmp_path)
    browser.window(1360, 860)
    browser.open(path)
    assert "acked-never-again" in browser.value("document.getElementById('violations').textContent")
    browser.value("document.querySelector('#violations a').click()")
    first = data["events"][data["violations"][0]["events"][0]]  # type: ignore[index,call-overload]
    details = browser.value("document.getElementById('details').textContent")
    assert first["party"] in details and f"{first['t']:.3f}" in details
    assert browser.console == []


def test_a_link_from_outside_chooses_its_event(browser: Browser, script: Script, tmp_path: Path) -> None:
    script.fetch(1)
    path, data = report(script, tmp_path)
    number = data["violations"][0]["events"][0]  # type: ignore[index,call-overload]
    browser.open(path, f"#e{number}")
    assert "bob.agent" in browser.value("document.getElementById('details').textContent")


def test_what_a_history_holds_is_text(browser: Browser, script: Script, tmp_path: Path) -> None:
    script.add("bob.host", "says", text=HOSTILE)
    script.sent(token=HOSTILE, msg_id=HOSTILE)
    script.add(HOSTILE, HOSTILE)
    path, _ = report(script, tmp_path)
    browser.open(path)
    assert browser.value("document.title") != "taken"
    assert browser.value("document.images.length") == 0
    assert browser.console == [] and browser.requests == [path.resolve().as_uri()]
    assert HOSTILE in browser.value("document.body.textContent")
