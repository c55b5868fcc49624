"""What the operating system did for the host while a GPU was idle."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bridge.analyze.causes.host_timeline import Gaps
from bridge.join.arrays import NONE, Ints, number_groups, order_by
from bridge.join.attributed import AttributedCapture
from importers import frames


class SystemTime(NamedTuple):
    """The time of calls of the operating system within gaps: a row per gap and call that meet, in ns."""

    gap: Ints
    call: Ints
    time: Ints


def system_time(attributed: AttributedCapture, gaps: Gaps) -> SystemTime:
    """Return the calls of the operating system on the thread whose launch ended each gap.

    ``gap`` and ``call`` are rows of ``gaps`` and of the frame `system_calls`. Where calls nest, as
    fread and read do, each counts.
    """
    calls, launches = attributed.capture.system_calls, attributed.capture.launches
    launch = attributed.attribution.launch[gaps.ended_by]
    known = np.flatnonzero(launch != NONE)
    if not len(calls) or not len(known):
        empty = np.empty(0, np.int64)
        return SystemTime(empty, empty, empty)
    homes = [
        np.concatenate((frames.ints(calls, c), frames.ints(launches, c)[launch[known]]))
        for c in ("report", "thread")
    ]
    home, _ = number_groups(*homes)
    thread, of_gap = home[: len(calls)], home[len(calls) :]
    start, end = (frames.ints(calls, c) for c in ("start", "end"))
    order = order_by(thread, start)
    # The end that any call of the thread before this one in order has reached.
    longest = _running_maximum(thread[order], end[order])
    first = _place(thread[order], longest, of_gap, gaps.start[known], side="right")
    last = _place(thread[order], start[order], of_gap, gaps.end[known], side="left")
    count = np.maximum(last - first, 0)
    gap = np.repeat(known, count)
    call = order[np.arange(count.sum()) + np.repeat(first - (np.cumsum(count) - count), count)]
    time = np.minimum(end[call], gaps.end[gap]) - np.maximum(start[call], gaps.start[gap])
    meets = time > 0
    return SystemTime(gap[meets], call[meets], time[meets])


def _running_maximum(group: Ints, values: Ints) -> Ints:
    """Return the largest value so far within each group; groups are sorted."""
    rank = np.unique(values, return_inverse=True)
    place = np.maximum.accumulate(group * len(rank[0]) + rank[1])
    result: Ints = rank[0][place - group * len(rank[0])]
    return result


def _place(group: Ints, values: Ints, of: Ints, sought: Ints, *, side: str) -> Ints:
    """Return where each value belongs in its group: both are sorted, by group and then by value."""
    distinct, rank = np.unique(np.concatenate((values, sought)), return_inverse=True)
    size = len(distinct)
    keys = group * size + rank[: len(values)]
    result: Ints = np.searchsorted(keys, of * size + rank[len(values) :], side=side)  # type: ignore[call-overload]
    return result
