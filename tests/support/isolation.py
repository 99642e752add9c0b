"""Tests never see the person's own state: an own home, no settings from outside, a guard on the real one."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from support.programs import pythonpath

# What an outer run may hand in; every other variable of these families would change what is tested.
KEPT = frozenset(
    {
        "INTERLINK_REQUIRE_HOSTS",
        "INTERLINK_HOSTS_DIR",
        "INTERLINK_PEER_DIR",
        "INTERLINK_LAB_CACHE",
        "INTERLINK_LAB_BASE_IMAGE",
        "XDG_RUNTIME_DIR",
    }
)
FAMILIES = ("INTERLINK_", "CLAUDE", "CODEX_", "ANTHROPIC_", "OPENAI_", "XDG_")
REAL_HOMES = "TESTS_REAL_HOMES"
SESSION_HOME = "TESTS_SESSION_HOME"


def _real_homes() -> list[str]:
    found = [os.environ.get("HOME", "")]
    if os.name != "nt":
        import pwd

        try:
            found.append(pwd.getpwuid(os.getuid()).pw_dir)
        except KeyError:
            pass  # a user without an entry has no second home
    return sorted({str(Path(home).resolve()) for home in found if home})


def _forbidden(environ: dict[str, str], homes: list[str]) -> tuple[str, ...]:
    bases = [os.path.join(home, *parts) for home in homes for parts in ((".local", "state"), (".config",))]
    bases += [environ[name] for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME") if environ.get(name)]
    return tuple(os.path.join(base, "interlink") for base in bases)


def use_home(home: str) -> None:
    """Point HOME and the XDG folders of this process (and of its children) into `home`."""
    os.environ["HOME"] = home
    os.environ["XDG_STATE_HOME"] = os.path.join(home, "state")
    os.environ["XDG_CONFIG_HOME"] = os.path.join(home, "config")


def begin() -> bool:
    """Set up this process; True in the one that has to call `end` (not a worker of xdist)."""
    first = SESSION_HOME not in os.environ
    if first:
        os.environ[REAL_HOMES] = os.pathsep.join(_forbidden(dict(os.environ), _real_homes()))
        os.environ[SESSION_HOME] = tempfile.mkdtemp(prefix="interlink-tests-")
    for name in list(os.environ):
        if name.startswith(FAMILIES) and name not in KEPT:
            del os.environ[name]
    os.environ["PYTHONPATH"] = pythonpath()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # children would compile the product on every start
    use_home(os.environ[SESSION_HOME])
    guard(tuple(os.environ[REAL_HOMES].split(os.pathsep)))
    return first


def end() -> None:
    """Remove what `begin` made."""
    shutil.rmtree(os.environ.pop(SESSION_HOME), ignore_errors=True)


_guarded: list[tuple[str, ...]] = []


def guard(roots: tuple[str, ...]) -> None:
    """From now on, opening or making anything below the real state root or key folder raises PermissionError."""
    if not _guarded:
        sys.addaudithook(_audit)
    _guarded[:] = [roots]


def _audit(event: str, args: tuple[object, ...]) -> None:
    if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.chmod", "os.listdir", "os.scandir"):
        for path in args[:2]:
            if isinstance(path, str) and any(path == r or path.startswith(r + os.sep) for r in _guarded[0]):
                raise PermissionError(f"a test reached for the real state of this machine: {event} {path}")


def one_home() -> Iterator[str]:
    """One test's own home, 0700, removed afterwards."""
    base = os.environ[SESSION_HOME]
    home = tempfile.mkdtemp(prefix="home-", dir=base)
    use_home(home)
    try:
        yield home
    finally:
        use_home(base)
        shutil.rmtree(home, ignore_errors=True)
