"""A program whose active steps are recorded by its session and, at the same time, by a profiler."""

from __future__ import annotations

import sys
import time

import bridge

STEPS = 12
SCHEDULE = {"wait": 1, "warmup": 1, "active": 2}
ACTIVE = [list(range(first, first + 2)) for first in range(2, STEPS, 4)]


@bridge.nvtx_op("inner")
def inner() -> None:
    time.sleep(0.001)


@bridge.nvtx_op("outer")
def outer() -> None:
    inner()
    with bridge.nvtx_op("block", domain="other", color="red"):
        time.sleep(0.002)
    inner()


def program(path: str) -> None:
    session = bridge.profile(path=path, schedule=bridge.schedule(**SCHEDULE), capture="nvtx")
    with session:
        for step in range(STEPS):
            outer()
            bridge.mark("loss", payload=step)
            if step < STEPS - 1:
                session.step()


if __name__ == "__main__":
    program(sys.argv[1])
    sys.stdout.write("to its end\n")
