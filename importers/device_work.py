"""Tell whether anything worth a judgement ran on a device: every share of next to nothing misleads."""

from __future__ import annotations

import numpy as np

from bridge.importers import frames

LEAST_NS = 10_000  # of work in all
LEAST_SHARE = 0.01  # of the run


def is_next_to_nothing(
    activities: frames.Activities, launches: frames.Launches, span_ns: int
) -> bool:
    """Return whether the activities of a file are no work worth a judgement; ``span_ns`` is the length of the capture.

    That is less than 1 % of the run, without any kernel or below 10 µs; or no activity at all. The run is the time
    from the first API call or activity to the last, without API calls that of the capture.
    """
    if not len(activities):
        return True
    time = work_ns(activities)
    if time >= LEAST_SHARE * span_ns:  # the run is not longer
        return False
    if time >= LEAST_SHARE * run_ns(activities, launches, span_ns):
        return False
    return time < LEAST_NS or not activities.kind.among(frames.KERNEL, frames.GRAPH).any()


def work_ns(activities: frames.Activities) -> int:
    """Return the sum of the durations of activities; one that ends before it starts has none."""
    length = activities.end - activities.start
    return int(np.maximum(length, 0).sum())


def run_ns(activities: frames.Activities, launches: frames.Launches, span_ns: int) -> int:
    """Return the time from the first API call or activity to the last; without API calls ``span_ns``."""
    if not len(launches):
        return span_ns
    tables = [table for table in (activities, launches) if len(table)]
    first = min(int(table.start.min()) for table in tables)
    return max(int(table.end.max()) for table in tables) - first
