"""What the ranges of modules cost, as measured in the process that records them."""

from __future__ import annotations

import os


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

    def add(self, ns: int, ranges: int) -> None:
        """Add time, and the ranges that have ended."""
        self.ns += ns
        self.ranges += ranges


cost = Cost()
os.register_at_fork(after_in_child=cost.clear)
