"""Refusals are counted on disk, so that `doctor` can show them after a restart (G3)."""

import json
import os
import threading
from pathlib import Path

import pytest
from support.cli import ME, desk, layout, me
from support.keys import ALICE, CAROL, message
from support.mail import DAY_MS, HOUR_MS, Desk, note, settings

from interlink.session.counters import Refusals, read_counts
from interlink.settings import Settings


def counts(one: Desk) -> tuple[dict[str, int], dict[str, int]]:
    found = read_counts(one.layout, ME, one.mailbox.session)
    return found.counts, found.expired_by


@pytest.mark.req("G3")
def test_what_was_too_old_is_counted_by_sender_and_known_to_the_next_process() -> None:
    me(alice=ALICE, carol=CAROL)
    box = desk(set_to=settings(counts_every_s=0))
    late = box.now - DAY_MS - HOUR_MS
    assert box.admit(note("a", ts=late), note("b", ts=late), note("c", sender=CAROL, ts=late)) == ["expired"] * 3
    assert counts(box) == ({"expired": 3}, {ALICE.public: 2, CAROL.public: 1})
    again = box.reopened()
    again.admit(note("d", ts=late))
    assert counts(again) == ({"expired": 4}, {ALICE.public: 3, CAROL.public: 1})


@pytest.mark.req("G3")
def test_every_reason_is_counted_and_what_was_stored_is_none() -> None:
    me()
    box = desk(set_to=settings(counts_every_s=0), names={ALICE.public: "alice"})
    forged = note("f", ts=box.now)
    forged.text = "another"
    stranger = note("s", sender=CAROL, ts=box.now)
    box.admit(note("ok", ts=box.now), forged, stranger, message(ALICE, CAROL, msg_id="x", ts=box.now))
    assert counts(box) == ({"bad_signature": 1, "stranger": 1, "not_for_us": 1}, {})
    box.admit(note("ok", ts=box.now))
    assert counts(box)[0] == {"bad_signature": 1, "stranger": 1, "not_for_us": 1}


def test_the_file_is_written_at_most_every_few_seconds_and_at_the_end() -> None:
    me()
    box = desk(set_to=settings(counts_every_s=5), names={})
    for second in range(4):
        box.now += second
        box.admit(note(f"m{second}", ts=box.now))
    assert counts(box)[0] == {"stranger": 1}
    box.now += 5_000
    box.admit(note("later", ts=box.now))
    assert counts(box)[0] == {"stranger": 5}
    box.admit(note("last", ts=box.now))
    box.admission.refusals.flush(box.now, at_once=True)
    assert counts(box)[0] == {"stranger": 6}


def test_two_processes_of_a_session_add_up() -> None:
    root = me()
    many = [Refusals(layout(), ME, "s1", settings(counts_every_s=0)) for _ in range(4)]

    def work(one: Refusals) -> None:
        for number in range(25):
            one.add("stranger")
            one.flush(number)
        one.flush(99, at_once=True)

    threads = [threading.Thread(target=work, args=(one,)) for one in many]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in many:
        one.flush(100, at_once=True)  # what a busy lock left
    assert read_counts(layout(), ME, "s1").counts == {"stranger": 100}
    assert Path(root, "counts", ME).stat().st_mode & 0o777 == 0o700


@pytest.mark.req("X5")
def test_a_file_that_cannot_be_written_stops_nothing_and_loses_nothing(tmp_path: Path) -> None:
    one = Refusals(Desk(str(tmp_path)).layout, ME, "s1", settings(counts_every_s=0))
    (tmp_path / "counts").write_text("in the way")
    one.add("stranger")
    one.flush(1)
    (tmp_path / "counts").unlink()
    one.add("expired", expired_from=ALICE.public)
    one.flush(2)
    found = read_counts(Desk(str(tmp_path)).layout, ME, "s1")
    assert found.counts == {"stranger": 1, "expired": 1}


def test_a_damaged_file_is_begun_anew() -> None:
    me()
    path = layout().counts(ME, "s1")
    os.makedirs(os.path.dirname(path), mode=0o700)
    for content in ("{", '{"counts": []}', "x" * (2 << 20)):
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)
        one = Refusals(layout(), ME, "s1", Settings())
        one.add("stranger")
        one.flush(7, at_once=True)
        with open(path, encoding="utf-8") as file:
            assert json.load(file) == {"counts": {"stranger": 1}, "expired_by": {}, "since_ms": 7, "at_ms": 7}
        os.unlink(path)
