"""`interlink doctor` as a process, and its findings."""

from collections.abc import Mapping
from typing import Any

from support.cli import interlink

NO_RELAY = "http://127.0.0.1:9"


class Report:
    """One run of `interlink doctor --json`."""

    def __init__(self, *args: str, env: Mapping[str, str] | None = None) -> None:
        self.done = interlink("doctor", "--json", *args, env=env)
        self.code = self.done.code
        assert self.done.out, self.done
        self.findings: list[dict[str, Any]] = self.done.json["findings"]

    def of(self, check: str, level: str = "") -> list[dict[str, Any]]:
        """The findings of one area, of one level where that is given."""
        return [f for f in self.findings if f["check"] == check and level in ("", f["level"])]

    def one(self, check: str, level: str) -> dict[str, Any]:
        """The only one of that area and level."""
        found = self.of(check, level)
        assert len(found) == 1, (check, level, self.findings)
        return found[0]

    @property
    def broken(self) -> set[str]:
        """The areas that are broken, the relay aside: most tests have none."""
        return {f["check"] for f in self.findings if f["level"] == "broken"} - {"relay"}
