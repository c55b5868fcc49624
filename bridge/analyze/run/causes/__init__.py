"""Break down the time of ops: host code, API calls, waits and queues, and idle time of a GPU before their work.

docs/causes.md defines every column.
"""

from __future__ import annotations

import numpy as np

from bridge.analyze.core.groups import sums
from bridge.analyze.run.causes.host_timeline import bound, call_ends, self_times_by_call
from bridge.analyze.run.causes.starving import idle_times
from bridge.importers import frames
from bridge.importers.arrays import lookup
from bridge.join.arrays import NONE, Ints
from bridge.join.attributed import AttributedCapture
from bridge.join.attribution import INVALID_TIME

# Columns of tables of ranges.
CAUSES = ("host_ns", "api_ns", "sync_ns", "queue_ns", "launch_gap_ns", "starved_ns", "bound")


def causes(
    attributed: AttributedCapture, of_node: Ints, groups: int, of_activity: Ints | None = None
) -> dict[str, Ints | np.ndarray]:
    """Return the columns `CAUSES` per group of ranges in ns, without ranges inside them.

    ``of_node`` is the group of each node of the nesting, NONE for none. ``of_activity`` is the
    group of each activity, given where activities without a range have a group, too. Rows of a
    direction that is not counted are left out. The first three columns add up to the self time of
    the group's ranges.
    """
    nodes = np.flatnonzero(attributed.listed & (of_node != NONE))
    times = {
        column: sums(of_node[nodes], time[nodes], groups)
        for column, time in zip(CAUSES[:3], self_times_by_call(attributed), strict=True)
    }
    group = lookup(of_node, attributed.node) if of_activity is None else of_activity
    rows = np.flatnonzero(attributed.counted & (group != NONE))
    group = group[rows]
    for column, time in zip(
        CAUSES[3:6], (queue_times(attributed), *idle_times(attributed)), strict=True
    ):
        times[column] = sums(group, time[rows], groups)
    is_copy = attributed.capture.activities.kind.among(frames.MEMCPY, frames.MEMSET)[rows]
    duration = attributed.duration[rows]
    kernels, copies = (sums(group[mask], duration[mask], groups) for mask in (~is_copy, is_copy))
    return times | {"bound": bound(kernels, copies, times)}


def queue_times(attributed: AttributedCapture) -> Ints:
    """Return the time from the end of the API call to the start of each activity, in ns.

    It is 0 if the activity began earlier or its API call is unknown.
    """
    launch = attributed.attribution.launch
    start = attributed.capture.activities.start
    wait = np.maximum(start - lookup(call_ends(attributed), launch, 0), 0)
    is_unknown = (launch == NONE) | (attributed.attribution.reason == INVALID_TIME)
    return np.where(is_unknown, 0, wait)
