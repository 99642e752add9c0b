"""Seeded bugs: small faults patched into a copy of the product, so that the lab can prove that it sees them.

`bugs.toml` lists them: the file, the text that is replaced, what it becomes, and which scenario finds it by which
invariant. Nothing of this is in the product itself.
"""

import importlib.util
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path

LIST = Path(__file__).with_name("bugs.toml")


@dataclass(frozen=True)
class Bug:
    """One seeded bug. `old` is in `file` (below `interlink/`) exactly once."""

    name: str
    what: str
    file: str
    old: str
    new: str
    scenario: str
    invariant: str


def known() -> dict[str, Bug]:
    """All, by name."""
    table = tomllib.loads(LIST.read_text("utf-8"))
    return {name: Bug(name=name, **row) for name, row in table.items()}


def patched_copy(name: str, folder: Path) -> Path:
    """A copy of the product with this bug; the folder to put on PYTHONPATH.

    ValueError for an unknown name, or one whose text is not in the product (any more).
    """
    found = known()
    if name not in found:
        raise ValueError(f"no seeded bug {name!r}: one of {', '.join(sorted(found))}")
    bug = found[name]
    spec = importlib.util.find_spec("interlink")
    assert spec is not None and spec.submodule_search_locations
    source = Path(spec.submodule_search_locations[0])
    target = folder / "interlink"
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    path = target / bug.file
    text = path.read_text("utf-8")
    if text.count(bug.old) != 1:
        raise ValueError(f"bug {name}: its text is {text.count(bug.old)} times in {bug.file}, once is needed")
    path.write_text(text.replace(bug.old, bug.new), "utf-8")
    return folder
