"""Memory over time: what the program sampled (counters of the domain "memory", or named so), and what was allocated."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from bridge.analyze.groups import Floats, texts
from bridge.analyze.memory import Held
from bridge.analyze.overview.axis import Axis, Bins
from bridge.join.arrays import NONE, Flags, Ints, by, number, runs
from bridge.join.attributed import Attributed
from importers import frames
from importers.frames import COUNTER

DOMAIN = "memory"
NAMED = re.compile(r"memory|allocated|reserved|resident", re.IGNORECASE)
MOST_SERIES = 12
MOST_BINS = 400  # of each the least and the greatest sample are kept


def memory(joined: Attributed, axis: Axis) -> dict[str, Any] | None:
    """Return each counter's samples, and what was used and reserved by events: ``time`` in ns, ``value`` in bytes.

    Of many samples those are kept that a drawing shows: the least and the greatest of each bin.
    """
    series = [*_sampled(joined, axis), *_allocated(joined, axis)]
    if not series:
        return None
    series.sort(key=lambda one: -max(one["value"]))
    return {
        "length_ns": max(1, axis.length),
        "series": series[:MOST_SERIES],
        "left": len(series[MOST_SERIES:]),
    }


def _allocated(joined: Attributed, axis: Axis) -> Iterator[dict[str, Any]]:
    """Yield what was used, and reserved where that is known, of each process, device and kind."""
    if not len(joined.report.memory):
        return
    held = Held.of(joined)
    groups = np.arange(len(held.events.groups))
    where = held.places(groups)
    several = len(np.unique(where["pid"])) > 1
    for group in groups.tolist():  # a turn per process, device and kind
        rows = np.flatnonzero(held.group == group)
        gpu = f" of GPU {where['device'][group]}" if where["device"][group] != NONE else ""
        name = f"{where['memory'][group]} memory{gpu}"
        whose = f", process {where['pid'][group]}" if several else ""
        for what, level in (("used", held.used[rows]), ("reserved", held.reserved[rows])):
            if len(rows) and level[0] != NONE:
                taken = _telling(axis.bins(MOST_BINS), held.events.time[rows], level)
                time = np.clip(held.events.time[rows][taken] - axis.start, 0, axis.length)
                yield {
                    "name": f"{name}, {what}{whose}",
                    "time": time.tolist(),
                    "value": level[taken].tolist(),
                }


def _sampled(joined: Attributed, axis: Axis) -> list[dict[str, Any]]:
    """Return the samples of each counter."""
    marks = joined.report.marks
    rows = np.flatnonzero(_are(joined))
    if not len(rows):
        return []
    keys = (frames.ints(marks, c)[rows] for c in ("report", "process"))
    group, first = number(*keys, frames.codes(marks["name"])[rows])
    time, value = frames.ints(marks, "time")[rows], _values(joined, rows)
    order = by(group, time)
    edges = runs(group[order]).tolist()
    several = len(np.unique(frames.ints(marks, "process")[rows])) > 1
    series = []
    for at, (a, b) in enumerate(pairwise(edges)):  # a turn per counter
        taken = order[a:b]
        taken = taken[_telling(axis.bins(MOST_BINS), time[taken], value[taken])]
        name = str(marks["name"].iloc[rows[first[at]]]).removeprefix(COUNTER)
        pid = int(frames.ints(marks, "process")[rows[first[at]]]) >> 24 & 0xFFFFFF
        series.append(
            {
                "name": f"{name}, process {pid}" if several else name,
                "time": (time[taken] - axis.start).tolist(),
                "value": value[taken].tolist(),
            }
        )
    return series


def samples(joined: Attributed) -> pd.DataFrame:
    """Return every sample of memory: name of the counter, process (and report), time in ns, value in bytes."""
    marks, rows = joined.report.marks, np.flatnonzero(_are(joined))
    names = [name.removeprefix(COUNTER) for name in marks["name"].cat.categories]
    return pd.DataFrame(
        {
            "name": texts(names)[frames.codes(marks["name"])[rows]],
            **{c: frames.ints(marks, c)[rows] for c in ("report", "process", "time")},
            "value": _values(joined, rows),
        }
    )


def _are(joined: Attributed) -> Flags:
    marks = joined.report.marks
    names = list(marks["name"].cat.categories)
    is_counter = np.array([*(n.startswith(COUNTER) for n in names), False])
    so_named = np.array([*(NAMED.search(n) is not None for n in names), False])
    of_domain = np.array([*(n == DOMAIN for n in marks["domain_name"].cat.categories), False])
    name, domain = frames.codes(marks["name"]), frames.codes(marks["domain_name"])
    found: Flags = is_counter[name] & (so_named[name] | of_domain[domain])
    return found


def _values(joined: Attributed, rows: Ints) -> Floats:
    """Return the value of each sample: an integer payload, or a real one, which is JSON."""
    marks = joined.report.marks
    real = np.array([*map(_number, marks["json"].cat.categories), np.nan])
    said = real[frames.codes(marks["json"])[rows]]
    return np.where(np.isnan(said), frames.ints(marks, "payload")[rows], said)


def _number(text: str) -> float:
    """Return a finite number that is told as JSON, else NaN."""
    try:
        value = float(json.loads(text))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return np.nan
    return value if np.isfinite(value) else np.nan


def _telling(bins: Bins, time: Ints, value: Floats | Ints) -> Ints:
    """Choose of each bin the least and the greatest sample, besides the first and the last of all."""
    if len(time) <= 2 * bins.count:
        return np.arange(len(time))
    place = bins.at(time)
    low = np.lexsort((value, place))
    edge = runs(place[low])
    return np.unique(np.concatenate(([0, len(time) - 1], low[edge[:-1]], low[edge[1:] - 1])))
