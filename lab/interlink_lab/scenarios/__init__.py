"""What the lab can run, by name. A module of this folder registers its scenarios when it is imported."""

import importlib
import pkgutil

from interlink_lab.scenarios.base import KNOWN, Scenario

__all__ = ["Scenario", "known"]


def known() -> dict[str, Scenario]:
    """All scenarios, by name."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return KNOWN
