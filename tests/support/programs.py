"""How tests start the product's programs: `[*program("interlink-mcp"), "wait"]`.

Always as `python -m module` with the running interpreter, so that the tree under test is what runs
(a copied tree with a seeded bug as well), whatever is installed on PATH.
"""

import functools
import os
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (ROOT, ROOT / "lab")


@functools.cache
def scripts() -> dict[str, str]:
    """Program name -> module, as pyproject.toml names them."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    return {name: target.partition(":")[0] for name, target in table.items()}


def program(name: str) -> list[str]:
    """The argument vector that starts a program, without its arguments.

    Raises LookupError for an unknown name, or for a module that `python -m` would import and leave
    without running anything: a test of "exits 0, says nothing" would then always pass.
    """
    module = scripts().get(name)
    if module is None:
        raise LookupError(f"no program {name!r} in pyproject.toml: one of {', '.join(sorted(scripts()))}")
    for folder in SOURCES:
        base = folder.joinpath(*module.split("."))
        for path in (base.with_suffix(".py"), base / "__main__.py"):
            if path.is_file():
                if path.name != "__main__.py" and '__name__ == "__main__"' not in path.read_text("utf-8"):
                    raise LookupError(f'{path.relative_to(ROOT)} needs its `if __name__ == "__main__":` lines')
                return [sys.executable, "-m", module]
    raise LookupError(f"the module {module} of {name} does not exist")


def pythonpath(environ: dict[str, str] | None = None) -> str:
    """A PYTHONPATH with this tree first, for a child whose environment is made from nothing."""
    before = (os.environ if environ is None else environ).get("PYTHONPATH", "")
    parts = [str(folder) for folder in SOURCES]
    return os.pathsep.join(parts + [p for p in before.split(os.pathsep) if p and p not in parts])
