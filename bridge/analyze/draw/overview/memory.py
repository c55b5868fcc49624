"""Compute memory over time: samples of counters, and recorded allocations."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from bridge.analyze.core.groups import Floats
from bridge.analyze.cost.memory import MemoryUsage
from bridge.analyze.cost.memory.counters import is_memory_sample, sample_values
from bridge.analyze.draw.overview.axis import Axis, Bins
from bridge.importers import frames
from bridge.importers.frames import COUNTER
from bridge.join.arrays import NONE, Ints, number_groups, order_by, run_edges
from bridge.join.attributed import AttributedCapture

MAX_SERIES = 12
MAX_BINS = 400  # the minimum and maximum of each are kept


def memory(attributed: AttributedCapture, axis: Axis) -> dict[str, Any] | None:
    """Return series of used and reserved memory: ``time`` in ns, ``value`` in bytes.

    Series are samples of counters in the domain "memory" or with such a name, and allocations. Long
    series are reduced to the minimum and maximum of each bin.
    """
    series = [*_sample_series(attributed, axis), *_allocation_series(attributed, axis)]
    if not series:
        return None
    series.sort(key=lambda entry: -max(entry["value"]))
    return {
        "length_ns": max(1, axis.length),
        "series": series[:MAX_SERIES],
        "left": len(series[MAX_SERIES:]),
    }


def _allocation_series(attributed: AttributedCapture, axis: Axis) -> Iterator[dict[str, Any]]:
    """Yield used and, where known, reserved memory of each process, device and kind."""
    if not len(attributed.capture.memory):
        return
    usage = MemoryUsage.of(attributed)
    groups = np.arange(len(usage.events.groups))
    places = usage.places(groups)
    is_multi_process = len(np.unique(places["pid"])) > 1
    for group in groups.tolist():  # one iteration per process, device and kind
        rows = np.flatnonzero(usage.group == group)
        gpu = f" of GPU {places['device'][group]}" if places["device"][group] != NONE else ""
        name = f"{places['memory'][group]} memory{gpu}"
        process = f", process {places['pid'][group]}" if is_multi_process else ""
        for suffix, level in (("used", usage.used[rows]), ("reserved", usage.reserved[rows])):
            if len(rows) and level[0] != NONE:
                selected = _extremes(axis.bins(MAX_BINS), usage.events.time[rows], level)
                time = np.clip(usage.events.time[rows][selected] - axis.start, 0, axis.length)
                yield {
                    "name": f"{name}, {suffix}{process}",
                    "time": time.tolist(),
                    "value": level[selected].tolist(),
                }


def _sample_series(attributed: AttributedCapture, axis: Axis) -> list[dict[str, Any]]:
    """Return the samples of each counter."""
    marks = attributed.capture.marks
    rows = np.flatnonzero(is_memory_sample(attributed))
    if not len(rows):
        return []
    keys = marks.report[rows], marks.process[rows]
    group, first = number_groups(*keys, marks.name.codes[rows])
    time, value = marks.time[rows], sample_values(attributed, rows)
    order = order_by(group, time)
    edges = run_edges(group[order]).tolist()
    is_multi_process = len(np.unique(marks.process[rows])) > 1
    series = []
    for number, (a, b) in enumerate(pairwise(edges)):  # one iteration per counter
        selected = order[a:b]
        selected = selected[_extremes(axis.bins(MAX_BINS), time[selected], value[selected])]
        name = marks.name[rows[first[number]]].removeprefix(COUNTER)
        pid = frames.pid(int(marks.process[rows[first[number]]]))
        series.append(
            {
                "name": f"{name}, process {pid}" if is_multi_process else name,
                "time": (time[selected] - axis.start).tolist(),
                "value": value[selected].tolist(),
            }
        )
    return series


def _extremes(bins: Bins, time: Ints, value: Floats | Ints) -> Ints:
    """Return the minimum and maximum sample of each bin, and the first and last sample."""
    if len(time) <= 2 * bins.count:
        return np.arange(len(time))
    bin_number = bins.at(time)
    low = np.lexsort((value, bin_number))
    edge = run_edges(bin_number[low])
    return np.unique(np.concatenate(([0, len(time) - 1], low[edge[:-1]], low[edge[1:] - 1])))
