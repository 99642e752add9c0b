"""`just hosts-install [NAME[@VERSION]]...`: the programs of host_tests/hosts.toml, into .cache/hosts.

INTERLINK_HOSTS_DIR names another folder. What is there already is left alone.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

from interlink_lab.tools.repo import ROOT, fail

PEER = "peer"
PEER_PROGRAM = "interlink-mcp"
INSTALL_S = 600  # an npm package
BUILD_S = 3600  # a crate, on one slow core
MISSING = {
    "npm": "npm is missing: install Node.js (Debian: apt-get install npm)",
    "cargo": "cargo is missing: install Rust with its cargo (rustup), or name other hosts to install",
}


class Row(NamedTuple):
    """One version of one program. `tool` installs it: npm or cargo."""

    name: str
    tool: str
    package: str
    version: str

    @property
    def folder(self) -> Path:
        """Where `hosts-install` puts it."""
        return cache() / f"{self.name}-{self.version}"

    @property
    def program(self) -> Path:
        return self.folder / (f"bin/{PEER_PROGRAM}" if self.tool == "cargo" else f"node_modules/.bin/{self.name}")


def cache() -> Path:
    """The folder of all of them: INTERLINK_HOSTS_DIR, else .cache/hosts of this checkout."""
    return Path(os.environ.get("INTERLINK_HOSTS_DIR") or ROOT / ".cache" / "hosts")


def rows() -> list[Row]:
    """Every version that host_tests/hosts.toml pins."""
    table = tomllib.loads((ROOT / "host_tests" / "hosts.toml").read_text("utf-8"))
    found = []
    for name, entry in table.items():
        tool = "cargo" if "crate" in entry else "npm"
        package = entry["crate" if tool == "cargo" else "package"]
        found += [Row(name, tool, package, version) for version in entry["versions"]]
    return found


def known() -> dict[str, tuple[str, list[str]]]:
    """Name -> (package, versions)."""
    found: dict[str, tuple[str, list[str]]] = {}
    for row in rows():
        found.setdefault(row.name, (row.package, []))[1].append(row.version)
    return found


def program(name: str, version: str) -> Path:
    """Where `hosts-install` puts the program; it need not be there."""
    return Row(name, "cargo" if name == PEER else "npm", "", version).program


def peer() -> Path | None:
    """The folder with the peer's programs: INTERLINK_PEER_DIR, else as installed here. Never from PATH.

    None where it has not been installed. What INTERLINK_PEER_DIR names counts alone, also where it is empty.
    """
    given = os.environ.get("INTERLINK_PEER_DIR")
    found = [Path(given)] if given else [row.program.parent for row in rows() if row.name == PEER]
    return next((folder.absolute() for folder in found if (folder / PEER_PROGRAM).is_file()), None)


def wanted(args: list[str]) -> list[Row]:
    """The rows that were asked for; all of them without arguments."""
    every = rows()
    found = []
    for arg in args:
        some = [row for row in every if arg in (row.name, f"{row.name}@{row.version}")]
        if not some:
            names = ", ".join(f"{row.name}@{row.version}" for row in every)
            fail("hosts", f"{arg}: not in host_tests/hosts.toml ({names})", 64)
        found += some
    return found if args else every


def install(row: Row) -> None:
    """Install one version next to its place, and move it there when it is whole."""
    if row.program.exists():
        print(f"hosts: {row.name} {row.version} is there")
        return
    print(f"hosts: installing {row.name} {row.version}", flush=True)
    temp = row.folder.with_name(f".{row.folder.name}.{os.getpid()}")
    shutil.rmtree(temp, ignore_errors=True)
    temp.mkdir(parents=True)
    command, limit_s = _command(row, temp)
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=limit_s)
        if done.returncode or not (temp / row.program.relative_to(row.folder)).exists():
            fail("hosts", f"{row.tool} did not install {row.package}@{row.version} (exit {done.returncode})")
        shutil.rmtree(temp / "target", ignore_errors=True)
        shutil.rmtree(row.folder, ignore_errors=True)
        temp.rename(row.folder)
    except subprocess.TimeoutExpired:
        fail("hosts", f"{row.tool} did not end within {limit_s} s for {row.package}@{row.version}")
    finally:
        shutil.rmtree(temp, ignore_errors=True)


def _command(row: Row, into: Path) -> tuple[list[str], int]:
    """(command, seconds that it may take)."""
    if row.tool == "npm":
        options = ["--silent", "--no-audit", "--no-fund", "--prefix", str(into)]
        return ["npm", "install", *options, f"{row.package}@{row.version}"], INSTALL_S
    options = ["--quiet", "--locked", "--no-track", "--version", row.version]
    folders = ["--root", str(into), "--target-dir", str(into / "target")]
    return ["cargo", "install", *options, *folders, row.package], BUILD_S


def main() -> None:
    found = wanted(sys.argv[1:])
    for tool in dict.fromkeys(row.tool for row in found if not row.program.exists()):
        if shutil.which(tool) is None:
            fail("hosts", MISSING[tool])
    for row in found:
        install(row)


if __name__ == "__main__":
    main()
