"""A program that captures the active steps of a schedule, to be profiled."""

from __future__ import annotations

import sys

from bridge import nvtx_op
from bridge.capture.session.control import capture_control
from bridge.capture.session.schedule import schedule
from bridge.capture.session.transitions import Machine

STEPS = 16
SCHEDULE = {"wait": 1, "warmup": 1, "active": 2}
ACTIVE = [step for step in range(STEPS) if step % 4 >= 2]


class Phases:
    """Capture while recording."""

    def __init__(self, kind: str) -> None:
        self.capture = capture_control(kind)

    def prepare(self) -> None:
        """Do nothing."""

    def start(self) -> None:
        self.capture.start()

    def stop(self) -> None:
        self.capture.stop()

    def ready(self) -> None:
        """Do nothing."""


def program(kind: str) -> None:
    machine = Machine(schedule(**SCHEDULE), Phases(kind))
    machine.begin()
    for step in range(STEPS):
        with nvtx_op("step", payload=step):
            pass
        machine.step()
    machine.end()


if __name__ == "__main__":
    program(sys.argv[1])
    sys.stdout.write("to its end\n")
