"""The table of launches: how long calls took, how long kernels waited in the queue, and how long they ran."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bridge.analyze.causes.api_calls import ends
from bridge.analyze.groups import Floats, counts, highest, lowest, quantiles, ratio, sums, texts
from bridge.analyze.names import KERNEL_NAMES, files
from bridge.analyze.tracks import ID_BITS
from bridge.join.arrays import NONE, Ints, number
from bridge.join.attributed import Attributed
from importers import frames


def by_launch(joined: Attributed, kernel_names: str = "short") -> pd.DataFrame:
    """Return one row per process (of a file), thread, device, name of the API call and kernel, of kernels with a call.

    ``total`` is from the start of the call until it has returned and the kernel has ended, ``api`` the call,
    ``queue`` from the call's end to the kernel's start, ``kernel`` the kernel. Kernels that began before
    their call returned are not in ``queue_count``, and the figures of queues leave them out: 0 and, of least and
    greatest, -1 for none.
    """
    activities, calls = joined.report.activities, joined.report.launches
    launch = joined.attribution.launch
    is_kernel = frames.is_kind(activities, frames.KERNEL)
    rows = np.flatnonzero(is_kernel & (launch != NONE) & joined.counted)
    call = launch[rows]
    named = activities[KERNEL_NAMES[kernel_names]]
    report, process, thread = (frames.ints(calls, c)[call] for c in ("report", "process", "thread"))
    device = frames.ints(activities, "device")[rows]
    api, kernel = frames.codes(calls["name"])[call], frames.codes(named)[rows]
    group, some = number(report, process, thread, device, api, kernel)
    table: dict[str, object] = {
        "kernel": texts([*named.cat.categories, ""])[kernel[some]],
        "api": texts([*calls["name"].cat.categories, ""])[api[some]],
        "pid": (process[some] >> 24) & ID_BITS,
        "tid": thread[some] & ID_BITS,
        "device": device[some],
        "count": counts(group, len(some)),
    }
    if len(of_file := files(joined.report)) > 1:
        table = {"report": texts(of_file)[report[some]]} | table
    called, returned = frames.ints(calls, "start")[call], ends(joined)[call]
    began, ended = frames.ints(activities, "start")[rows], joined.end[rows]
    queued = began >= returned
    every = np.ones(len(rows), bool)
    for part, time, chosen in (
        ("total", np.maximum(ended, returned) - called, every),
        ("api", returned - called, every),
        ("queue", began - returned, queued),
        ("kernel", ended - began, every),
    ):
        table |= _figures(part, group[chosen], time[chosen], len(some))
    return pd.DataFrame(table)


def _figures(part: str, group: Ints, time: Ints, groups: int) -> dict[str, Ints | Floats]:
    """Return sum, mean, median, least and greatest of each group, under names of this part."""
    count, total = counts(group, groups), sums(group, time, groups)
    (median,) = quantiles(group, time, groups, 0.5)
    table: dict[str, Ints | Floats] = {"queue_count": count} if part == "queue" else {}
    return table | {
        f"{part}_ns": total,
        f"{part}_mean_ns": ratio(total, count),
        f"{part}_median_ns": median,
        f"{part}_min_ns": lowest(group, time, groups),
        f"{part}_max_ns": highest(group, time, groups),
    }
