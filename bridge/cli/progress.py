"""What a command is at, said on a terminal while it takes longer than a second; nothing in a pipe."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 1.0  # seconds before anything is said
REFRESH = 8  # times per second


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Say what is being done, and for how long already, until the block ends."""
    if not sys.stderr.isatty():
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_say, args=(what, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _say(what: str, over: threading.Event) -> None:
    if over.wait(PATIENCE):
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(
        *columns, console=Console(stderr=True), transient=True, auto_refresh=False
    ) as shown:
        shown.add_task(what, total=None)
        while not over.wait(1 / REFRESH):
            shown.refresh()
