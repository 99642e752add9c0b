"""Every error that a person can meet. The text says what is wrong and what to do.

Light on purpose: the listener imports this file after every turn.
"""

# Exit codes of all commands. 2 is the host's word for "wake the model": no error may use it (H1).
EXIT_OK = 0
EXIT_FAULT = 1
EXIT_WAKE = 2
EXIT_USAGE = 64


class InterlinkError(Exception):
    """Base of all errors that are reported to a person or an agent as one clear line."""

    exit_code = EXIT_FAULT


class UsageError(InterlinkError):
    """A wrong argument or option value: exit 64 on a command line, a tool error over MCP."""

    exit_code = EXIT_USAGE


class SetupError(InterlinkError):
    """Something of the installation is missing or broken (key, peers, relay address)."""


class StateError(InterlinkError):
    """A file or directory of the state root cannot be used (permissions, wrong kind, full disk)."""


class CorruptFile(StateError):
    """A state file does not parse (M17); a copy of its content is set aside."""

    keep_copy = True


class NewerVersion(CorruptFile):
    """A state file of a newer version than this program knows: refused and left untouched (M11)."""

    keep_copy = False


class LockBusy(StateError):
    """Another process holds the lock."""


class WireError(InterlinkError):
    """Bytes from the network are not a message or announcement (undecodable)."""


class MailboxFull(StateError):
    """The mailbox is at its bounds; messages wait on the relay (M15, M17)."""


class RelayError(InterlinkError):
    """A relay did not do what was asked; `retry_after_s` where it said when to try again."""

    def __init__(self, text: str, *, status: int | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after_s = retry_after_s
