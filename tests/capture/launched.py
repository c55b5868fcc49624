"""A program to be launched: it says what it was given, and does as it is told."""

from __future__ import annotations

import os
import signal
import sys
import time

import bridge
from bridge import nvtx_op
from bridge.capture.session.schedule import parse_schedule

STEPS = 10
CAUGHT = 40  # what it exits with beyond the signal's number
CAUGHT_ONES = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT)


def say(*words: object) -> None:
    """Say something, from a signal handler too: that may come in the midst of a write."""
    os.write(1, f"SAID {words!r}\n".encode())


def steps() -> None:
    """Run steps in a session with the schedule that the launcher gave."""
    schedule = bridge.schedule(**parse_schedule(os.environ["BRIDGE_SCHEDULE"]))
    with bridge.profile(schedule=schedule) as session:
        for number in range(STEPS):
            with nvtx_op(f"step{number}"):
                pass
            session.step()


def wait(caught: str) -> None:
    """Wait for a signal, and leave by it or by a status of its own."""

    def leave(number: int, _frame: object) -> None:
        say("caught", number)
        sys.exit(CAUGHT + number)

    if caught == "caught":
        for one in CAUGHT_ONES:
            signal.signal(one, leave)
    say("waiting")
    time.sleep(30)


def main(what: str = "exit", *words: str) -> None:
    with nvtx_op("begin"):
        pass
    with nvtx_op("work", args={"what": what}):
        say(*words)
    if what == "exit":
        sys.stderr.write("on stderr\n")
        sys.exit(int((words or ("0",))[0]))
    elif what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "read":
        say(sys.stdin.read())
    else:
        {"steps": steps, "wait": wait}[what](*words)
    say("to its end")


if __name__ == "__main__":
    main(*sys.argv[1:])
