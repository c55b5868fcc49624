"""A table of the costliest ops while a program runs, made by the launching process from the spools.

The program does no work for it. Every table is made of all that was recorded so far, so that the pauses between tables
grow with the length of the run: making them takes at most a fifth of the time.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from bridge.annotate.emitter import EXIT_S
from bridge.capture.cupti.export import write_report
from bridge.capture.tool import CaptureError
from bridge.knowledge.package import UserError

PERIOD_S = 5.0
SHARE = 4  # the pause before the next table is at least so many times as long as making one took
TOP = 10


@contextmanager
def live_table(folder: Path, write: Callable[[str], object] = sys.stderr.write) -> Iterator[None]:
    """Print the costliest ops of the spools below ``folder`` every few seconds, until the block ends."""
    ended = Event()
    thread = Thread(target=_print, args=(folder, write, ended), name="bridge live", daemon=True)
    # The thread inherits a mask without signals: they belong to the thread that waits for the program.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield
    finally:
        ended.set()
        thread.join(EXIT_S)


def _print(folder: Path, write: Callable[[str], object], ended: Event) -> None:
    pause = PERIOD_S
    while not ended.wait(pause):
        begun = time.monotonic()
        with suppress(CaptureError):  # nothing yet
            write(table(folder) + "\n")
        pause = max(PERIOD_S, SHARE * (time.monotonic() - begun))


def table(folder: Path) -> str:
    """Return the table of the costliest ops so far; raises CaptureError if there are none."""
    from bridge.importers.errors import ReportError
    from bridge.report import load  # loads pandas

    with tempfile.TemporaryDirectory(prefix="bridge-live-") as place:
        report = write_report(folder, Path(place, "live.sqlite"))
        try:
            return str(load(report).show("op", top=TOP))
        except (ReportError, UserError) as error:
            raise CaptureError(str(error)) from error
