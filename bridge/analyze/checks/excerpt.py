"""List what ran between two instants: ops, API calls and activities with their time in between, and gaps.

`time_range` selects what began in a part of the time. An excerpt also contains what began before it
or ended after it, and counts of everything only the time between the two instants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bridge.analyze.core.calltree import self_times
from bridge.analyze.core.devices import Devices
from bridge.analyze.core.groups import counts, highest, lowest, sums, texts
from bridge.analyze.core.table import Table
from bridge.analyze.core.time_range import Windows, clock_window
from bridge.analyze.run.idle.tables import by_gap
from bridge.importers.records import record
from bridge.join.arrays import Flags, Ints, busy_time, number_groups
from bridge.join.attributed import AttributedCapture


@record
class Excerpt:
    """What ran from ``first_ns`` to ``last_ns`` since the first event of the report.

    Attributes:
        first_ns, last_ns: the two instants; the report may end before the second.
        devices: per GPU: ``busy_ns`` of the excerpt, ``idle_ns`` the rest of it, ``activities``,
            and ``first_ns`` and ``last_ns``, between which the GPU worked in the whole report.
        ops: per op: ``calls`` that were open, and ``cpu_self_ns``, in which no other range was open
            inside them on their thread; largest first.
        api: per API call: ``calls`` and ``cpu_ns``; largest first.
        work: per name and op of activities: ``count`` and ``gpu_ns``; largest first.
        gaps: as `by_gap`, and ``inside_ns``, the part of the gap inside the excerpt; largest first.

    """

    first_ns: int
    last_ns: int
    devices: Table
    ops: Table
    api: Table
    work: Table
    gaps: Table


def excerpt(attributed: AttributedCapture, first_ns: int, last_ns: int) -> Excerpt:
    """Return what ran between two instants, in ns since the first event of all files.

    Raises ValueError with a message for the user if the second is not after the first, or if the
    report ends before it.
    """
    window = clock_window(attributed, first_ns, last_ns)
    length = max(facts.span[1] for facts in attributed.capture.facts) - attributed.capture.began
    if first_ns >= length:
        raise ValueError(f"the report ends {length} ns after its first event")
    work = _Inside.of_activities(attributed, window)
    return Excerpt(
        first_ns=first_ns,
        last_ns=last_ns,
        devices=_devices(attributed, work, min(last_ns, length) - first_ns),
        ops=_ops(attributed, window),
        api=_api(attributed, window),
        work=_work(attributed, work),
        gaps=_gaps(attributed, first_ns, last_ns),
    )


@record
class _Inside:
    """The rows of a frame that ran in the excerpt, and their times, cut at its ends."""

    rows: Ints
    start: Ints
    end: Ints

    @classmethod
    def of(cls, window: Windows, report: Ints, start: Ints, end: Ints, mask: Flags) -> _Inside:
        rows = np.flatnonzero(window.meet(report, start, end) & mask)
        first, last = window.start[report[rows]], window.end[report[rows]]
        return cls(rows, np.clip(start[rows], first, last), np.clip(end[rows], first, last))

    @classmethod
    def of_activities(cls, attributed: AttributedCapture, window: Windows) -> _Inside:
        report, start = attributed.capture.activities.report, attributed.capture.activities.start
        return cls.of(window, report, start=start, end=attributed.end, mask=attributed.counted)

    @property
    def length(self) -> Ints:
        return self.end - self.start


def _devices(attributed: AttributedCapture, work: _Inside, length: int) -> Table:
    devices = Devices.of_report(attributed)
    size, gpu = len(devices.names), devices.gpu[work.rows]
    busy = busy_time(gpu, work.start, work.end, size)
    start = attributed.capture.activities.start
    began = attributed.capture.began
    return Table(
        {
            "device": texts(devices.names),
            "busy_ns": busy,
            "idle_ns": length - busy,
            "activities": counts(gpu, size),
            "first_ns": lowest(devices.gpu, start, size) - began,
            "last_ns": highest(devices.gpu, attributed.end, size) - began,
        }
    )


def _ops(attributed: AttributedCapture, window: Windows) -> Table:
    """Return the calls of each op that were open, and the CPU time of the op alone."""
    nesting = attributed.attribution.nesting
    report = attributed.capture.ranges.report[nesting.range]
    inside = _Inside.of(
        window, report, start=nesting.start, end=nesting.end, mask=attributed.listed
    )
    first, last = window.start[report], window.end[report]
    cut = replace(
        nesting, start=np.clip(nesting.start, first, last), end=np.clip(nesting.end, first, last)
    )
    op, call = attributed.node_op[inside.rows], attributed.call[nesting.range[inside.rows]]
    group, rows = number_groups(op)
    pairs, _ = number_groups(op, call)
    _, of_pair = np.unique(pairs, return_index=True)
    return _largest_first(
        {
            "op": texts(attributed.ops)[op[rows]],
            "calls": counts(group[of_pair], len(rows)),
            "cpu_self_ns": sums(group, self_times(cut)[inside.rows], len(rows)),
        }
    )


def _api(attributed: AttributedCapture, window: Windows) -> Table:
    launches = attributed.capture.launches
    report, start, end = launches.report, launches.start, launches.end
    inside = _Inside.of(window, report, start=start, end=end, mask=attributed.counted_launches)
    name = launches.name.codes[inside.rows]
    group, rows = number_groups(name)
    return _largest_first(
        {
            "api": texts([*launches.name.texts, ""])[name[rows]],
            "calls": counts(group, len(rows)),
            "cpu_ns": sums(group, inside.length, len(rows)),
        }
    )


def _work(attributed: AttributedCapture, work: _Inside) -> Table:
    names = attributed.activity_name
    name, op = names.codes[work.rows], attributed.activity_op[work.rows]
    group, rows = number_groups(name, op)
    return _largest_first(
        {
            "kernel": texts([*names.texts, ""])[name[rows]],
            "op": texts([*attributed.ops, ""])[op[rows]],
            "count": counts(group, len(rows)),
            "gpu_ns": sums(group, work.length, len(rows)),
        }
    )


def _gaps(attributed: AttributedCapture, first_ns: int, last_ns: int) -> Table:
    """Return the gaps of `by_gap` with time between the instants; they start since the first event."""
    gaps = by_gap(attributed)
    start = gaps["start_ns"] - attributed.capture.began
    inside = (start + gaps["gap_ns"]).clip(first_ns, last_ns) - start.clip(first_ns, last_ns)
    gaps = gaps.assign(start_ns=start).inserted("inside_ns", inside, before=gaps.columns[3])
    return _ordered(gaps[inside > 0], "inside_ns", ["start_ns", "device"])


def _largest_first(columns: dict[str, Ints | np.ndarray]) -> Table:
    """Return a table sorted by its last column, largest first, ties by name."""
    table = Table(columns)
    names = [name for name in ("op", "api", "kernel") if name in table]
    return _ordered(table, str(table.columns[-1]), names)


def _ordered(table: Table, column: str, ties: Sequence[str]) -> Table:
    return table.sort_values([column, *ties], ascending=[False, *(True for _ in ties)])
