"""The clock of the simulation: what happens next, in order of time."""

from __future__ import annotations

import heapq
from collections.abc import Callable

US, MS, SECOND = 1_000, 1_000_000, 1_000_000_000


class Engine:
    """Runs callbacks in order of time; equal times in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._asked = 0

    def at(self, time: int, action: Callable[[], None]) -> None:
        """Call ``action`` at a time, which is not before now."""
        self._asked += 1
        heapq.heappush(self._queue, (max(time, self.now), self._asked, action))

    def is_before(self, time: int) -> bool:
        """Return whether anything happens before a time."""
        return bool(self._queue) and self._queue[0][0] < time

    def run(self) -> None:
        """Run until nothing is left."""
        while self._queue:
            self.now, _, action = heapq.heappop(self._queue)
            action()
