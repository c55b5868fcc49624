"""What annotations cost: how long the code of ranges takes, as measured in the process that records them."""

from __future__ import annotations

import os

SAMPLED = 1 << 8  # of so many calls of a decorated function one is measured


class Cost:
    """The number of ranges, and the time in ns that beginning and ending them took, the tool's part included.

    Threads add to it without a lock, which would cost more than what is lost.
    """

    __slots__ = ("ns", "ranges")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin at zero, as a forked child does."""
        self.ranges = self.ns = 0

    def add(self, ns: int, ranges: int = 0) -> None:
        """Add time, and the ranges that have ended."""
        self.ns += ns
        self.ranges += ranges


cost = Cost()
os.register_at_fork(after_in_child=cost.clear)
