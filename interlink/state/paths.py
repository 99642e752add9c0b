"""Where every file is. `Layout(root)` names the paths of T1; nothing here touches the disk.

Light on purpose (no pathlib): the listener imports this file.
"""

import os
from collections.abc import Mapping

from interlink.errors import SetupError, UsageError

SESSION_CHARS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
SESSION_MAX = 128
KEY_CHARS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
KEY_LEN = 43  # base64url of 32 bytes, no padding


def home(environ: Mapping[str, str]) -> str:
    """The user's home: HOME (USERPROFILE on Windows), else what the operating system says (T1)."""
    found = environ.get("USERPROFILE" if os.name == "nt" else "HOME", "")
    if found:
        return found
    if os.name == "nt":
        return os.path.expanduser("~")
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError as exc:
        raise SetupError("no home directory: set HOME or XDG_STATE_HOME") from exc


def expand(path: str, environ: Mapping[str, str]) -> str:
    """`~` and `~/...` made whole: no shell does it in a host's configuration, nor behind `--out=`."""
    if path == "~" or path.startswith("~/"):
        return home(environ) + path[1:]
    return path


def state_root(environ: Mapping[str, str]) -> str:
    """`$XDG_STATE_HOME/interlink`, else `~/.local/state/interlink` (T1).

    Raises SetupError for a relative root (M29).
    """
    base = environ.get("XDG_STATE_HOME", "") or os.path.join(home(environ), ".local", "state")
    if not os.path.isabs(base):
        raise SetupError(f"the state root {base!r} is relative: set XDG_STATE_HOME to an absolute path")
    return os.path.join(base, "interlink")


def config_dir(environ: Mapping[str, str]) -> str:
    """`$XDG_CONFIG_HOME/interlink`, else `~/.config/interlink`: home of `id.key` and `peers.json`."""
    base = environ.get("XDG_CONFIG_HOME", "") or os.path.join(home(environ), ".config")
    return os.path.join(base, "interlink")


def data_dir(environ: Mapping[str, str]) -> str:
    """`$XDG_DATA_HOME/interlink`, else `~/.local/share/interlink`: what `interlink setup` installs for a host.

    Raises SetupError for a relative one.
    """
    base = environ.get("XDG_DATA_HOME", "") or os.path.join(home(environ), ".local", "share")
    if not os.path.isabs(base):
        raise SetupError(f"the data folder {base!r} is relative: set XDG_DATA_HOME to an absolute path")
    return os.path.join(base, "interlink")


def is_session(session: str) -> bool:
    """True for 1 to 128 of `A-Za-z0-9._-`, not starting with a dot."""
    return (
        1 <= len(session) <= SESSION_MAX
        and not session.startswith(".")
        and all(c in SESSION_CHARS for c in session)
    )


def check_session(session: str) -> str:
    """The session id itself; UsageError unless 1 to 128 of `A-Za-z0-9._-`, not starting with a dot."""
    if not is_session(session):
        raise UsageError(
            f"session id {session[:60]!r} is not valid: use 1 to {SESSION_MAX} of A-Z a-z 0-9 . _ -, "
            "not starting with a dot"
        )
    return session


def check_identity(key: str) -> str:
    """The public key as a path part; UsageError unless 43 base64url characters."""
    if len(key) != KEY_LEN or not all(c in KEY_CHARS for c in key):
        raise UsageError(f"{key[:60]!r} is not a public key: expected {KEY_LEN} base64url characters")
    return key


class Layout:
    """Paths below one state root. Every method checks its session or identity part."""

    def __init__(self, root: str) -> None:
        self.root = root

    # Shared by all adapters: mailbox/<identity>/<session>.*
    def mailbox_dir(self, identity: str) -> str:
        return os.path.join(self.root, "mailbox", check_identity(identity))

    def mailbox(self, identity: str, session: str) -> str:
        return os.path.join(self.mailbox_dir(identity), check_session(session) + ".json")

    def mailbox_lock(self, identity: str, session: str) -> str:
        return os.path.join(self.mailbox_dir(identity), check_session(session) + ".lock")

    def notifier_lock(self, identity: str, session: str) -> str:
        return os.path.join(self.mailbox_dir(identity), check_session(session) + ".notifier-lock")

    def sessions_with_mailbox(self, identity: str) -> list[str]:
        """Sessions of this identity that have a mailbox file, sorted."""
        try:
            names = os.listdir(self.mailbox_dir(identity))
        except FileNotFoundError:
            return []
        return sorted(n[:-5] for n in names if n.endswith(".json") and is_session(n[:-5]))

    # Claude inbox: inbox/<session>.*
    def inbox_dir(self) -> str:
        return os.path.join(self.root, "inbox")

    def inbox(self, session: str, part: str = "jsonl") -> str:
        """`part`: jsonl, cursor, lock, io-lock, consumed (watermark of C11), owner (its identity, C6)."""
        return os.path.join(self.inbox_dir(), f"{check_session(session)}.{part}")

    # Others
    def pairing(self, identity: str, session: str) -> str:
        return os.path.join(self.root, "pairing", check_identity(identity), check_session(session) + ".json")

    def failed(self, identity: str, session: str) -> str:
        return os.path.join(self.root, "failed", check_identity(identity), check_session(session) + ".json")

    def outbox(self, identity: str, session: str) -> str:
        return os.path.join(self.root, "outbox", check_identity(identity), check_session(session) + ".jsonl")

    def replay(self, identity: str, part: str = "log") -> str:
        """`part`: log (the memory), lock, pending (the session in the middle of an admission)."""
        return os.path.join(self.root, "replay", f"{check_identity(identity)}.{part}")

    def counts(self, identity: str, session: str, part: str = "json") -> str:
        """`part`: json (how many messages were refused, and why: G3), lock."""
        return os.path.join(self.root, "counts", check_identity(identity), f"{check_session(session)}.{part}")

    def task_dir(self, session: str) -> str:
        return os.path.join(self.root, "task", check_session(session))

    def host_dir(self) -> str:
        """Servers registered under their host process (H4)."""
        return os.path.join(self.root, "host")
