"""What lies on the disk: sizes, copies of corrupt files, left-over temporary files (M17, T6)."""

import os
from collections.abc import Iterator

from interlink import inbox_compact
from interlink.doctor.finding import OK, WARN, Finding, Scene, first_lines
from interlink.session import known
from interlink.session.prune import stale_temps
from interlink.state.paths import is_session
from interlink.text import count

CORRUPT = ".corrupt-"


def check_storage(scene: Scene) -> Iterator[Finding]:
    """Growth is visible (T6)."""
    if scene.layout is None or not os.path.isdir(scene.layout.root):
        return
    root = scene.layout.root
    areas: dict[str, int] = {}
    corrupt: list[str] = []
    for folder, _folders, names in os.walk(root):
        area = os.path.relpath(folder, root).split(os.sep)[0]
        for name in names:
            path = os.path.join(folder, name)
            try:
                areas[area] = areas.get(area, 0) + os.lstat(path).st_size
            except FileNotFoundError:
                continue
            if CORRUPT in name:
                corrupt.append(os.path.relpath(path, root))
    total = sum(areas.values())
    shown = ", ".join(
        f"{area} {_size(count)}" for area, count in sorted(areas.items(), key=lambda a: -a[1]) if count
    )
    done = _consumed(scene)
    advice = f"interlink prune frees about {_size(done)} of consumed notices" if done >= 1 << 20 else ""
    data = {"bytes": areas, "total": total, "prunable": done}
    yield Finding(OK, "disk", f"{_size(total)} in {root}: {shown or 'nothing'}", advice, data)
    if corrupt:
        yield Finding(
            WARN,
            "disk",
            f"copies of corrupt files were set aside: {first_lines(sorted(corrupt))}",
            "take out what you need, then remove them",
            {"copies": sorted(corrupt)},
        )
    temps = [os.path.relpath(path, root) for path in stale_temps(scene.layout)]
    if temps:
        text = f"{count(len(temps), 'temporary file')} of processes that are gone: {first_lines(temps)}"
        yield Finding(WARN, "disk", text, "interlink prune removes them", {"files": temps})


def _consumed(scene: Scene) -> int:
    assert scene.layout is not None
    names = known.listed(scene.layout.inbox_dir())
    sessions = [n[:-6] for n in names if n.endswith(".jsonl") and is_session(n[:-6])]
    return sum(inbox_compact.consumed_bytes(scene.layout, session)[0] for session in sessions)


def _size(count: int) -> str:
    if count < 1024:
        return f"{count} B"
    return f"{count / 1024:.0f} KiB" if count < 1 << 20 else f"{count / 1024 / 1024:.1f} MiB"
