"""The floor check on small trees that break one rule each."""

import subprocess
from pathlib import Path

import pytest

from interlink_lab.tools import floors


def tree(folder: Path, files: dict[str, str], doc: str = "") -> tuple[list[str], list[str]]:
    for name, text in {"docs/architecture.md": doc, "interlink/__init__.py": "", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return floors.check(folder)


@pytest.mark.parametrize(
    ("module", "floor"),
    [
        ("interlink", 1),
        ("interlink.state", 1),
        ("interlink.state.files", 1),
        ("interlink.trust.gate", 2),
        ("interlink.mailbox.store", 3),
        ("interlink.inbox", 3),
        ("interlink.relay.queue", 4),
        ("interlink.session.anything", 5),
        ("interlink.cli.mcp", 6),
        ("interlink.trust.newcomer", None),
        ("interlink.newcomer", None),
    ],
)
def test_floor_of(module: str, floor: int | None) -> None:
    assert floors.floor_of(module) == floor


def test_downward_and_sideways_are_fine(tmp_path: Path) -> None:
    errors, warnings = tree(
        tmp_path,
        {
            "interlink/log.py": "",
            "interlink/state/__init__.py": "",
            "interlink/state/files.py": "from interlink import log\nfrom interlink.state import paths\n",
            "interlink/state/paths.py": "",
            "interlink/inbox.py": "def f():\n    from interlink.state.files import x\n",
        },
    )
    assert (errors, warnings) == ([], [])


@pytest.mark.parametrize(
    "line",
    [
        "import interlink.inbox",
        "from interlink import inbox",
        "from interlink.inbox import x",
        "from . import inbox",
        "def f():\n    from interlink.inbox import x",
    ],
)
def test_upward_is_an_error_however_it_is_written(tmp_path: Path, line: str) -> None:
    errors, _ = tree(tmp_path, {"interlink/log.py": line, "interlink/inbox.py": ""})
    number = 2 if "def" in line else 1
    assert errors == [f"interlink/log.py:{number}: floor 1 imports interlink.inbox of floor 3"]


def test_a_circle_is_an_error(tmp_path: Path) -> None:
    files = {
        "session/__init__.py": "",
        "session/a.py": "from interlink.session import b",
        "session/b.py": "import c",
    }
    files["session/b.py"] = "def f():\n    from interlink.session import a"
    errors, _ = tree(tmp_path, {f"interlink/{name}": text for name, text in files.items()})
    assert errors == ["circle of imports: interlink.session.a -> interlink.session.b -> interlink.session.a"]


def test_a_module_without_a_floor_is_an_error(tmp_path: Path) -> None:
    errors, _ = tree(tmp_path, {"interlink/trust/__init__.py": "", "interlink/trust/new.py": ""})
    assert errors == [
        "interlink/trust/new.py: has no floor: add interlink.trust.new to docs/architecture.md and tools/floors.py"
    ]


@pytest.mark.parametrize("line", ["import time", "from time import time", "import os", "from pathlib import Path"])
def test_rules_are_pure(tmp_path: Path, line: str) -> None:
    errors, _ = tree(tmp_path, {"interlink/trust/__init__.py": "", "interlink/trust/gate.py": line})
    assert len(errors) == 1 and errors[0].startswith("interlink/trust/gate.py:1: floor 2 is pure, no import of ")


def test_long_files(tmp_path: Path) -> None:
    errors, warnings = tree(tmp_path, {"interlink/log.py": "\n" * 451, "interlink/text.py": "\n" * 401})
    assert errors == ["interlink/log.py: 451 lines, 400 are the limit: divide it"]
    assert warnings == ["interlink/text.py: 401 lines, 400 are the limit: divide it"]
    assert tree(tmp_path, {"interlink/log.py": "\n" * 400, "interlink/text.py": ""}) == ([], [])


def test_light_programs_load_nothing_heavy(tmp_path: Path) -> None:
    errors, _ = tree(
        tmp_path,
        {
            "interlink/cli/__init__.py": "",
            "interlink/cli/bus.py": "try:\n    from interlink import inbox\nfinally:\n    pass\n",
            "interlink/inbox.py": "import msgspec\nfrom mcp.types import Tool\n",
            "interlink/listener/__init__.py": "from interlink import log\n",
            "interlink/log.py": "import sys\nimport filelock\n",
        },
    )
    assert errors == [
        "interlink.cli.bus loads mcp on start: interlink.cli.bus -> interlink.inbox -> mcp.types",
        "interlink.cli.bus loads mcp on start: interlink.cli.bus -> interlink.inbox -> mcp.types.Tool",
        "interlink.listener loads filelock on start: interlink.listener -> interlink.log -> filelock",
    ]


def test_what_is_loaded_later_or_for_types_is_free(tmp_path: Path) -> None:
    errors, _ = tree(
        tmp_path,
        {
            "interlink/cli/__init__.py": "",
            "interlink/cli/bus.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import mcp\n"
            "def f():\n    import mcp\n",
        },
    )
    assert errors == []


def test_the_document_and_the_table_agree(tmp_path: Path) -> None:
    doc = "| floor | rooms |\n|---|---|\n| 1 ground | `log`, `state/` |\n| 2 rules | `inbox`, `nowhere` |\n"
    errors, _ = tree(tmp_path, {}, doc)
    assert errors == [
        "docs/architecture.md: inbox is on floor 2, tools/floors.py says 3",
        "docs/architecture.md: nowhere is on floor 2, tools/floors.py says none",
    ]
