"""What a check says, and what all checks look at."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from interlink.doctor.survey import Seen
from interlink.errors import InterlinkError
from interlink.relay.light import Healthz
from interlink.session.config import Config
from interlink.session.known import Running
from interlink.settings import Settings
from interlink.state.paths import Layout

OK: Final = "ok"
WARN: Final = "warn"
BROKEN: Final = "broken"
LEVELS: Final = (OK, WARN, BROKEN)


@dataclass(frozen=True)
class Finding:
    """One line: `check` is the area, `advice` what to do, `data` the same for scripts. No bodies, keys, tokens."""

    level: str
    check: str
    text: str
    advice: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Process:
    """A server or listener of this user that runs now, as the system shows it.

    `root`: its state root, None where it is not known; `host_pids`: the host process that it works for, with
    the launchers between them.
    """

    pid: int
    listener: bool
    root: str | None
    host_pids: frozenset[int]
    channels: bool
    codex: bool


@dataclass
class Scene:
    """Everything that was looked at. `where`, `layout`: None where the configuration gives no state root."""

    environ: Mapping[str, str]
    settings: Settings
    now_ms: int
    where: Config | None = None
    layout: Layout | None = None
    own: str = ""
    petnames: Mapping[str, str] | None = None
    seen: list[Seen] = field(default_factory=list)
    running: list[Running] = field(default_factory=list)
    processes: list[Process] | None = None
    health: Mapping[str, Healthz | InterlinkError] = field(default_factory=dict)

    def lately(self, at_ms: int) -> bool:
        """Whether a time is less than a message's life ago: what is older is history, and no warning."""
        return self.now_ms - at_ms < self.settings.fresh_behind_s * 1000


Check = Callable[[Scene], Iterable[Finding]]


def guarded(name: str, check: Check, scene: Scene) -> Iterator[Finding]:
    """The findings of one check; a fault of its own is one more, so that it does not hide the others."""
    try:
        yield from check(scene)
    except (InterlinkError, OSError) as exc:
        yield Finding(BROKEN, name, f"this check could not be made: {exc}")


def first_lines(items: Iterable[str], limit: int = 5) -> str:
    """The first few of a list, and how many more there are."""
    every = list(items)
    more = f" and {len(every) - limit} more" if len(every) > limit else ""
    return ", ".join(every[:limit]) + more
