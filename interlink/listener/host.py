"""The host that started this listener: is it still there, and will it take a wake-up at all (H3, H6)."""

import os
import select
import stat
from collections.abc import Mapping, Sequence

from interlink.hosts.registry import hook_host_pid
from interlink.state.process import Process, command_line

# Options of the host that take the next argument whatever it looks like, so that `--system-prompt -p` is no `-p`.
_TAKES_VALUE = frozenset(
    (
        "--add-dir",
        "--agent",
        "--agents",
        "--allowed-tools",
        "--allowedTools",
        "--append-system-prompt",
        "--append-system-prompt-file",
        "--autocompact",
        "--betas",
        "--debug-file",
        "--disallowed-tools",
        "--disallowedTools",
        "--effort",
        "--environment",
        "--fallback-model",
        "--file",
        "--json-schema",
        "--max-budget-usd",
        "--max-thinking-tokens",
        "--max-turns",
        "--mcp-config",
        "--model",
        "--name",
        "--output-format",
        "--permission-mode",
        "--permission-prompt-tool",
        "--permission-prompts",
        "--plugin-dir",
        "--plugin-url",
        "--remote-control-session-name-prefix",
        "--session-id",
        "--setting-sources",
        "--settings",
        "--system-prompt",
        "--system-prompt-file",
        "--system-prompt-snapshot",
        "--tools",
        "-n",
    )
)
_SHORT_FLAGS = frozenset("cpvh")


class Host:
    """The host process, from CLAUDE_PID. Without that variable our parent stands for it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        pid = hook_host_pid(environ)
        self.process = None if pid is None else Process.of(pid)
        self._lost = pid is not None and self.process is None
        self._parent = os.getppid()
        self._environ = environ

    def gone(self) -> bool:
        """True when the host has ended: nobody would take what we print."""
        if self._lost:
            return True
        if self.process is not None:
            return not self.process.alive()
        return os.getppid() != self._parent

    def input_ended(self) -> bool:
        """True once nobody can write to the pipe from which the host reads its prompts (Linux; H6).

        It would end now, but waits for us and drops a late wake-up.
        """
        if self.process is None or not hasattr(select, "poll"):
            return False
        try:
            # Through /proc this is another reader of the same pipe; it takes nothing out of it.
            fd = os.open(f"/proc/{self.process.pid}/fd/0", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False  # a socket, a closed descriptor, another system: it cannot be seen
        try:
            if not stat.S_ISFIFO(os.fstat(fd).st_mode):
                return False
            poll = select.poll()
            poll.register(fd, 0)
            return any(event & select.POLLHUP for _fd, event in poll.poll(0))
        finally:
            os.close(fd)

    def one_shot(self) -> bool:
        """True for a host that answers one prompt and ends: it waits for us and drops a late wake-up (H6)."""
        env = self._environ
        if self.process is None or (
            env.get("CLAUDE_CODE_SESSION_ATTENDED") == "1" and env.get("CLAUDE_CODE_ENTRYPOINT") != "sdk-cli"
        ):
            return False
        words = command_line(self.process.pid)
        return words is not None and prints_once(words[1:])


def prints_once(arguments: Sequence[str]) -> bool:
    """True for `-p` or `--print` among the host's arguments, unless they say that input is a stream."""
    printing = False
    words = iter(arguments)
    for word in words:
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if name == "--input-format":
            if (value if equals else next(words, "")) == "stream-json":
                return False
        elif word in _TAKES_VALUE:
            next(words, None)
        elif word == "--print" or (
            word[:1] == "-" and "p" in word[1:] and all(c in _SHORT_FLAGS for c in word[1:])
        ):
            printing = True
    return printing
