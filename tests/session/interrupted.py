"""A program that is interrupted again and again, each time a little later in its session."""

from __future__ import annotations

import faulthandler
import gc
import signal
import sys
import traceback

import bridge
from bridge.annotate import emit


def program(session: bridge.Session) -> None:
    with session:
        for _ in range(50):
            with bridge.nvtx_op("a"):
                pass
            session.step()


def standing() -> tuple[object, ...]:
    state = emit.state
    return state.emitter, state.idle, state.reason, state.writer, state.details, list(gc.callbacks)


def main() -> None:
    faulthandler.dump_traceback_later(40, exit=True)
    emit.current()
    before = standing()
    session = bridge.profile(level=2, schedule=bridge.schedule(wait=0, warmup=0, active=1))
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    interrupted = 0
    for microseconds in range(50, 4000, 10):
        try:
            signal.setitimer(signal.ITIMER_REAL, microseconds / 1e6)
            program(session)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            interrupted += 1
            said = traceback.format_exc()
        session.stop()  # what an interrupt of the end itself has left
        if standing() != before:
            sys.exit(said)
    sys.stdout.write(f"{interrupted} times\n")


if __name__ == "__main__":
    main()
