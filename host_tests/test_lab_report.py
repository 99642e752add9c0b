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
def started() -> Iterator[Browser | None]:
    """One browser for all tests of this file; None where there is none."""
    program = find()
    if program is None:
        yield None
        return
    with Browser(program) as found:
        yield found


@pytest.fixture
def browser(started: Browser | None, need: Callable[[str, bool, str], None]) -> Browser:
    need("Chromium", started is not None, "Debian: apt-get install chromium")
    assert started is not None
    return started


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


def count(browser: Browser, selector: str) -> int:
    found: int = browser.value(f"document.querySelectorAll({json.dumps(selector)}).length")
    return found


def chosen(browser: Browser) -> bool:
    """Whether the ring of the chosen event is around the mark that the address names, where one can see it."""
    found: bool = browser.value("""(() => {
        const middle = (node) => {
            const box = node.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2];
        };
        const mark = document.querySelector(location.hash), ring = document.querySelector('.cursor-ring');
        const frame = document.getElementById('scroll').getBoundingClientRect();
        const [x, y] = middle(ring), [mx, my] = middle(mark.querySelector(':not(title)'));
        return Math.hypot(x - mx, y - my) < 3 && x > frame.left && x < frame.right && y > 0 && y < innerHeight;
    })()""")
    return found


@pytest.mark.req("V3")
@pytest.mark.parametrize(("width", "dark"), [(1360, False), (420, True)])
def test_what_there_is_is_drawn(browser: Browser, script: Script, tmp_path: Path, width: int, dark: bool) -> None:
    path, data = report(script, tmp_path)
    browser.window(width, 860, dark)
    browser.open(path)
    assert browser.console == []
    assert browser.requests == [path.resolve().as_uri()]  # and nothing else was asked for
    assert count(browser, "#scroll .fault-band") == len(data["bands"]) == 1
    assert count(browser, "#scroll .arrow") == len(data["arrows"]) == 6
    for arrow in data["arrows"]:
        kind = arrow["kind"]  # type: ignore[index]
        assert count(browser, f"#scroll .arrow .way.k-{kind}") == 1, kind
    assert count(browser, "#scroll g.mark[id^=e]") == len(data["marks"])
    assert count(browser, "#names div") == len(data["lanes"])
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
    assert count(browser, "#scroll .ring") == 3 and count(browser, "#scroll .flagged") == 1
    browser.until("document.querySelector('.cursor-ring') !== null")
    assert chosen(browser)
    details = browser.value("document.getElementById('details').textContent")
    assert first["party"] in details and f"{first['t']:.3f}" in details
    assert browser.console == []


def test_a_link_from_outside_chooses_its_event(browser: Browser, script: Script, tmp_path: Path) -> None:
    script.fetch(1)
    path, data = report(script, tmp_path)
    number = data["violations"][0]["events"][0]  # type: ignore[index,call-overload]
    browser.open(path, f"#e{number}")
    assert "bob.agent" in browser.value("document.getElementById('details').textContent")
    browser.value("for (let i = 0; i < 6; i += 1) document.getElementById('zoom-in').click()")
    assert chosen(browser), "zooming keeps the chosen event in sight"


def test_keys_go_from_event_to_event_and_from_lane_to_lane(
    browser: Browser, script: Script, tmp_path: Path
) -> None:
    path, data = report(script, tmp_path)
    browser.open(path)
    browser.value("document.getElementById('scroll').focus()")
    browser.key("ArrowRight")
    assert browser.value("location.hash") == "#e1" and chosen(browser)
    browser.key("ArrowRight")
    assert browser.value("location.hash") == "#e2"
    browser.key("ArrowDown")
    number = browser.value("location.hash").removeprefix("#e")
    assert data["lane_of"][int(number)] == 1  # type: ignore[call-overload]
    browser.key("Escape")
    assert count(browser, ".cursor-ring") == 0


def test_what_is_filtered_away_is_not_drawn(browser: Browser, script: Script, tmp_path: Path) -> None:
    path, _ = report(script, tmp_path)
    browser.open(path)
    browser.value("""[...document.querySelectorAll('#filters label')]
        .find((label) => label.textContent === 'reads').querySelector('input').click()""")
    assert count(browser, "#scroll .k-fetch, #scroll .k-ack") == 2  # the heads of the arrows, defined and not used
    assert count(browser, "#scroll .way.k-send") == 1
    browser.value("""(() => { const box = document.getElementById('search'); box.value = 'm:1';
        box.dispatchEvent(new Event('input')); })()""")
    rows = browser.value("[...document.querySelectorAll('#events tr')].slice(1).map((row) => row.textContent)")
    assert rows and all("m:1" in row for row in rows)


def test_the_arrows_of_a_message_stand_out(browser: Browser, script: Script, tmp_path: Path) -> None:
    script.sent(token="m:2", msg_id="id2")
    path, data = report(script, tmp_path)
    browser.open(path)
    browser.value("document.querySelector('#m0 button').click()")
    assert count(browser, "#scroll .arrow.hot") == 6 and len(data["arrows"]) == 8


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
