"""What of a report is counted when only some time of it is: what began then, and the work launched then."""

from __future__ import annotations

import numpy as np

from bridge.analyze.windows import Windows, between, named_ranges, numbered
from bridge.join.attributed import Attributed, Chosen
from bridge.join.order import NONE, Flags, Ints
from importers import frames
from importers.frames import shared

TABLES = ("activities", "ranges", "launches", "waits", "memory")


def by_clock(joined: Attributed, first: int | None, last: int | None) -> Chosen:
    """Choose what began from ``first`` to ``last``, in ns since the first event: on the host, on the device."""
    windows = between(joined, first, last)

    def began(table: str) -> Flags:
        rows = getattr(joined.report, table)
        start = frames.ints(rows, "time" if "time" in rows else "start")
        return windows.meet(frames.ints(rows, "report"), start, start)

    return Chosen(*map(began, TABLES))


def by_step(joined: Attributed, first: int, last: int) -> Chosen:
    """Choose what began on the host in the steps with these numbers, and the work launched in them.

    Raises ValueError, in words for the user, if there is none such.
    """
    steps = joined.iterations
    steps = steps.taken(numbered(steps, first, last))
    return _on_host(joined, steps.report, steps.process, steps.start, steps.end)


def by_range(joined: Attributed, name: str) -> Chosen:
    """Choose what began in its process while a range of this name or op was open, and the work launched then.

    ``*`` and ``?`` are allowed. Raises ValueError, in words for the user, if there is none such.
    """
    rows = named_ranges(joined, name)
    columns = ("report", "process", "start", "end")
    return _on_host(joined, *(frames.ints(joined.report.ranges, c)[rows] for c in columns))


def _on_host(joined: Attributed, report: Ints, process: Ints, start: Ints, end: Ints) -> Chosen:
    """Choose what began in times of processes; work without an API call by its own start."""
    tables = [getattr(joined.report, name) for name in TABLES]
    keys = [[frames.ints(t, c) for c in ("report", "process")] for t in tables]
    owner, *owners = shared((report, process), *keys)
    windows = Windows.of(owner, start, end)
    times = [frames.ints(table, "time" if "time" in table else "start") for table in tables]
    launch = joined.attribution.launch
    times[0] = np.where(launch == NONE, times[0], np.append(times[2], NONE)[launch])
    return Chosen(*(windows.meet(of, t, t) for of, t in zip(owners, times, strict=True)))
