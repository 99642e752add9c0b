"""What agents are told: instructions and skill agree with what the tools do, and fit where hosts cut them."""

from importlib import resources

import pytest

from interlink.tools.app import TOOLS
from interlink.tools.instructions import INSTRUCTIONS

SKILL = resources.files("interlink").joinpath("hosts/claude/plugin/skills/interlink/SKILL.md").read_text("utf-8")


@pytest.mark.req("M31")
@pytest.mark.parametrize("text", [INSTRUCTIONS, SKILL], ids=["instructions", "skill"])
def test_agents_are_told_how_to_stay_idempotent(text: str) -> None:
    flat = " ".join(text.split()).lower()
    assert "acknowledge after acting" in flat
    assert "receipt comes again" in flat and "acknowledge it and do not" in flat
    assert "no reply is needed" in flat


def test_the_instructions_fit_and_name_tools_that_exist() -> None:
    assert len(INSTRUCTIONS) < 2048
    for text in (INSTRUCTIONS, SKILL):
        named = {word.strip("`(),.") for word in text.replace("(", " ").split() if "_" in word}
        starts = ("receive_", "acknowledge_", "send_", "list_", "accept_")
        tools = {word for word in named if word.startswith(starts)}
        assert tools and tools <= set(TOOLS)
