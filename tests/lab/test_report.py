"""The report of a run: what is drawn, what text says, and that nothing in a history gets into the page."""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console
from support.lab_history import Script, delivered

from interlink_lab.checker import check
from interlink_lab.report import scale
from interlink_lab.report.load import load
from interlink_lab.report.page import page
from interlink_lab.report.terminal import show
from interlink_lab.report.text import line
from interlink_lab.report.timeline import folded, timeline
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


def test_two_messages_do_not_share_their_arrows(script: Script, tmp_path: Path) -> None:
    script.sent("m:2", "id2")
    script.record("receiver_stored", 2, "id2", "m:2")
    script.end()
    data = timeline(load(saved(script, tmp_path)))
    of = [{a["kind"] for a in data["arrows"] if number in a["messages"]} for number in (0, 1)]
    assert of == [{"send", "relay", "notice", "wake", "fetch", "ack"}, {"send", "relay"}]
    assert [m["outcome"] for m in data["messages"]] == ["acknowledged", "unread"]


def test_a_record_that_the_log_knew_of_before_the_watcher_keeps_its_event(tmp_path: Path) -> None:
    script = Script()
    script.sent()
    script.add("bob.server", "log", event="stored", fields={"msg_id": "id1"})
    record = script.history.events[-1]
    script.record("receiver_stored", after=0.5)
    script.end()
    data = timeline(load(saved(script, tmp_path)))
    (message,) = data["messages"]
    stored = data["events"][message["steps"]["stored"]]
    assert stored["kind"] == "record" and stored["t"] == pytest.approx(record["t"] + 0.5)


def test_violations_that_say_the_same_are_one_with_a_count() -> None:
    def event(n: int) -> dict[str, object]:
        return {"t": float(n), "party": "bob.listener", "n": n, "kind": "exit"}

    rows = [
        {"invariant": "a", "text": "twice", "events": [event(1), event(2)]},
        {"invariant": "b", "text": "twice", "events": [event(1)]},
        {"invariant": "a", "text": "twice", "events": [event(1), event(3)]},
        {"invariant": "a", "text": "thrice", "events": [event(4)]},
    ]
    found = [(v["invariant"], v["text"], v["count"], [e["n"] for e in v["events"]]) for v in folded(rows)]
    assert found == [("a", "twice", 2, [1, 2, 3]), ("a", "thrice", 1, [4]), ("b", "twice", 1, [1])]


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


def test_a_kill_is_drawn_as_a_moment_and_one_that_hit_nothing_is_not(script: Script, tmp_path: Path) -> None:
    at = script.add("lab", "fault", id=1, fault="kill-server", target="bob.server", lasts=False)["t"]
    script.add("lab", "fault", id=2, fault="kill-listener", target="bob.listener", lasts=False)
    script.add("lab", "fault.missed", id=2, why="there was nothing to kill")
    script.end()
    data = timeline(load(saved(script, tmp_path)))
    (band,) = data["bands"]
    assert (band["fault"], band["begin"], band["end"]) == ("kill-server", at, at)
    assert [data["lanes"][lane]["name"] for lane in band["lanes"]] == ["bob.server"]


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


def test_each_arrow_goes_from_lane_to_lane(script: Script, tmp_path: Path) -> None:
    script.end()
    data = timeline(load(saved(script, tmp_path)))
    names = [lane["name"] for lane in data["lanes"]]
    ways = {(a["kind"], *(names[lane] for lane, _ in a["points"])) for a in data["arrows"]}
    assert ways == {
        ("send", "alice.host", "alice.server"),
        ("relay", "alice.server", "r1", "r1", "bob.server"),
        ("notice", "bob.server", "bob.listener"),
        ("wake", "bob.listener", "bob.host"),
        ("fetch", "bob.server", "bob.host"),
        ("ack", "bob.host", "bob.server"),
    }
    (message,) = data["messages"]
    assert list(message["steps"]) == list(data["steps"]) and message["outcome"] == "acknowledged"
    assert all(arrow["messages"] == [0] for arrow in data["arrows"])


def test_a_message_that_is_never_stored_ends_on_the_relay(script: Script, tmp_path: Path) -> None:
    script.sent(token="m:lost", msg_id="lost")
    script.end()
    data = timeline(load(saved(script, tmp_path)))
    (arrow,) = [a for a in data["arrows"] if a["kind"] == "relay" and a["failed"]]
    assert data["lanes"][arrow["points"][-1][0]]["name"] == "r1"
    assert [m["outcome"] for m in data["messages"]] == ["acknowledged", "never stored"]


def test_what_was_open_at_the_end_is_drawn_to_its_end(script: Script, tmp_path: Path) -> None:
    script.armed(pid=13)
    ending = script.at + 0.1
    script.end()
    bars = timeline(load(saved(script, tmp_path)))["bars"]
    (armed,) = [b for b in bars if b["kind"] == "armed" and b["begin"] > 0.1]
    assert armed["end"] == pytest.approx(ending)  # files are not watched after that
    (server,) = [b for b in bars if b["kind"] == "life" and b["lane"] == 5]
    assert server["end"] == pytest.approx(script.at)


def test_a_burst_is_drawn_as_few_marks_that_say_how_many_they_are(tmp_path: Path) -> None:
    script = Script()
    count = 4000
    for n in range(1, count + 1):
        script.sent(f"m:{n}", f"id{n}")
        script.record("receiver_stored", n, f"id{n}", f"m:{n}")
    script.fetch(3)
    script.end()
    proof = next(e for e in script.history.events if e.get("token") == "m:2000" and e["kind"] == "record")
    folder = saved(script, tmp_path)
    run = load(folder)
    run.violations = [{"invariant": "fetch-order", "text": "", "events": [proof]}]
    data = timeline(run)
    assert len(data["marks"]) < 3000 and len(data["arrows"]) < 1000 and len(data["messages"]) <= 400
    assert sum(mark[2] for mark in data["marks"]) == len(script.history.events)
    assert sum(a["count"] for a in data["arrows"] if a["kind"] == "send") == count
    (number,) = data["violations"][0]["events"]
    assert [number, 1] in [[mark[0], mark[2]] for mark in data["marks"]]  # what proves something stays
    assert "stands for so many" in " ".join(data["notes"])
    assert len(page(data)) < 4_000_000


def test_the_axis_is_true_to_time_where_things_happen_and_cut_where_nothing_does() -> None:
    times = [0.0, 1.0, 1.1, 1.2, 1.4, 100.0, 100.1]
    axis, cuts = scale.knots(times, 1.0, 100.1)
    places = [scale.place(axis, t) for t in times]
    assert places == sorted(places)
    steps = [b - a for a, b in pairwise(places)]
    assert steps[1] == pytest.approx(steps[2]) and steps[3] == pytest.approx(2 * steps[2])
    assert cuts == [(0.0, 1.0), (1.4, 100.0)] and steps[4] < 5 * steps[1]


def test_a_history_whose_writer_was_ended_is_read_up_to_its_torn_line(script: Script, tmp_path: Path) -> None:
    folder = saved(script, tmp_path)
    whole = (folder / "history.jsonl").read_text("utf-8")
    (folder / "history.jsonl").write_text(whole + '{"t": 9.0, "par', "utf-8")
    run = load(folder)
    assert len(run.history.events) == len(script.history.events) and "torn" in run.notes[0]
    (folder / "history.jsonl").write_text('{"t": 9.0, "par\n' + whole, "utf-8")
    with pytest.raises(ValueError, match=r"history\.jsonl:1"):
        load(folder)
