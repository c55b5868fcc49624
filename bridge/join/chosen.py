"""Which rows of a report are counted: those of some time, on the host and on the devices."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.join.order import Flags


@dataclass(frozen=True)
class Chosen:
    """A flag per row of five frames."""

    activities: Flags
    ranges: Flags
    launches: Flags
    waits: Flags
    memory: Flags

    def __and__(self, other: Chosen) -> Chosen:
        """Return what both choose."""
        return Chosen(
            self.activities & other.activities,
            self.ranges & other.ranges,
            self.launches & other.launches,
            self.waits & other.waits,
            self.memory & other.memory,
        )
