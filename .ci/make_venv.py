"""Makes this checkout's .venv, or brings it up to date. `./dev` calls it; the standard library is enough.

    make_venv.py check   exit 0 when .venv is as pyproject.toml and the constraints ask, 1 when not
    make_venv.py make    make it so, under a lock; one line on stderr when there is something to do

A stamp inside .venv is written last, so that an interrupted installation is made anew.
"""

import hashlib
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
VENV = os.path.join(ROOT, ".venv")
STAMP = os.path.join(VENV, ".stamp")
INPUTS = ("pyproject.toml", ".ci/constraints.txt", ".ci/make_venv.py")


def wanted(version: str) -> dict[str, str]:
    """What the stamp has to say for an interpreter of this version."""
    digest = hashlib.sha256()
    for name in INPUTS:
        with open(os.path.join(ROOT, name), "rb") as f:
            digest.update(f.read() + b"\0")
    return {"checkout": ROOT, "python": version, "inputs": digest.hexdigest()}


def stamped() -> dict[str, str]:
    """The stamp; empty when there is none that can be read."""
    try:
        with open(STAMP, encoding="utf-8") as f:
            found = json.load(f)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def venv_version() -> str:
    """The version of .venv's interpreter as it runs now; "" when it does not run."""
    try:
        done = subprocess.run(
            [os.path.join(VENV, "bin", "python"), "-I", "-S", "-c", "import sys; print(sys.version)"],
            capture_output=True,
            text=True,
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def say(text: str) -> None:
    print(f"dev: {text}", file=sys.stderr, flush=True)


def run(command: list[str], lock: int, doing: str) -> None:
    """Run quietly; on failure show what it said and end with 1.

    The child keeps the lock too: should we be killed, the next ./dev waits until the child has ended.
    """
    done = subprocess.run(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=(lock,) if lock >= 0 else (),
    )
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        say(f"{doing} failed (exit {done.returncode}, see above); mend it and run ./dev again")
        sys.exit(1)


def take_lock() -> int:
    """A kernel lock, gone with its holders, so that it is never stale. -1 where there are none."""
    try:
        import fcntl
    except ImportError:
        return -1
    folder = os.path.join(ROOT, ".cache")
    os.makedirs(folder, exist_ok=True)
    fd = os.open(os.path.join(folder, "make_venv.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        say("another ./dev is making .venv: waiting for it")
        fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def make() -> None:
    """Make or update .venv."""
    lock = take_lock()
    stamp, version = stamped(), venv_version()
    if version and stamp == wanted(version):
        return  # another run has just made it
    short = version.split()[0] if version else ""
    if version and (stamp.get("checkout"), stamp.get("python")) == (ROOT, version):
        say(f"pyproject.toml or the constraints changed: updating .venv (Python {short})")
        os.unlink(STAMP)
    else:
        try:
            import ensurepip  # noqa: F401
            import venv  # noqa: F401
        except ImportError:
            name = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
            say(f"{sys.executable} cannot make virtual environments: install {name} (apt-get install {name})")
            sys.exit(1)
        say(f"making .venv with Python {sys.version.split()[0]} ({sys.executable}), about a minute")
        run([sys.executable, "-I", "-m", "venv", "--clear", VENV], lock, "making .venv")
    pip = [os.path.join(VENV, "bin", "python"), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input"]
    constraints = os.path.join(ROOT, ".ci", "constraints.txt")
    run([*pip, "install", "--quiet", "-c", constraints, "-e", f"{ROOT}[dev]"], lock, "installing the project")
    temp = f"{STAMP}.{os.getpid()}"
    with open(temp, "w", encoding="utf-8") as f:
        json.dump(wanted(venv_version()), f)
    os.replace(temp, STAMP)


def main(args: list[str]) -> None:
    if args == ["check"]:
        sys.exit(0 if stamped() == wanted(sys.version) else 1)
    if args == ["make"]:
        make()
        return
    say("usage: make_venv.py check|make")
    sys.exit(64)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        say("interrupted; the next run starts again")
        sys.exit(130)
