"""Tables of the host's side: launches of kernels, waits, and phases."""

from __future__ import annotations

import numpy as np

from bridge.analyze.core.groups import (
    Floats,
    counts,
    highest,
    lowest,
    quantiles,
    ratio,
    sums,
    texts,
    times,
)
from bridge.analyze.core.names import activity_names, file_names
from bridge.analyze.core.table import Table
from bridge.analyze.run.causes.host_timeline import call_ends
from bridge.importers import frames
from bridge.importers.arrays import factorize, lookup
from bridge.importers.frames import key_codes
from bridge.importers.records import record
from bridge.join.arrays import NONE, Ints, busy_time_by_clock, number_groups, order_by
from bridge.join.attributed import AttributedCapture

# -- The table of launches


def by_launch(attributed: AttributedCapture, kernel_names: str = "readable") -> Table:
    """Return one row per file, process, thread, device, API call and kernel.

    Only kernels with an API call are counted. ``total`` is from the start of the call until the
    call has returned and the kernel has ended; ``api`` is the call, ``queue`` from the call's end
    to the kernel's start, ``kernel`` the kernel. Kernels that started before their call returned
    are not in ``queue_count`` nor in the other columns of the queue. Without a queued kernel these
    are 0; minimum and maximum are -1.
    """
    activities, calls = attributed.capture.activities, attributed.capture.launches
    launch = attributed.attribution.launch
    is_kernel = activities.kind.among(frames.KERNEL)
    rows = np.flatnonzero(is_kernel & (launch != NONE) & attributed.counted)
    call = launch[rows]
    named = activity_names(attributed, kernel_names)
    report, process, thread = calls.report[call], calls.process[call], calls.thread[call]
    device = activities.device[rows]
    api, kernel = calls.name.codes[call], named.codes[rows]
    group, first = number_groups(report, process, thread, device, api, kernel)
    table: dict[str, object] = {
        "kernel": texts([*named.texts, ""])[kernel[first]],
        "api": texts([*calls.name.texts, ""])[api[first]],
        "pid": frames.pid(process[first]),
        "tid": thread[first] & frames.ID_BITS,
        "device": device[first],
        "count": counts(group, len(first)),
    }
    if len(of_file := file_names(attributed.capture)) > 1:
        table = {"report": texts(of_file)[report[first]]} | table
    call_start, call_end = calls.start[call], call_ends(attributed)[call]
    kernel_start, kernel_end = activities.start[rows], attributed.end[rows]
    queued = kernel_start >= call_end
    all_rows = np.ones(len(rows), bool)
    for part, time, selected in (
        ("total", np.maximum(kernel_end, call_end) - call_start, all_rows),
        ("api", call_end - call_start, all_rows),
        ("queue", kernel_start - call_end, queued),
        ("kernel", kernel_end - kernel_start, all_rows),
    ):
        table |= _figures(part, group[selected], time[selected], len(first))
    return Table(table)


def _figures(part: str, group: Ints, time: Ints, groups: int) -> dict[str, Ints | Floats]:
    """Return the sum, mean, median, minimum and maximum of each group as columns of ``part``."""
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


# -- The table of waits


NO_OP = "(no op)"


def by_wait(attributed: AttributedCapture) -> Table:
    """Return one row per op and kind of wait: synchronization of event, stream or context.

    The op is the innermost one that was open when the call was made, `NO_OP` if there was none. An
    event that was only recorded waits for nothing; its call is counted.
    """
    waits = attributed.capture.waits
    rows = np.flatnonzero(attributed.counted_waits)
    op = lookup(attributed.node_op, attributed.wait_node[rows])
    kinds = list(waits.kind.texts)
    pair, distinct = factorize((op + 1) * len(kinds) + waits.kind.codes[rows])
    ops, kind = np.divmod(distinct, max(1, len(kinds)))
    length = np.maximum(waits.end - waits.start, 0)[rows]
    return Table(
        {
            "op": texts([NO_OP, *attributed.ops])[ops],
            "wait": texts(kinds)[kind],
            **times(pair, length, len(distinct)),
        }
    )


# -- The table per phase


def by_phase(attributed: AttributedCapture) -> Table:
    """Return one row per name of a phase.

    An activity is in a phase if its API call started while a phase of that name was open in its
    process, on any thread. It is counted once per name, in every name that was open. ``wall`` is
    the union of the phases on the host; ``open`` counts the phases that never ended.
    """
    ranges = attributed.capture.ranges
    rows = np.flatnonzero(ranges.kind.among(frames.START_END) & attributed.counted_ranges)
    name, name_codes = factorize(ranges.name.codes[rows])
    groups = len(name_codes)
    launched, range_process = _launched(attributed)
    phases = _Intervals(range_process[rows], ranges.start[rows], ranges.end[rows])
    group, row = _open_phases(name, phases, launched)
    activities = attributed.capture.activities
    start, report = activities.start[row], activities.report[row]
    gpu = sums(group, attributed.duration[row], groups)
    is_kernel = activities.kind.among(frames.KERNEL)[row]
    return Table(
        {
            "phase": texts(ranges.name.texts)[name_codes],
            "ranges": counts(name, groups),
            "open": counts(name[ranges.open[rows]], groups),
            "activities": counts(group, groups),
            "kernels": counts(group[is_kernel], groups),
            "gpu_ns": gpu,
            "gpu_busy_ns": busy_time_by_clock(
                group, report, start=start, end=attributed.end[row], groups=groups
            ),
            "wall_ns": busy_time_by_clock(
                name, phases.process, start=phases.start, end=phases.end, groups=groups
            ),
            "share": ratio(gpu, attributed.whole_ns),
        }
    )


@record
class _Intervals:
    """Intervals of processes, which are numbered."""

    process: Ints
    start: Ints
    end: Ints


@record
class _Launched:
    """Activities with an API call, sorted by process and by the start of the call."""

    row: Ints
    process: Ints
    time: Ints


def _launched(attributed: AttributedCapture) -> tuple[_Launched, Ints]:
    """Return the launched activities, and the process of each range by the same numbers."""
    capture, launch = attributed.capture, attributed.attribution.launch
    rows = np.flatnonzero((launch != NONE) & attributed.accounted)
    keys = [
        tuple(table[c] for c in ("report", "process"))
        for table in (capture.launches, capture.ranges)
    ]
    call_process, range_process = key_codes(*keys)
    process, time = call_process[launch[rows]], capture.launches.start[launch[rows]]
    order = order_by(process, time)
    return _Launched(rows[order], process[order], time[order]), range_process


def _open_phases(name: Ints, phases: _Intervals, launched: _Launched) -> tuple[Ints, Ints]:
    """Return (name, activity) for every name that was open when the activity's call started."""
    group, process, start, end = _unions(name, phases)
    first, last = np.zeros(len(group), np.int64), np.zeros(len(group), np.int64)
    for process_id in np.unique(process).tolist():  # one iteration per process
        in_process = process == process_id
        low, high = np.searchsorted(launched.process, (process_id, process_id + 1))
        time = launched.time[low:high]
        first[in_process] = low + np.searchsorted(time, start[in_process], "left")
        last[in_process] = low + np.searchsorted(time, end[in_process], "left")
    size = last - first
    place = np.arange(size.sum()) + np.repeat(first - np.cumsum(size) + size, size)
    return np.repeat(group, size), launched.row[place]


def _unions(name: Ints, phases: _Intervals) -> tuple[Ints, Ints, Ints, Ints]:
    """Return name, process, start and end of the intervals in which any phase of a name is open."""
    positive = np.flatnonzero(phases.end > phases.start)
    order = positive[order_by(name[positive], phases.process[positive], phases.start[positive])]
    group, process, start, end = (
        c[order] for c in (name, phases.process, phases.start, phases.end)
    )
    part, _ = number_groups(group, process)
    # Ranks replace times; those of a part follow all ranks of the part before, so that one running
    # maximum serves all parts.
    rank = np.argsort(np.argsort(end, kind="stable")) + part * len(end)
    latest_rank = np.maximum.accumulate(rank) if len(rank) else rank
    latest = np.sort(end)[latest_rank - part * len(end)] if len(end) else end
    is_start = np.ones(len(start), bool)
    is_start[1:] = (part[1:] != part[:-1]) | (start[1:] > latest[:-1])
    first = np.flatnonzero(is_start)
    last = np.append(first[1:], len(start)) - 1 if len(first) else first
    return group[first], process[first], start[first], latest[last]
