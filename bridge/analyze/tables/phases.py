"""The table per phase: start/end ranges, which any thread may end and which may overlap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from bridge.analyze.groups import counts, ratio, sums, texts, times
from bridge.join.arrays import NONE, Ints, busy_apart, by, number
from bridge.join.attributed import Attributed
from importers import frames
from importers.frames import shared

# -- The table of waits: which op the host, or a stream, waited in


NO_OP = "(no op)"


def by_wait(joined: Attributed) -> pd.DataFrame:
    """Return one row per op and kind of wait: synchronisation of event, stream or context.

    The op is the innermost one open where the call was made; `NO_OP` if there was none. An event that
    was only recorded waits for nothing and counts its call.
    """
    waits = joined.report.waits
    rows = np.flatnonzero(joined.counted_waits)
    op = np.append(joined.node_op, NONE)[joined.wait_node[rows]]
    kinds = list(waits["kind"].cat.categories)
    pair, distinct = pd.factorize((op + 1) * len(kinds) + frames.codes(waits["kind"])[rows])
    ops, kind = np.divmod(distinct, max(1, len(kinds)))
    length = np.maximum(frames.ints(waits, "end") - frames.ints(waits, "start"), 0)[rows]
    return pd.DataFrame(
        {
            "op": texts([NO_OP, *joined.ops])[ops],
            "wait": texts(kinds)[kind],
            **times(pair, length, len(distinct)),
        }
    )


# -- The table per phase: start/end ranges, which any thread may end and which may overlap


def by_phase(joined: Attributed) -> pd.DataFrame:
    """Return one row per name of a phase.

    An activity is in a phase if its API call began in one of that name in its process, on whatever
    thread: once per name, and in as many names as were open. ``wall`` is the union of the phases on the
    host; ``open`` counts those that never ended.
    """
    ranges = joined.report.ranges
    rows = np.flatnonzero(frames.is_kind(ranges, frames.START_END) & joined.counted_ranges)
    name, used = pd.factorize(frames.codes(ranges["name"])[rows])
    groups = len(used)
    launched, of_range = _launched(joined)
    phases = _Timed(of_range[rows], *(frames.ints(ranges, c)[rows] for c in ("start", "end")))
    group, row = _inside(name, phases, launched)
    activities = joined.report.activities
    start, report = (frames.ints(activities, c)[row] for c in ("start", "report"))
    gpu = sums(group, joined.duration[row], groups)
    is_kernel = frames.is_kind(activities, frames.KERNEL)[row]
    return pd.DataFrame(
        {
            "phase": texts(ranges["name"].cat.categories)[used],
            "ranges": counts(name, groups),
            "open": counts(name[ranges["open"].to_numpy()[rows]], groups),
            "activities": counts(group, groups),
            "kernels": counts(group[is_kernel], groups),
            "gpu_ns": gpu,
            "gpu_busy_ns": busy_apart(group, report, start, joined.end[row], groups),
            "wall_ns": busy_apart(name, phases.process, phases.start, phases.end, groups),
            "share": ratio(gpu, joined.whole_ns),
        }
    )


@dataclass(frozen=True)
class _Timed:
    """Intervals of processes, which are numbered."""

    process: Ints
    start: Ints
    end: Ints


@dataclass(frozen=True)
class _Launched:
    """Activities with an API call, sorted by process and the time of the call."""

    row: Ints
    process: Ints
    time: Ints


def _launched(joined: Attributed) -> tuple[_Launched, Ints]:
    """Return what was launched, and the process of each range by the same numbers."""
    report, launch = joined.report, joined.attribution.launch
    rows = np.flatnonzero((launch != NONE) & joined.accounted)
    keys = [
        tuple(frames.ints(table, c) for c in ("report", "process"))
        for table in (report.launches, report.ranges)
    ]
    of_call, of_range = shared(*keys)
    process, time = of_call[launch[rows]], frames.ints(report.launches, "start")[launch[rows]]
    order = by(process, time)
    return _Launched(rows[order], process[order], time[order]), of_range


def _inside(name: Ints, phases: _Timed, launched: _Launched) -> tuple[Ints, Ints]:
    """Return (name, activity) once for every name that was open when the activity's call began."""
    group, process, start, end = _merged(name, phases)
    first, last = np.zeros(len(group), np.int64), np.zeros(len(group), np.int64)
    for one in np.unique(process).tolist():  # one turn per process
        ours = process == one
        low, high = np.searchsorted(launched.process, (one, one + 1))
        time = launched.time[low:high]
        first[ours] = low + np.searchsorted(time, start[ours], "left")
        last[ours] = low + np.searchsorted(time, end[ours], "left")
    size = last - first
    place = np.arange(size.sum()) + np.repeat(first - np.cumsum(size) + size, size)
    return np.repeat(group, size), launched.row[place]


def _merged(name: Ints, phases: _Timed) -> tuple[Ints, Ints, Ints, Ints]:
    """Return name, process, start and end of the times at which any phase of a name is open."""
    lasting = np.flatnonzero(phases.end > phases.start)
    order = lasting[by(name[lasting], phases.process[lasting], phases.start[lasting])]
    group, process, start, end = (
        c[order] for c in (name, phases.process, phases.start, phases.end)
    )
    part, _ = number(group, process)
    # Ranks instead of times, each part's after all of the one before: one running maximum serves all.
    rank = np.argsort(np.argsort(end, kind="stable"), kind="stable") + part * len(end)
    reached = np.maximum.accumulate(rank) if len(rank) else rank
    latest = np.sort(end, kind="stable")[reached - part * len(end)] if len(end) else end
    new = np.ones(len(start), bool)
    new[1:] = (part[1:] != part[:-1]) | (start[1:] > latest[:-1])
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(start)) - 1 if len(first) else first
    return group[first], process[first], start[first], latest[last]
