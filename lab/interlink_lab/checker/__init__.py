"""The checker: named invariants over a recorded history. Each check yields what is wrong, and what proves it.

violations = check(history)
"""

from interlink_lab.checker import delivery, handoffs, notices, states
from interlink_lab.checker.model import Check, Facts, Violation
from interlink_lab.history import History

__all__ = ["CHECKS", "Violation", "check", "names"]

CHECKS: tuple[Check, ...] = (*delivery.CHECKS, *notices.CHECKS, *states.CHECKS, *handoffs.CHECKS)


def check(history: History) -> list[Violation]:
    """Everything that is wrong with a history, in the order of the checks."""
    facts = Facts(history)
    return [found for each in CHECKS for found in each(facts)]


def names() -> dict[str, str]:
    """Invariant -> what it says, from the first paragraph of each check."""
    found = {}
    for each in CHECKS:
        head, _, text = " ".join((each.__doc__ or "").partition("\n\n")[0].split()).partition(":")
        for name in head.replace(" and ", ", ").split(", "):
            found[name.strip()] = text.strip()
    return found
