"""The inbox file: whole synced records, exact cursor, no gap (C6, C7, C11)."""

import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.crash import crashes, unsynced
from support.listener import KEY, OTHER_KEY, cursor, layout, legacy, notice, put, size, wait_once

from interlink import inbox
from interlink.errors import LockBusy, StateError
from interlink.state.flock import Flock
from interlink.state.paths import Layout


def numbers(batch: inbox.Batch) -> list[object]:
    return [record["msg_id"] for record in batch.records]


def tail(data: bytes) -> None:
    with open(layout().inbox("s1"), "ab") as f:
        f.write(data)


@pytest.mark.req("C6", "M29")
def test_records_are_lines_in_private_files() -> None:
    put(notice(1), legacy("a\nb\u2028c\u0085d\re \x00 é 😀 \ud800"))
    inbox.commit(layout(), "s1", 1)
    data = Path(layout().inbox("s1")).read_bytes()
    assert data.count(b"\n") == 2 and data.endswith(b"\n")
    assert json.loads(data.split(b"\n")[1])["content"] == "a\nb\u2028c\u0085d\re \x00 é 😀 ?"
    for name in os.listdir(layout().inbox_dir()):
        assert os.stat(os.path.join(layout().inbox_dir(), name)).st_mode & 0o777 == 0o600, name
    assert os.stat(layout().inbox_dir()).st_mode & 0o777 == 0o700


@pytest.mark.req("C7")
def test_a_batch_holds_64_records_or_256_kib() -> None:
    put(*(notice(n) for n in range(65)))
    batch = inbox.read(layout(), "s1")
    assert len(batch.records) == 64 and batch.start == 0
    inbox.commit(layout(), "s1", batch.end)
    rest = inbox.read(layout(), "s1")
    assert numbers(rest) == ["n64"] and rest.start == batch.end and rest.end == int(size())
    big = len(json.dumps(legacy(""), separators=(",", ":"))) + 1
    quarter = inbox.MAX_BYTES // 4
    put(*(legacy("x" * (quarter - big)) for _ in range(5)), session="exact")
    assert inbox.read(layout(), "exact").end == inbox.MAX_BYTES
    put(legacy("x" * (inbox.MAX_BYTES + 1)), legacy("next"), session="long")
    assert len(inbox.read(layout(), "long").records) == 1


@pytest.mark.req("C7")
@pytest.mark.parametrize(
    ("partial", "kept"),
    [
        (b"{", []),
        (b'{"sender":"Interlink","msg_id":"cut","content":"a', []),
        (b'{"sender":"Interlink","msg_id":"whole","content":"a"}', ["whole"]),
        (b"\xf0\x9f\x98", []),
        (b"\0" * 70_000, []),
        (b'{"sender":"a","content":"' + b"x" * 200_000, []),
    ],
)
def test_a_partial_last_record_is_repaired_by_the_next_append(partial: bytes, kept: list[str]) -> None:
    put(notice(1))
    tail(partial)
    assert numbers(inbox.read(layout(), "s1")) == ["n1"]
    put(notice(2))
    batch = inbox.read(layout(), "s1")
    assert numbers(batch) == ["n1", *kept, "n2"] and batch.notes == [] and batch.end == int(size())


@pytest.mark.req("C7")
def test_a_repair_never_cuts_what_the_cursor_has_passed() -> None:
    put(notice(1))
    tail(b"cut line")
    Path(layout().inbox("s1", "cursor")).write_bytes(b"%d" % (int(size()) - 2))
    before = Path(layout().inbox("s1")).read_bytes()
    put(notice(2))
    assert Path(layout().inbox("s1")).read_bytes().startswith(before + b"\n")
    assert numbers(inbox.read(layout(), "s1")) == ["n2"]


@pytest.mark.req("C7")
def test_the_cursor_never_moves_back_and_never_beyond_the_file() -> None:
    put(notice(1), notice(2))
    end = inbox.read(layout(), "s1", max_records=1).end
    inbox.commit(layout(), "s1", int(size()))
    inbox.commit(layout(), "s1", end)
    assert cursor() == size()
    inbox.commit(layout(), "s1", int(size()) + 1)
    assert cursor() == size()
    with open(layout().inbox("s1"), "r+b") as f:
        f.truncate(end)
    assert numbers(inbox.read(layout(), "s1")) == ["n1"]
    inbox.commit(layout(), "s1", end)
    assert cursor() == b"%d" % end


@pytest.mark.req("C7")
def test_a_cursor_inside_a_record_loses_none() -> None:
    put(notice(1), notice(2))
    end = inbox.read(layout(), "s1", max_records=1).end
    for inside in (1, end - 1, end, end + 1):
        Path(layout().inbox("s1", "cursor")).write_bytes(b"%d" % inside)
        assert numbers(inbox.read(layout(), "s1")) == (["n1", "n2"] if inside < end else ["n2"])


@pytest.mark.req("C6")
def test_a_full_disk_is_an_error_and_leaves_no_partial_line() -> None:
    put(notice(1))
    before = Path(layout().inbox("s1")).read_bytes()
    code = f"""
import os, resource
from interlink import inbox
from interlink.errors import StateError
from interlink.state.paths import Layout
resource.setrlimit(resource.RLIMIT_FSIZE, ({len(before) + 50}, resource.RLIM_INFINITY))
try:
    inbox.append(Layout({layout().root!r}), "s1", {{"sender": "a", "content": "x" * 4096}})
except StateError as exc:
    print(exc)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "cannot append to" in done.stdout and os.strerror(errno.EFBIG) in done.stdout
    assert Path(layout().inbox("s1")).read_bytes() == before
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != len(before) + 50
    put(notice(2))
    assert numbers(inbox.read(layout(), "s1")) == ["n1", "n2"]


APPEND = """
inbox.append(Layout(root), "s1", {"sender": "Interlink", "msg_id": "new", "content": "x" * 500})
"""
COMMIT = """
inbox.commit(Layout(root), "s1", inbox.read(Layout(root), "s1").end)
"""
SETUP = """
from interlink import inbox, log
from interlink.state.paths import Layout
import interlink.state.flock
"""


def one_record(root: str) -> None:
    inbox.append(Layout(root), "s1", notice(1))


@pytest.mark.req("C6", "C7", "T2")
@pytest.mark.parametrize("partial", [b"", b'{"sender":"Interlink","msg_id":"cut'], ids=["clean", "partial"])
def test_an_append_that_is_killed_leaves_the_record_or_nothing(tmp_path: Path, partial: bytes) -> None:
    def prepare(root: str) -> None:
        one_record(root)
        with open(Layout(root).inbox("s1"), "ab") as f:
            f.write(partial)

    seen = set()
    for crash in crashes(tmp_path, APPEND, prepare=prepare, setup=SETUP):
        there = Layout(crash.root)
        found = numbers(inbox.read(there, "s1"))
        assert found in (["n1"], ["n1", "new"]), crash
        seen.add(len(found))
        inbox.append(there, "s1", notice(2))  # the next append mends whatever is left
        assert numbers(inbox.read(there, "s1")) == [*found, "n2"], crash
        assert inbox.read(there, "s1").notes == [], crash
        if crash.how == "done":
            assert unsynced(crash.steps, ignore=("-lock", ".cursor")) == []
    assert seen == {1, 2}


@pytest.mark.req("C6")
def test_a_new_inbox_is_synced_with_its_name(tmp_path: Path) -> None:
    for crash in crashes(tmp_path, APPEND, setup=SETUP):
        assert numbers(inbox.read(Layout(crash.root), "s1")) in ([], ["new"]), crash
        inbox.append(Layout(crash.root), "s1", notice(2))
        assert numbers(inbox.read(Layout(crash.root), "s1"))[-1] == "n2", crash
    assert unsynced(crash.steps, ignore=("-lock",)) == []


@pytest.mark.req("C6")
def test_an_append_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    failures = 0
    for crash in crashes(tmp_path, APPEND, prepare=one_record, setup=SETUP, how=("fail",)):
        found = numbers(inbox.read(Layout(crash.root), "s1"))
        if crash.error is None:
            assert found == ["n1", "new"], crash
        else:
            assert crash.error.startswith("StateError: ") and found == ["n1"], (crash, crash.error)
            failures += 1
    assert failures >= 3  # open, write and sync at the least


@pytest.mark.req("C7", "C8", "T2")
def test_a_commit_that_is_killed_leaves_the_old_cursor_or_the_new(tmp_path: Path) -> None:
    def prepare(root: str) -> None:
        one_record(root)
        inbox.commit(Layout(root), "s1", inbox.read(Layout(root), "s1").end)
        inbox.append(Layout(root), "s1", notice(2))

    seen = set()
    for crash in crashes(tmp_path, COMMIT, prepare=prepare, setup=SETUP, how=("before", "after", "torn", "fail")):
        there = Layout(crash.root)
        batch = inbox.read(there, "s1")
        assert numbers(batch) in (["n2"], []), crash
        seen.add(len(batch.records))
        assert batch.notes == [], crash
        if crash.how == "fail" and crash.error is not None:
            assert crash.error.startswith("StateError: "), crash.error
    assert seen == {0, 1}
    assert unsynced(crash.steps) == []


APPENDER = """
import os, sys
from interlink import inbox
from interlink.state.paths import Layout
layout = Layout(sys.argv[1])
sys.stdin.readline()
me = sys.argv[2]
for n in range(60):
    inbox.append(layout, "s1", {"sender": me, "msg_id": f"{me}.{n}", "content": "x" * (n * 7)})
"""


@pytest.mark.req("C7", "C6", "V1")
def test_concurrent_appends_are_read_once_each_and_in_order() -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", APPENDER, layout().root, str(w)], stdin=subprocess.PIPE)
        for w in range(3)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"\n")
        writer.stdin.flush()
    seen: list[str] = []
    while len(seen) < 180:
        code, err, _ = wait_once()
        assert code == 2, err
        for line in err.splitlines():
            if line.startswith("<interlink "):
                seen.append(line.partition(' msg_id="')[2].partition('"')[0])
    for w, writer in enumerate(writers):
        assert writer.wait() == 0
        assert writer.stdin is not None
        writer.stdin.close()
        assert [s for s in seen if s.startswith(f"{w}.")] == [f"{w}.{n}" for n in range(60)]
    assert len(seen) == 180 and cursor() == size()


def model(data: bytes, start: int) -> list[bytes]:
    """The usable lines behind `start`, by definition."""
    usable = []
    for line in data[start:].split(b"\n")[:-1]:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and type(value.get("sender")) is str and type(value.get("content")) is str:
            usable.append(line)
    return usable


LINES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [b"", b"\r", b"{}", b"null", b'{"sender":"a","content":"b"}', b'{"sender":"a","content":"\\ud800"}']
    ),
    st.text(max_size=20).map(
        lambda s: json.dumps({"sender": s, "content": s}, ensure_ascii=False).encode("utf-8", "replace")
    ),
)


@pytest.mark.req("C7")
@given(
    lines=st.lists(LINES, max_size=12),
    last=st.binary(max_size=30),
    mark=st.one_of(st.none(), st.binary(max_size=6), st.integers(0, 400).map(lambda n: b"%d" % n)),
    records=st.integers(1, 4),
)
def test_any_bytes_are_read_to_their_end_without_a_gap(
    lines: list[bytes], last: bytes, mark: bytes | None, records: int
) -> None:
    path = layout().inbox("h")
    inbox.prepare(layout())
    data = b"".join(line + b"\n" for line in lines) + last
    Path(path).write_bytes(data)
    if mark is None:
        Path(layout().inbox("h", "cursor")).unlink(missing_ok=True)
    else:
        Path(layout().inbox("h", "cursor")).write_bytes(mark)
    number = int(mark) if mark and mark.strip().isdigit() else 0
    start = data.rfind(b"\n", 0, number) + 1 if number <= len(data) else 0
    found: list[dict[str, object]] = []
    while True:
        batch = inbox.read(layout(), "h", max_records=records, max_bytes=100)
        assert len(batch.records) <= records
        if batch.end == batch.start:
            break
        assert data[batch.end - 1 : batch.end] == b"\n"
        found += batch.records
        inbox.commit(layout(), "h", batch.end)
        assert inbox.read(layout(), "h", max_records=1).start == batch.end
    assert found == [json.loads(line) for line in model(data, start)]
    assert batch.end == (data.rfind(b"\n") + 1 if data.rfind(b"\n") >= start else start)


@pytest.mark.req("C6")
def test_an_inbox_belongs_to_one_identity() -> None:
    inbox.claim(layout(), "s1", KEY)
    inbox.claim(layout(), "s1", KEY)
    inbox.claim(layout(), "s2", OTHER_KEY)
    with pytest.raises(StateError, match=r"session s1 belongs to another identity \(AAAAAAAA\).*--session"):
        inbox.claim(layout(), "s1", OTHER_KEY)
    for left in (b"", b"garbage", b"\xff"):
        Path(layout().inbox("s1", "owner")).write_bytes(left)
        inbox.claim(layout(), "s1", OTHER_KEY)
    with pytest.raises(StateError):
        inbox.claim(layout(), "s1", KEY)


@pytest.mark.req("C6")
def test_a_start_preserves_inbox_and_cursor() -> None:
    put(notice(1), notice(2))
    inbox.commit(layout(), "s1", inbox.read(layout(), "s1", max_records=1).end)
    before = (Path(layout().inbox("s1")).read_bytes(), cursor())
    inbox.prepare(layout())
    inbox.claim(layout(), "s1", KEY)
    inbox.set_consumed(layout(), "s1", 3)
    assert (Path(layout().inbox("s1")).read_bytes(), cursor()) == before


@pytest.mark.req("C11")
def test_the_watermark_is_what_was_said_last() -> None:
    assert inbox.consumed(layout(), "s1") == 0
    for mark in (5, 9, 2):
        inbox.set_consumed(layout(), "s1", mark)
        assert inbox.consumed(layout(), "s1") == mark


@pytest.mark.req("C6")
def test_what_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="sender"):
        inbox.append(layout(), "s1", {"content": "x"})
    inbox.prepare(layout())
    os.symlink(tmp_path / "elsewhere", layout().inbox("s1"))
    with pytest.raises(StateError):
        put(notice(1))
    assert not (tmp_path / "elsewhere").exists()
    os.mkdir(layout().inbox("s2"))
    with pytest.raises(StateError):
        inbox.read(layout(), "s2")
    put(notice(1), session="s3")
    with Flock(layout().inbox("s3", "io-lock")), pytest.raises(LockBusy):
        inbox.read(layout(), "s3", lock_wait_s=0)
