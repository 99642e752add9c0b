"""Random runs: a seed goes in, a topology, a workload and faults come out."""

from interlink_lab.scenarios.base import Scenario


def random_scenario(seed: int, seconds: float) -> Scenario:
    """The random run of this seed."""
    raise NotImplementedError(f"{seed} {seconds}")
