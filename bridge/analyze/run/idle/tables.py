"""Tables of idle GPUs and of the host meanwhile: gaps, their causes, calls of the operating system."""

from __future__ import annotations

import numpy as np

from bridge.analyze.core.groups import counts, highest, quantiles, ratio, sums, texts, times
from bridge.analyze.core.table import Table
from bridge.analyze.run.causes.gaps import Gaps, idle_gaps
from bridge.analyze.run.causes.operating_system import HostTimes
from bridge.analyze.run.idle.causes import WORDS, Causes, causes_of, find_causes
from bridge.importers.arrays import factorize, lookup
from bridge.join.arrays import NONE, Ints, number_groups, order_by, run_edges
from bridge.join.attributed import AttributedCapture

LISTED_OVER_NS = 10_000  # `by_gap` lists longer gaps unless it is asked for others


def by_gap(attributed: AttributedCapture, idle_over_ns: int | None = None) -> Table:
    """Return one row per gap of the run or its selected part longer than ``idle_over_ns``, 10 µs unless given.

    ``cause`` took most of the gap, ``cause_ns`` is how much, ``op`` is the op with most of that, and ``call`` the API
    call, call of the operating system or GPU that it was. ``ended_by`` is the op of the activity that ended the gap, or
    the name of an activity without an op; ``step`` is the number of its step, -1 if there is none. Nothing ends the
    last gap.
    """
    over_ns = LISTED_OVER_NS if idle_over_ns is None else idle_over_ns
    return gap_table(attributed, idle_gaps(attributed, over_ns))


def gap_table(attributed: AttributedCapture, gaps: Gaps) -> Table:
    """Return a row per gap, with the columns of `by_gap`."""
    causes = causes_of(attributed, gaps)
    idle, activity = causes.gaps, causes.gaps.ended_by
    main_row, total = _main_rows(causes)
    names = attributed.activity_name
    kernel = texts([*names.texts, ""])[lookup(names.codes, activity)]
    op = lookup(attributed.activity_op, activity)
    step = lookup(attributed.activity_iteration, activity)
    return Table(
        {
            "device": texts(idle.devices)[idle.device],
            "start_ns": idle.start,
            "gap_ns": idle.length,
            "cause": texts(WORDS)[causes.cause[main_row]],
            "cause_ns": total,
            "op": texts([*attributed.ops, ""])[causes.op[main_row]],
            "call": texts([*causes.callees, ""])[causes.callee[main_row]],
            "ended_by": np.where(op == NONE, kernel, texts([*attributed.ops, ""])[op]),
            "kernel": kernel,
            "step": lookup(attributed.iterations.number, step),
            **_host_columns(attributed, causes, causes.gap[causes.row_of_piece], len(idle)),
        }
    )


def by_idle(attributed: AttributedCapture, idle_over_ns: int | None = None) -> Table:
    """Return one row per cause, op and call, with the number of gaps in which it had a part and its time.

    ``mean_ns`` and ``max_ns`` are those of its part of a gap; ``share`` is a fraction of the idle
    time of all gaps longer than ``idle_over_ns``, of all gaps unless it is given.
    """
    causes = find_causes(attributed, idle_over_ns or 0)
    group, rows = number_groups(causes.cause, causes.op, causes.callee)
    size = len(rows)
    count, total = counts(group, size), sums(group, causes.length, size)
    return Table(
        {
            "cause": texts(WORDS)[causes.cause[rows]],
            "op": texts([*attributed.ops, ""])[causes.op[rows]],
            "call": texts([*causes.callees, ""])[causes.callee[rows]],
            "gaps": count,
            "total_ns": total,
            "mean_ns": ratio(total, count),
            "max_ns": highest(group, causes.length, size),
            "share": ratio(total, int(causes.gaps.length.sum())),
            **_host_columns(attributed, causes, group[causes.row_of_piece], size),
        }
    )


def _host_columns(
    attributed: AttributedCapture, causes: Causes, group: Ints, groups: int
) -> dict[str, object]:
    """Return the columns of `HostTimes` for a table; ``group`` is the row of each piece of idle time."""
    return HostTimes.of(attributed, causes.host_pieces).columns(group, groups)


def _main_rows(causes: Causes) -> tuple[Ints, Ints]:
    """Return per gap the row of the main op of its main cause, and the time of that cause.

    Of equal causes the first in `WORDS` counts, of equal ops the one that began first.
    """
    kind, rows = number_groups(causes.gap, causes.cause)
    total = sums(kind, causes.length, len(rows))[kind]
    order = order_by(causes.gap, -total, causes.cause, -causes.length, causes.first)
    main_row = order[run_edges(causes.gap[order])[:-1]]
    return main_row, total[main_row]


# -- The table of calls of the operating system


def by_osrt(attributed: AttributedCapture) -> Table:
    """Return one row per call of the operating system's runtime, such as read.

    ``threads`` is the number of threads that made it. ``idle_ns`` is the idle time of GPUs that the
    thread to launch the next work spent in it, not within another call.
    """
    calls = attributed.capture.system_calls
    rows = np.flatnonzero(attributed.counted_system_calls)
    name, distinct = factorize(calls.name.codes[rows])
    length = np.maximum(calls.end - calls.start, 0)[rows]
    size = len(distinct)
    thread, _ = number_groups(calls.report[rows], calls.thread[rows])
    _, first = number_groups(name, thread)
    (median,) = quantiles(name, length, size, 0.5)
    figures = times(name, length, size)
    return Table(
        {
            "call": texts([*calls.name.texts, ""])[distinct],
            "threads": counts(name[first], size),
            "count": figures.pop("count"),
            "idle_ns": _idle_times(attributed)[distinct],
            "total_ns": figures.pop("total_ns"),
            "mean_ns": figures.pop("mean_ns"),
            "median_ns": median,
            **figures,
        }
    )


def _idle_times(attributed: AttributedCapture) -> Ints:
    """Return the idle time of GPUs in each call, by the codes of their names."""
    times_of_host = HostTimes.of(attributed, find_causes(attributed).host_pieces)
    return sums(times_of_host.name, times_of_host.system.time, len(times_of_host.names))
