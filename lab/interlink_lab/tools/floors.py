"""The floors of docs/architecture.md, as a check: imports go down, or stay on a floor without a circle.

Also: the rules on floor 2 touch no clock, disk or network; light programs do not load heavy packages; no file
grows too long; the table here and the one in docs/architecture.md say the same.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from interlink_lab.tools.repo import ROOT, files

# Module or package (longest match wins) -> floor. `cli/`, `tools/` and so on may grow without a change here.
FLOORS = {
    "": 1,  # interlink itself: its version
    "errors": 1,
    "log": 1,
    "settings": 1,
    "text": 1,
    "state": 1,
    "trust": 1,  # the package's own __init__; every module below it has a row
    "trust.identity": 1,
    "mailbox": 1,
    "hosts": 1,
    "trust.wire": 2,
    "trust.gate": 2,
    "mailbox.rules": 2,
    "mailbox.record": 2,
    "mailbox.notice": 2,
    "mailbox.states": 2,
    "mailbox.box": 2,
    "mailbox.staging": 2,
    "hosts.base": 2,
    "hosts.notice_text": 2,
    "mailbox.export": 3,
    "mailbox.look": 3,
    "mailbox.store": 3,
    "inbox": 3,
    "inbox_compact": 3,
    "outlog": 3,
    "tasks": 3,
    "trust.peers": 3,
    "trust.replay": 3,
    "trust.pairing": 3,
    "hosts.failed": 3,
    "hosts.registry": 3,
    "relay": 4,
    "hosts.claude_inbox": 4,
    "hosts.claude_channel": 4,
    "hosts.codex": 4,
    "hosts.supervise": 4,
    "session": 5,
    "tools": 6,
    "cli": 6,
    "listener": 6,
    "doctor": 6,
    "setup": 6,
}
# Packages whose modules differ in floor: a new module there needs a row of its own.
MIXED = ("trust", "mailbox", "hosts")
WARN_LINES, MAX_LINES = 400, 450
PACKAGE = "interlink"

# What would give a rule of floor 2 a clock, a disk or a network.
PURE_FLOOR = 2
IMPURE = frozenset(
    "anyio asyncio datetime fcntl filelock glob httpx httpx2 io multiprocessing os pathlib random secrets select "
    "selectors shutil signal socket sqlite3 subprocess sys tempfile threading time uuid".split()
)
# What starts often or must stay small -> packages outside the standard library that it may load on start.
# None: all but the MCP SDK.
LIGHT: dict[str, frozenset[str] | None] = {
    "listener": frozenset(),
    "cli.main": None,
    "cli.bus": None,
    "cli.keygen": None,
}
SDK = frozenset({"mcp", "mcp_types"})

Import = tuple[str, int]  # dotted module name, line


def floor_of(module: str) -> int | None:
    """Floor of `interlink.x.y`; None for a module that the table does not know."""
    name = module.removeprefix(PACKAGE).removeprefix(".")
    if name in FLOORS:
        return FLOORS[name]
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        key = ".".join(parts[:end])
        if key in FLOORS:
            return None if key in MIXED else FLOORS[key]
    return None


def module_name(path: Path) -> str:
    """Dotted name of a file below the package's parent."""
    parts = list(path.with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source: str, module: str, is_package: bool) -> Iterator[Import]:
    """Every import of a file, also those inside functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = module.split(".")[: len(module.split(".")) - node.level + int(is_package)]
                base = ".".join([*above, *([base] if base else [])])
            yield base, node.lineno
            yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)


def imports_on_load(source: str) -> set[str]:
    """Names that importing the file imports too: not those in functions or for the type checker alone."""
    found: set[str] = set()

    def visit(body: list[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module)
                found.update(f"{node.module}.{alias.name}" for alias in node.names)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or _for_types(node):
                continue
            else:
                for field in ("body", "orelse", "finalbody"):
                    visit(getattr(node, field, []))
                for handler in getattr(node, "handlers", []):
                    visit(handler.body)

    visit(ast.parse(source).body)
    return found


def _for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def heavy(sources: dict[str, str]) -> list[str]:
    """Light programs that load a package which they must not, with the way to it."""
    errors = []
    for name, allowed in LIGHT.items():
        start = f"{PACKAGE}.{name}"
        trails = {module: [module] for module in sources if module == start or path_is_parent(start, module)}
        waiting = list(trails)
        while waiting:
            module = waiting.pop()
            for one in sorted(imports_on_load(sources[module])):
                top = one.partition(".")[0]
                if one in sources and one not in trails:
                    trails[one] = [*trails[module], one]
                    waiting.append(one)
                elif top == PACKAGE or top in sys.stdlib_module_names:
                    continue
                elif top in SDK if allowed is None else top not in allowed:
                    errors.append(f"{start} loads {top} on start: {' -> '.join([*trails[module], one])}")
    return sorted(set(errors))


def check(root: Path = ROOT) -> tuple[list[str], list[str]]:
    """(errors, warnings), each "file:line: what"."""
    errors: list[str] = []
    warnings: list[str] = []
    paths = {module_name(p): p for p in files(root) if p.parts[0] == PACKAGE and p.suffix == ".py"}
    graph: dict[str, set[str]] = {}
    sources: dict[str, str] = {}
    for module, path in paths.items():
        source = sources[module] = (root / path).read_text("utf-8")
        lines = source.count("\n")
        if lines > WARN_LINES:
            where = errors if lines > MAX_LINES else warnings
            where.append(f"{path}: {lines} lines, {WARN_LINES} are the limit: divide it")
        own = floor_of(module)
        if own is None:
            errors.append(f"{path}: has no floor: add {module} to docs/architecture.md and tools/floors.py")
            continue
        every = dict(imports(source, module, path.name == "__init__.py"))
        if own == PURE_FLOOR:
            bad = sorted(name for name in every if name in IMPURE)
            errors += [f"{path}:{every[name]}: floor {own} is pure, no import of {name}" for name in bad]
        found = {name: line for name, line in every.items() if name in paths}
        graph[module] = {name for name in found if name != module and not path_is_parent(name, module)}
        for name in sorted(graph[module]):
            other = floor_of(name)
            if other is not None and other > own:
                errors.append(f"{path}:{found[name]}: floor {own} imports {name} of floor {other}")
    errors += [f"circle of imports: {' -> '.join(circle)}" for circle in circles(graph)]
    errors += heavy(sources)
    errors += document(root)
    return errors, warnings


def path_is_parent(package: str, module: str) -> bool:
    """True for `interlink.state` seen from `interlink.state.files`: importing a module runs its parents anyway."""
    return module.startswith(package + ".")


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Each circle once, as the modules along it."""
    found: dict[frozenset[str], list[str]] = {}
    done: set[str] = set()

    def visit(module: str, trail: list[str]) -> None:
        if module in trail:
            circle = [*trail[trail.index(module) :], module]
            found.setdefault(frozenset(circle), circle)
        elif module not in done:
            for other in sorted(graph.get(module, ())):
                visit(other, [*trail, module])
            done.add(module)

    for module in sorted(graph):
        visit(module, [])
    return list(found.values())


def document(root: Path) -> list[str]:
    """Differences between the table of docs/architecture.md and FLOORS."""
    path = root / "docs" / "architecture.md"
    errors = []
    for number, rooms in re.findall(r"^\|\s*(\d)[^|]*\|([^|]*)\|", path.read_text("utf-8"), re.MULTILINE):
        for room in re.findall(r"`([\w/]+)`", rooms):
            name = room.strip("/").replace("/", ".")
            own = floor_of(name)
            if own != int(number):
                errors.append(
                    f"docs/architecture.md: {room} is on floor {number}, tools/floors.py says {own or 'none'}"
                )
    return errors


def main() -> None:
    errors, warnings = check()
    for line in warnings:
        print(f"warning: {line}")
    for line in errors:
        print(line)
    if errors:
        sys.exit(1)
    print(f"floors: {len(FLOORS)} rooms, all imports go down")


if __name__ == "__main__":
    main()
