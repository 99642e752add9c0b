"""The nemesis: faults as data, injected on command, at a named point, or by plan; each is seen to take effect.

await inject(run, Fault("partition", "bob.link", lasts_s=2))
point = at(run, "log", party="bob.server", event="stored")
...
await point
await inject(run, Fault("kill-server", "bob.server", lasts_s=0.5))
"""

from interlink_lab.nemesis.faults import KINDS, Active, Fault, begin, heal, inject, seen
from interlink_lab.nemesis.observe import observed
from interlink_lab.nemesis.points import Point, at

__all__ = ["KINDS", "Active", "Fault", "Point", "at", "begin", "heal", "inject", "observed", "seen"]
