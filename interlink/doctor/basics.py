"""Key, peers file, settings, state root (B1, G7, M29)."""

import os
import stat
from collections.abc import Iterator

from interlink.doctor.finding import BROKEN, OK, WARN, Finding, Scene, first_lines
from interlink.errors import SetupError
from interlink.text import count, fingerprint
from interlink.trust.gate import STRANGER
from interlink.trust.identity import load_key
from interlink.trust.peers import PeersFile


def check_key(scene: Scene) -> Iterator[Finding]:
    """Present, ours alone, usable."""
    if scene.where is None:
        return
    try:
        public = load_key(scene.where.key_path).public
    except SetupError as exc:
        yield Finding(BROKEN, "key", str(exc))
        return
    text = f"{fingerprint(public)}, {scene.where.key_path}"
    yield Finding(OK, "key", text, data={"public": public, "path": scene.where.key_path})


def check_peers(scene: Scene) -> Iterator[Finding]:
    """Readable as a whole: one wrong entry admits nobody."""
    if scene.where is None:
        return
    file = PeersFile(scene.where.peers_path, scene.own, scene.settings)
    try:
        number = len(file.current().by_name)
    except SetupError as exc:
        yield Finding(BROKEN, "peers", str(exc), "until then nothing is admitted, and mail waits at the relay")
        return
    text, data = f"{number} in {file.path}", {"count": number, "path": file.path}
    if number:
        yield Finding(OK, "peers", text, data=data)
        return
    advice = "pair first (request_pair), or: interlink peers add PETNAME KEY"
    refused = [
        s.refused for s in scene.seen if s.place.identity == scene.own and s.refused.counts.get(STRANGER, 0) > 0
    ]
    lately = any(scene.lately(found.at_ms) for found in refused)
    if refused:
        strangers = sum(found.counts[STRANGER] for found in refused)
        text += f", so nobody is admitted: {count(strangers, 'message')} refused so far"
        data["strangers"] = strangers
    yield Finding(WARN if lately else OK, "peers", text, advice, data)


def check_settings(scene: Scene) -> Iterator[Finding]:
    """Variables that were not understood: the default is in force."""
    for problem in scene.settings.problems:
        yield Finding(WARN, "settings", problem, "correct the variable or unset it")


def check_root(scene: Scene) -> Iterator[Finding]:
    """Ours, private, and nothing in it that leads out."""
    if scene.layout is None:
        return
    root = scene.layout.root
    try:
        info = os.stat(root)
    except FileNotFoundError:
        yield Finding(OK, "state", f"{root} is not there yet: no server has run with it", data={"root": root})
        return
    except OSError as exc:
        yield Finding(BROKEN, "state", f"{root} cannot be used: {exc.strerror}", "mend its permissions")
        return
    if not stat.S_ISDIR(info.st_mode):
        yield Finding(BROKEN, "state", f"{root} is not a directory", "move it away")
        return
    if hasattr(os, "getuid") and info.st_uid != os.getuid():
        yield Finding(
            BROKEN,
            "state",
            f"{root} belongs to user {info.st_uid}, not to us ({os.getuid()})",
            "set XDG_STATE_HOME to a directory of your own",
        )
        return
    wide, out, closed = _walk(root)
    if wide:
        yield Finding(
            WARN,
            "state",
            f"open to other users, {count(len(wide), 'entry', 'entries')} below {root}: {first_lines(wide)}",
            f"a server tightens them when it starts, or: chmod -R go= {root}",
            {"open": wide},
        )
    if out:
        yield Finding(BROKEN, "state", f"links lead out of {root}: {first_lines(out)}", "remove them")
    if closed:
        yield Finding(BROKEN, "state", f"cannot be read: {first_lines(closed)}", "mend their owner and mode")
    if not (wide or out or closed):
        yield Finding(OK, "state", f"{root}, private", data={"root": root})


def _walk(root: str) -> tuple[list[str], list[str], list[str]]:
    """(open to others, links that lead out, unreadable), each relative to the root."""
    wide: list[str] = []
    out: list[str] = []
    closed: list[str] = []
    real_root = os.path.realpath(root)
    failed: list[OSError] = []
    for folder, folders, names in os.walk(root, onerror=failed.append):
        for path in (folder, *(os.path.join(folder, name) for name in (*names, *folders))):
            shown = os.path.relpath(path, root)
            try:
                info = os.lstat(path)
            except FileNotFoundError:
                continue
            if stat.S_ISLNK(info.st_mode):
                real = os.path.realpath(path)
                if real != real_root and not real.startswith(real_root + os.sep):
                    out.append(shown)
            elif os.name != "nt" and stat.S_IMODE(info.st_mode) & 0o077 and shown not in wide:
                wide.append(shown)
            if not os.access(path, os.R_OK) and not stat.S_ISLNK(info.st_mode):
                closed.append(shown)
    closed += [os.path.relpath(str(exc.filename), root) for exc in failed]
    return wide, sorted(set(out)), sorted(set(closed))
