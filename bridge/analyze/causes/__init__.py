"""Where the time of ops goes: on the host, in API calls, in waits, in queues; and why a GPU was idle.

docs/causes.md defines every figure.
"""

from __future__ import annotations

import numpy as np

from bridge.analyze.causes.api_calls import ends
from bridge.analyze.causes.gaps import LATENCY, WORKING, blame, coarse
from bridge.analyze.causes.idle import Gaps, bound, own_times
from bridge.analyze.groups import sums
from bridge.join.arrays import NONE, Ints
from bridge.join.attributed import Attributed
from bridge.join.attribution import INVALID_TIME
from importers import frames

COLUMNS = ("host_ns", "api_ns", "sync_ns", "queue_ns", "launch_gap_ns", "starved_ns", "bound")


def causes(
    joined: Attributed, of_node: Ints, groups: int, of_activity: Ints | None = None
) -> dict[str, Ints | np.ndarray]:
    """Return the columns `COLUMNS` per group of ranges: ns of their own, none of ranges inside them.

    ``of_node`` is the group of each node of the nesting, ``of_activity`` that of each activity where those in no
    range have one too; NONE for none. What is not of the direction that is counted is left out. The first three
    add up to the own time of the group's ranges.
    """
    nodes = np.flatnonzero(joined.listed & (of_node != NONE))
    times = {
        column: sums(of_node[nodes], time[nodes], groups)
        for column, time in zip(COLUMNS[:3], own_times(joined), strict=True)
    }
    group = np.append(of_node, NONE)[joined.node] if of_activity is None else of_activity
    rows = np.flatnonzero(joined.counted & (group != NONE))
    group = group[rows]
    for column, time in zip(COLUMNS[3:6], (queued(joined), *idle_times(joined)), strict=True):
        times[column] = sums(group, time[rows], groups)
    moves = frames.is_kind(joined.report.activities, frames.MEMCPY, frames.MEMSET)[rows]
    spent = joined.duration[rows]
    kernels, copies = (sums(group[of], spent[of], groups) for of in (~moves, moves))
    return times | {"bound": bound(kernels, copies, times)}


def queued(joined: Attributed) -> Ints:
    """Return how long each activity waited after its API call had returned, in ns; 0 if it began before."""
    launch = joined.attribution.launch
    start = frames.ints(joined.report.activities, "start")
    wait = np.maximum(start - np.append(ends(joined), 0)[launch], 0)
    unknown = (launch == NONE) | (joined.attribution.reason == INVALID_TIME)
    return np.where(unknown, 0, wait)


def idle_times(joined: Attributed) -> tuple[Ints, Ints]:
    """Return the idle time of its GPU right before each activity, in ns: of launching, and of starving.

    Both of all activities add up to what the GPUs were idle between their first and last work.
    """
    gaps = Gaps.of(joined)
    pieces = blame(joined, gaps, coarse(joined))
    launching = np.isin(pieces.state, (WORKING, LATENCY))
    of, number = gaps.ended_by[pieces.of], len(joined.report.activities)
    spent = (launching, ~launching)
    launched, starved = (sums(of[which], pieces.length[which], number) for which in spent)
    return launched, starved
