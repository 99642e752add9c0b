"""What the lab sees in state files: each parses, and each whole line of a log; one without an end is none yet."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from interlink_lab.node.watch import Watch

KEY = "K" * 43
NOTICE = json.dumps({"sender": "Interlink", "content": "[[m:1]] x", "kind": "notice", "through": 1})
REMEMBERED = f"1700000000000 {'0' * 32} s"


class Files:
    """A state root, a peers file, and what a watch of both tells."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "state"
        self.peers = folder / "peers.json"
        self.told: list[dict[str, Any]] = []
        self.watch = Watch(
            self.root, lambda _party, kind, **data: self.told.append({"kind": kind, **data}), self.peers
        )

    def write(self, name: str, text: str, mode: str = "w") -> None:
        path = self.peers if name == "peers.json" else self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)

    def seen(self, kind: str = "unparsable") -> list[dict[str, Any]]:
        """What is told at a look."""
        self.told.clear()
        self.watch.poll()
        return [event for event in self.told if event["kind"] == kind]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        (f"mailbox/{KEY}/s.json", "{}", "{"),
        (f"pairing/{KEY}/s.json", "{}", ""),
        (f"failed/{KEY}/s.json", "[]", "["),
        (f"counts/{KEY}/s.json", '{"counts":{}}', '{"counts":'),
        ("host/boot-1-2/77.json", '{"session":"s"}', '{"session'),
        ("peers.json", '{"bob":{"key":"x"}}', '{"bob"'),
        ("inbox/s.cursor", "120", ""),
        ("inbox/s.cursor", "0", "1x"),
        ("inbox/s.consumed", "3", "three"),
    ],
)
def test_a_file_that_is_replaced_parses_as_a_whole(files: Files, name: str, good: str, bad: str) -> None:
    files.write(name, good)
    assert files.seen() == []
    files.write(name, bad)
    (event,) = files.seen()
    assert event["store"] == name.partition("/")[0].removesuffix(".json") and event["file"] == name
    assert files.seen() == [], "it is told once"


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("inbox/s.jsonl", NOTICE),
        (f"outbox/{KEY}/s.jsonl", '{"op":"state","msg_id":"x"}'),
        (f"replay/{KEY}.log", REMEMBERED),
    ],
)
def test_a_whole_line_of_a_log_parses_and_one_without_its_end_is_none(files: Files, name: str, good: str) -> None:
    files.write(name, f"{good}\n{good[:20]}")
    assert files.seen() == []
    files.write(name, f"{good[20:]}\n{good}\n", "a")
    assert files.seen() == []
    files.write(name, f"{good[:20]}\n{good}\n", "a")  # cut, and ended by the next writer
    (event,) = files.seen()
    assert event["line"] and event["bytes"] == 20 and event["file"] == name
    assert files.seen() == []
    files.write(name, f"{good[:20]}\n")
    assert len(files.seen()) == 1, "a file that became shorter is read anew"


def test_the_head_of_the_replay_memory_is_a_line_of_its_own(files: Files) -> None:
    files.write(f"replay/{KEY}.log", f"boot 1-2 0123456789abcdef\n{REMEMBERED}\n")
    files.write(f"replay/{KEY}.pending", "s t")
    assert files.seen() == []
    files.write(f"replay/{KEY}.log", "boot 1-2\n", "a")
    assert len(files.seen()) == 1


def test_each_notice_is_told_once(files: Files) -> None:
    files.write("inbox/s.jsonl", f"{NOTICE}\n")
    (event,) = files.seen("inbox")
    assert (event["session"], event["what"], event["through"], event["token"]) == ("s", "notice", 1, "m:1")
    files.write("inbox/s.jsonl", f"{NOTICE}\n{NOTICE[:9]}", "a")
    assert len(files.seen("inbox")) == 1
    os.truncate(files.root / "inbox/s.jsonl", 2 * len(NOTICE) + 2)  # its writer died: the next one removes it
    files.write("inbox/s.jsonl", f"{NOTICE}\n", "a")
    assert len(files.seen("inbox")) == 1 and files.seen("inbox") == []


def test_a_file_that_is_as_it_was_is_not_read(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    names = (f"mailbox/{KEY}/s.json", f"counts/{KEY}/s.json", "inbox/s.cursor", f"outbox/{KEY}/s.jsonl")
    for name in names:
        files.write(name, "{}\n" if name.endswith("l") else "1" if name.endswith("r") else "{}")
    assert files.seen() == []

    read = []
    real = Path.open

    def opened(self: Path, *rest: Any, **more: Any) -> Any:
        read.append(self)
        return real(self, *rest, **more)

    monkeypatch.setattr(Path, "open", opened)
    files.seen()
    assert [path for path in read if path.is_relative_to(files.root)] == []
    files.write(names[0], "{} ")
    read.clear()
    files.seen()
    assert [path for path in read if path.is_relative_to(files.root)] == [files.root / names[0]]
