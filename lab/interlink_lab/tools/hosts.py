"""`just hosts-install [NAME[@VERSION]]...`: the real hosts of host_tests/hosts.toml, into .cache/hosts.

INTERLINK_HOSTS_DIR names another folder. What is there already is left alone.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from interlink_lab.tools.repo import ROOT, fail

INSTALL_S = 600


def known() -> dict[str, tuple[str, list[str]]]:
    """Name -> (npm package, versions), from host_tests/hosts.toml."""
    table = tomllib.loads((ROOT / "host_tests" / "hosts.toml").read_text("utf-8"))
    return {name: (row["package"], row["versions"]) for name, row in table.items()}


def program(name: str, version: str) -> Path:
    """Where `hosts-install` puts the program; it need not be there."""
    base = Path(os.environ.get("INTERLINK_HOSTS_DIR") or ROOT / ".cache" / "hosts")
    return base / f"{name}-{version}" / "node_modules" / ".bin" / name


def wanted(args: list[str]) -> list[tuple[str, str, str]]:
    """(name, package, version) of each one asked for; all of them without arguments."""
    rows = [(name, package, version) for name, (package, versions) in known().items() for version in versions]
    found = []
    for arg in args:
        some = [row for row in rows if arg in (row[0], f"{row[0]}@{row[2]}")]
        if not some:
            fail("hosts", f"{arg}: not in host_tests/hosts.toml ({', '.join(f'{r[0]}@{r[2]}' for r in rows)})", 64)
        found += some
    return found if args else rows


def install(name: str, package: str, version: str) -> None:
    """Install one version next to its place, and move it there when it is whole."""
    target = program(name, version)
    folder = target.parents[2]
    if target.exists():
        print(f"hosts: {name} {version} is there")
        return
    print(f"hosts: installing {name} {version}", flush=True)
    temp = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(temp, ignore_errors=True)
    temp.mkdir(parents=True)
    command = [
        "npm",
        "install",
        "--silent",
        "--no-audit",
        "--no-fund",
        "--prefix",
        str(temp),
        f"{package}@{version}",
    ]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=INSTALL_S)
        if done.returncode or not (temp / "node_modules" / ".bin" / name).exists():
            fail("hosts", f"npm did not install {package}@{version} (exit {done.returncode})")
        shutil.rmtree(folder, ignore_errors=True)
        temp.rename(folder)
    except subprocess.TimeoutExpired:
        fail("hosts", f"npm did not end within {INSTALL_S} s for {package}@{version}")
    finally:
        shutil.rmtree(temp, ignore_errors=True)


def main() -> None:
    rows = wanted(sys.argv[1:])
    if shutil.which("npm") is None:
        fail("hosts", "npm is missing: install Node.js (Debian: apt-get install npm)")
    for name, package, version in rows:
        install(name, package, version)


if __name__ == "__main__":
    main()
