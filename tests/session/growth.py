"""Bytes that a step of a session, or a whole session, leaves behind, in a process where nothing else allocates.

python growth.py steps|sessions COUNT
"""

from __future__ import annotations

import gc
import statistics
import sys
import tracemalloc
from collections.abc import Callable
from itertools import pairwise

import bridge
from bridge import nvtx_op


def growth(run: Callable[[int], None], count: int) -> float:
    """The median over nine rounds of `count` runs each: what is allocated once does not count."""

    def left() -> int:
        run(count)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    left()
    rounds = [left() for _ in range(10)]
    return statistics.median(later - earlier for earlier, later in pairwise(rounds)) / count


def of_steps(count: int) -> float:
    def steps(count: int) -> None:
        for _ in range(count):
            with nvtx_op("a"), nvtx_op("b"):
                pass
            session.step()

    schedule = bridge.schedule(wait=1, warmup=1, active=2)
    with bridge.profile(schedule=schedule, level=2, profile_memory=True) as session:
        return growth(steps, count)


def of_sessions(count: int) -> float:
    def sessions(count: int) -> None:
        for _ in range(count):
            with bridge.profile(level=2), nvtx_op("a"):
                pass

    return growth(sessions, count)


if __name__ == "__main__":
    measured = {"steps": of_steps, "sessions": of_sessions}[sys.argv[1]]
    print(measured(int(sys.argv[2])))  # noqa: T201
