"""The lab's image, built from this tree once and found again by its content.

python -m interlink_lab.backends.image     builds it where it is missing; prints its tag
"""

import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from docker.errors import APIError, BuildError, ImageNotFound  # type: ignore[import-not-found]

from interlink_lab.backends.engine import ROOT, NoEngine, cache, client, locked

LABEL = "interlink.lab.image"
LOCAL_BASE = "interlink-base:local"  # what docker/base-image makes
PUBLIC_BASE = "python:3.12-slim"
KEPT = 4  # images of earlier trees
PIP_S = 900
_PYTHON = "import sys; print('%d.%d' % sys.version_info[:2])"
# Beside the two packages; the same as .dockerignore lets in.
FILES = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    ".ci/constraints.txt",
    "docker/Dockerfile",
    "docker/requirements.py",
    "docker/host-start",
    "docker/relay-healthy",
)


def base_image(engine: Any) -> str:
    """INTERLINK_LAB_BASE_IMAGE, else the local one where it was made, else a public one."""
    given = os.environ.get("INTERLINK_LAB_BASE_IMAGE")
    if given:
        return given
    return LOCAL_BASE if engine.images.list(LOCAL_BASE) else PUBLIC_BASE


def ensure(engine: Any, target: str = "lab", extra: str = "lab") -> str:
    """The tag of the image of this tree, built first where it is missing. NoEngine where that fails."""
    if not (ROOT / "docker" / "Dockerfile").is_file():
        raise NoEngine(f"{ROOT} is no checkout of the project: its images cannot be built from it")
    base = _base(engine)
    files = _files()
    digest = hashlib.sha256(f"{base.id} {target} {extra}".encode())
    for name, path in files.items():
        digest.update(f"\0{name}\0{path.stat().st_mode & 0o111}\0".encode() + path.read_bytes())
    tag = f"interlink-{target}:{digest.hexdigest()[:16]}"
    with locked("image"):
        if not engine.images.list(tag):
            context = _context(files, _wheels(engine, base.id, extra))
            _build(engine, context, tag, target, {"BASE_IMAGE": base.id, "EXTRA": extra})
            _prune(engine, target)
    return tag


def _base(engine: Any) -> Any:
    name = base_image(engine)
    try:
        return engine.images.get(name)
    except ImageNotFound:
        pass
    try:
        return engine.images.pull(name)
    except APIError as exc:
        raise NoEngine(f"no base image {name} ({exc}): without a registry, run docker/base-image as root") from exc


def _files() -> dict[str, Path]:
    found = {name: ROOT / name for name in FILES}
    for package in ("interlink", "lab/interlink_lab"):
        for path in sorted((ROOT / package).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                found[path.relative_to(ROOT).as_posix()] = path
    return found


def _wheels(engine: Any, base: str, extra: str) -> Path:
    """A folder with all wheels for the base's Python, fetched by this machine's pip with its own settings, so
    that the build itself needs neither network nor certificates."""
    said = engine.containers.run(base, ["python3", "-c", _PYTHON], remove=True, network_mode="none")
    version = said.decode().strip()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    asked = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    asked += project["project"]["optional-dependencies"][extra] if extra else []
    constraints = ROOT / ".ci" / "constraints.txt"
    key = hashlib.sha256(
        repr((version, os.uname().machine, asked)).encode() + constraints.read_bytes()
    ).hexdigest()
    folder = cache() / f"wheels-{version}-{key[:12]}"
    if folder.is_dir():
        return folder
    with tempfile.TemporaryDirectory(prefix="wheels-", dir=cache()) as temp:
        into = Path(temp) / "wheels"
        # Wheels alone: pip cannot build for another Python than its own.
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input",
                   "--only-binary=:all:", "--dest", str(into), "--constraint", str(constraints)]  # fmt: skip
        if version != "{}.{}".format(*sys.version_info):
            abi = "cp" + version.replace(".", "")
            command += ["--python-version", version, "--implementation", "cp", "--abi", abi, "--abi", "abi3",
                        "--abi", "none"]  # fmt: skip
            for libc in ("2_17", "2_28", "2_34"):
                command += ["--platform", f"manylinux_{libc}_{os.uname().machine}"]
        done = subprocess.run([*command, *asked], capture_output=True, text=True, timeout=PIP_S)
        if done.returncode:
            raise NoEngine(f"pip cannot fetch the wheels of the image: {done.stderr.strip()[-2000:]}")
        into.rename(folder)
    return folder


def _context(files: dict[str, Path], wheels: Path) -> io.BytesIO:
    """The build context as a tar: no times, no owners, so that the builder finds its layers again."""
    named = {**files, **{f"docker/wheels/{path.name}": path for path in sorted(wheels.glob("*.whl"))}}
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, path in named.items():
            entry = tarfile.TarInfo(name)
            entry.size = path.stat().st_size
            entry.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            with path.open("rb") as file:
                tar.addfile(entry, file)
    data.seek(0)
    return data


def _build(engine: Any, context: io.BytesIO, tag: str, target: str, arguments: dict[str, str]) -> None:
    try:
        engine.images.build(
            fileobj=context,
            custom_context=True,
            dockerfile="docker/Dockerfile",
            tag=tag,
            target=target,
            buildargs=arguments,
            network_mode="none",
            labels={LABEL: target},
            rm=True,
            forcerm=True,
        )
    except BuildError as exc:
        said = "".join(row.get("stream", "") for row in exc.build_log)
        raise NoEngine(f"the image cannot be built: {exc}\n{said[-3000:]}") from exc


def _prune(engine: Any, target: str) -> None:
    """Drop images of earlier trees but the newest few; one that a container uses stays."""
    found = [i for i in engine.images.list(filters={"label": f"{LABEL}={target}"}) if i.tags]
    for old in sorted(found, key=lambda i: str(i.attrs["Created"]), reverse=True)[KEPT:]:
        for tag in old.tags:
            if re.fullmatch(rf"interlink-{target}:[0-9a-f]{{16}}", tag):
                try:
                    engine.images.remove(tag)
                except (APIError, ImageNotFound):
                    continue  # in use, or another run was first


if __name__ == "__main__":
    try:
        print(ensure(client()))
    except NoEngine as exc:
        sys.exit(f"image: {exc}")
