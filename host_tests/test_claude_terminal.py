"""The interactive Claude Code in a terminal: a message wakes it before any turn, and spoils nothing half typed."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from host_tests.claude_scene import NOTICE, World, listening, served
from host_tests.claude_terminal import ClaudeTerminal
from host_tests.waiting import until

TYPED = "half a sentence of the user"


@pytest.mark.req("C1", "C2", "H5")
def test_a_person_at_the_terminal_sees_the_wake_and_goes_on_typing(
    claude: Path, world: World, need: Callable[[str, bool, str], None]
) -> None:
    need("tmux", shutil.which("tmux") is not None, "apt-get install tmux")
    world.api.sides = []  # in a terminal it also asks for a title
    with ClaudeTerminal(claude, world.folder, world.env, world.api.url) as terminal:
        session = served(terminal)
        first = listening(session)
        terminal.type(TYPED)
        terminal.shows(TYPED)
        world.alice.send(session, "the build is green")
        until(lambda: world.acknowledged(session) == ["the build is green"], "the acknowledgement")
        until(lambda: len(world.agent.steps) == 3, "what the acknowledgement gave")
        assert [step.kind for step in world.agent.steps] == ["notice", "fetch", "ack"]
        assert NOTICE.search(world.agent.steps[0].text) and "the build is green" in world.agent.steps[1].text
        terminal.shows("hook feedback")
        terminal.shows("Called plugin:interlink:interlink")
        listening(session, other_than=first)
        assert TYPED in terminal.screen()
        terminal.enter()
        until(lambda: any(TYPED in prompt for prompt in world.prompts()), "the user's sentence in a prompt")
