"""What the operating system did for the host while a GPU was idle."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bridge.join.arrays import NONE, Ints, number_groups, order_by, search_groups
from bridge.join.attributed import AttributedCapture
from importers import frames


class SystemTime(NamedTuple):
    """The time of calls of the operating system within intervals: a row per pair that meets, in ns."""

    interval: Ints
    call: Ints
    time: Ints


def system_time(
    attributed: AttributedCapture, ended_by: Ints, start: Ints, end: Ints
) -> SystemTime:
    """Return the calls of the operating system in some intervals of idle GPUs.

    ``ended_by`` is the activity that ended the gap of each interval: its launching thread counts.
    ``call`` is a row of the frame `system_calls`; of calls within calls, as fread calls read, only
    the outer one counts.
    """
    calls, launches = attributed.capture.system_calls, attributed.capture.launches
    launch = attributed.attribution.launch[ended_by]
    known = np.flatnonzero(launch != NONE)
    homes = [
        np.concatenate((frames.ints(calls, c), frames.ints(launches, c)[launch[known]]))
        for c in ("report", "thread")
    ]
    home, _ = number_groups(*homes)
    thread, of_interval = home[: len(calls)], home[len(calls) :]
    begin, stop = (frames.ints(calls, c) for c in ("start", "end"))
    order = outer_calls(thread, begin, stop)
    first = search_groups(thread[order], stop[order], of_interval, start[known], side="right")
    last = search_groups(thread[order], begin[order], of_interval, end[known], side="left")
    count = np.maximum(last - first, 0)
    interval = np.repeat(known, count)
    place = np.arange(count.sum()) + np.repeat(first - (np.cumsum(count) - count), count)
    call = order[place]
    time = np.minimum(stop[call], end[interval]) - np.maximum(begin[call], start[interval])
    meets = time > 0
    return SystemTime(interval[meets], call[meets], time[meets])


def outer_calls(thread: Ints, begin: Ints, stop: Ints) -> Ints:
    """Return the calls that begin when no other of their thread runs, by thread and start."""
    order = order_by(thread, begin, -stop)
    if not len(order):
        return order
    distinct, rank = np.unique(stop[order], return_inverse=True)
    # The latest end so far, of calls of the same thread.
    key = thread[order] * len(distinct) + rank
    latest = np.maximum.accumulate(key)[:-1]
    is_same = latest // len(distinct) == thread[order][1:]
    is_inner = is_same & (begin[order][1:] < distinct[latest % len(distinct)])
    return order[np.concatenate(([True], ~is_inner))]
