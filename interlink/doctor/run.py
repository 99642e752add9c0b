"""All checks, in the order in which a person would go about it."""

from collections.abc import Iterator, Mapping

from interlink.doctor.basics import check_key, check_peers, check_root, check_settings
from interlink.doctor.claude import check_claude
from interlink.doctor.codex import check_codex
from interlink.doctor.finding import BROKEN, Check, Finding, Scene, guarded
from interlink.doctor.processes import check_elsewhere, check_pairs, check_processes, find_processes
from interlink.doctor.relays import check_relays
from interlink.doctor.sessions import check_sessions
from interlink.doctor.storage import check_storage
from interlink.doctor.survey import survey
from interlink.errors import InterlinkError, SetupError
from interlink.session import known
from interlink.session.config import Config, make_config
from interlink.settings import load
from interlink.state.paths import Layout
from interlink.trust.identity import load_key
from interlink.trust.peers import PeersFile

CHECKS: tuple[tuple[str, Check], ...] = (
    ("settings", check_settings),
    ("key", check_key),
    ("peers", check_peers),
    ("state", check_root),
    ("relay", check_relays),
    ("session", check_sessions),
    ("host", check_pairs),
    ("processes", check_processes),
    ("claude", check_claude),
    ("codex", check_codex),
    ("disk", check_storage),
    ("processes", check_elsewhere),  # last: it is seldom what a person looks for
)
# What may be wrong in the environment without hiding the rest: looked at again without it.
_SUSPECTS = ("INTERLINK_SESSION", "CLAUDE_CODE_SESSION_ID", "INTERLINK_HOST", "INTERLINK_URL")


def examine(options: Mapping[str, str | None], environ: Mapping[str, str], now_ms: int) -> list[Finding]:
    """Every finding. Takes no lock, changes no file; asks each relay twice, at most `probe_timeout_s` each."""
    scene = Scene(environ, load(environ), now_ms)
    findings = list(_configure(scene, options))
    findings += guarded("state", _look_around, scene)
    for name, check in CHECKS:
        findings += guarded(name, check, scene)
    return findings


def _configure(scene: Scene, options: Mapping[str, str | None]) -> Iterator[Finding]:
    environ = dict(scene.environ)
    told = ""
    for suspect in ("", *_SUSPECTS):
        environ.pop(suspect, None)
        try:
            scene.where = _config(options, environ)
            break
        except InterlinkError as exc:
            if str(exc) != told:
                told = str(exc)
                yield Finding(
                    BROKEN, "settings", told, "a server with these settings answers every tool with this"
                )
    if scene.where is not None:
        scene.layout = Layout(scene.where.root)


def _config(options: Mapping[str, str | None], environ: Mapping[str, str]) -> Config:
    try:
        return make_config(options, environ)
    except OSError as exc:
        raise SetupError(f"the current directory cannot be used: {exc.strerror}") from exc


def _look_around(scene: Scene) -> Iterator[Finding]:
    """Fill the scene; what is wrong with key and peers is said by their own checks."""
    scene.processes = find_processes()
    if scene.where is None or scene.layout is None:
        return
    try:
        scene.own = load_key(scene.where.key_path).public
    except SetupError:
        scene.own = ""
    try:
        scene.petnames = PeersFile(scene.where.peers_path, scene.own, scene.settings).current().by_key
    except SetupError:
        scene.petnames = None
    scene.running = known.running(scene.layout)
    scene.seen = survey(scene.layout, scene.petnames, scene.settings, scene.now_ms)
    yield from ()
