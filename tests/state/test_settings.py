"""Settings: the defaults, the environment, and no bad value that stops a start."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlink import settings
from interlink.settings import ALIASES, TABLE, Settings, env_name, load


def names() -> set[str]:
    return {n for n in Settings.__annotations__ if n != "problems"}


def test_every_setting_has_one_row_and_every_row_a_setting() -> None:
    assert set(TABLE) == names()
    assert set(ALIASES) <= names()


@pytest.mark.parametrize("name", sorted(TABLE))
def test_default_lies_in_its_range(name: str) -> None:
    low, high, doc = TABLE[name]
    value = getattr(Settings, name)
    for number in value if isinstance(value, tuple) else (value,):
        assert low <= number <= high
    assert doc and not doc.endswith(".")


def test_documented_defaults() -> None:
    s = load({})
    assert s.problems == []
    assert s.text_max_bytes == 1 << 20 and s.message_max_bytes == 2 << 20
    assert (s.mailbox_max_records, s.mailbox_max_bytes) == (4096, 32 << 20)
    assert (s.relay_queue_max_messages, s.relay_queue_max_bytes, s.relay_max_bytes) == (10_000, 64 << 20, 1 << 30)
    assert (s.outbox_max_messages, s.outbox_max_bytes) == (1000, 32 << 20)
    assert s.notice_schedule_s == (30, 60, 120, 240, 300)
    assert (s.fresh_ahead_s, s.fresh_behind_s, s.replay_slack_s) == (60, 86_400, 60)
    assert (s.ephemeral_ttl_s, s.resume_memory_s, s.failed_ttl_s, s.roster_ttl_s) == (600, 86_400, 86_400, 259_200)


@pytest.mark.parametrize("name", sorted(TABLE))
def test_each_setting_takes_its_variable(name: str) -> None:
    low, high, _doc = TABLE[name]
    for number in (low, high):
        text = str(number if name.endswith("_s") else int(number))
        s = load({env_name(name): text})
        assert s.problems == []
        value = getattr(s, name)
        assert value == ((number,) if isinstance(value, tuple) else number)


@pytest.mark.parametrize("name", sorted(TABLE))
def test_a_value_out_of_range_is_named_and_the_default_stays(name: str) -> None:
    low, high, _doc = TABLE[name]
    for text in (str(math.floor(low) - 1), str(int(high) + 1), "abc", "nan", "inf", "-inf", "1e999", "1,x"):
        s = load({env_name(name): text})
        assert len(s.problems) == 1, text
        assert env_name(name) in s.problems[0] and f"{low:g} to {high:g}" in s.problems[0]
        assert getattr(s, name) == getattr(Settings, name)


def test_a_schedule_is_comma_separated() -> None:
    assert load({"INTERLINK_NOTICE_SCHEDULE_S": "1,2.5,3"}).notice_schedule_s == (1, 2.5, 3)
    bad = load({"INTERLINK_NOTICE_SCHEDULE_S": "1,,3"})
    assert bad.notice_schedule_s == (30, 60, 120, 240, 300)
    assert "comma-separated" in bad.problems[0] and "30,60,120,240,300 is used" in bad.problems[0]


@pytest.mark.req("T4")
def test_older_names_still_work_and_the_newer_one_wins() -> None:
    assert load({"INTERLINK_PROGRESS_INTERVAL": "0"}).progress_interval_s == 0
    assert load({"INTERLINK_QUEUE_CAP": "7"}).relay_queue_max_messages == 7
    both = {"INTERLINK_PROGRESS_INTERVAL": "5", "INTERLINK_PROGRESS_INTERVAL_S": "9"}
    assert load(both).progress_interval_s == 9


def test_an_empty_variable_is_unset() -> None:
    s = load({env_name(name): "" for name in TABLE})
    assert s.problems == [] and all(getattr(s, n) == getattr(Settings, n) for n in TABLE)


def test_loading_does_not_change_the_defaults_of_others() -> None:
    load({"INTERLINK_FETCH_DEFAULT": "3"})
    assert Settings().fetch_default == load({}).fetch_default == 20


@given(st.dictionaries(st.sampled_from([env_name(n) for n in TABLE]), st.text(max_size=30)))
def test_any_text_gives_settings_in_range(environ: dict[str, str]) -> None:
    s = settings.load(environ)
    assert len(s.problems) <= len(environ)
    for name, (low, high, _doc) in TABLE.items():
        value = getattr(s, name)
        assert all(low <= n <= high for n in (value if isinstance(value, tuple) else (value,)))
