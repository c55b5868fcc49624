"""Ranks that come late to collectives: how late, and what took the time on them."""

from __future__ import annotations

import numpy as np

from bridge.analyze.core.devices import Devices
from bridge.analyze.core.groups import counts, highest, ratio, sums, texts
from bridge.analyze.core.table import Table
from bridge.analyze.run.causes.gaps import Gaps
from bridge.analyze.run.causes.operating_system import HostTimes
from bridge.analyze.run.concurrency.collectives import rank_names
from bridge.analyze.run.concurrency.matching import MatchedCalls
from bridge.analyze.run.critical.device import Met
from bridge.analyze.run.critical.run import Run
from bridge.analyze.run.idle.causes import WORDS, causes_of
from bridge.importers.arrays import factorize, lookup
from bridge.importers.records import record
from bridge.join.arrays import NONE, Ints, number_groups, order_by, run_edges
from bridge.join.attributed import AttributedCapture

NO_OP = "(no op)"


@record
class LateArrivals:
    """Collectives and transfers to which one rank came later than half of the others that waited for it.

    ``activity`` is the row of the kernel of the late rank, ``late`` the time in ns from when half of the others had
    come (the earlier half, where their number is even) to when it came, and ``waited`` the time that all others waited.
    """

    activity: Ints
    late: Ints
    waited: Ints

    def __len__(self) -> int:
        return len(self.activity)

    @classmethod
    def of(cls, run: Run) -> LateArrivals:
        """Return those of a run, in the order of their collectives."""
        work, met = run.work, Met.of(run.work)
        last = run_edges(met.of_awaited)[1:] - 1  # of equal starts the last rank by row
        place, collective = met.awaited[last], met.of_awaited[last]
        gpu = run.gpu_of_place
        late_of = np.searchsorted(collective, met.of_waiting)
        others = np.flatnonzero(gpu[met.waiting] != gpu[place[late_of]])
        late_of = late_of[others]
        start, came = work.start[place], work.start[met.waiting[others]]
        waited = np.maximum(start[late_of] - came, 0)
        order = order_by(late_of, came)
        size = counts(late_of, len(place))
        middle = np.cumsum(size) - size + np.maximum(size - 1, 0) // 2
        half = lookup(came[order], np.where(size > 0, middle, NONE), 0)
        late = np.where(size > 0, start - half, 0)
        rows = np.flatnonzero(late > 0)
        total = sums(late_of, waited, len(place))
        return cls(work.row[place[rows]], late[rows], total[rows])

    def gaps(self, attributed: AttributedCapture) -> Gaps:
        """Return the times in which the others waited, as gaps of the GPU of the late rank."""
        devices, end = Devices.of_report(attributed), attributed.capture.activities.start
        end = end[self.activity]
        return Gaps(
            start=end - self.late,
            end=end,
            device=devices.gpu[self.activity],
            ended_by=self.activity.astype(np.int32),
            before=np.full(len(self), NONE, np.int32),
            devices=devices.names,
        )


def by_straggler(attributed: AttributedCapture) -> Table:
    """Return one row per late rank, collective and path of ops, and cause, op and call of what it did instead.

    ``late_ns`` is the time by which it came later than half of the other ranks, which all rows of a collective add up
    to; ``count`` and ``max_ns`` are over collectives in which the cause had a part. Causes are those of idle GPUs, and
    the work of the late GPU itself. The attributes ``late_ns`` and ``waited_ns`` of the table are the sum, and the time
    that all other ranks waited.
    """
    run = Run.of_any(attributed.unselected or attributed)
    late = LateArrivals.of(run)
    counted = np.flatnonzero(attributed.counted[late.activity])
    late = LateArrivals(late.activity[counted], late.late[counted], late.waited[counted])
    causes = causes_of(attributed, late.gaps(attributed))
    calls = MatchedCalls.of(attributed).calls
    kind, kinds = factorize(calls.collective[np.searchsorted(calls.row, late.activity)])
    path, paths = attributed.node_path
    of_gap = (
        causes.gaps.device,
        kind.astype(np.int64),
        lookup(path, attributed.attribution.node[late.activity]),
    )
    keys = (*(column[causes.gap] for column in of_gap), causes.cause, causes.op, causes.callee)
    group, rows = number_groups(*keys)
    device, collective, at, cause, op, callee = (column[rows] for column in keys)
    size, count = len(rows), counts(group, len(rows))
    total = sums(group, causes.length, size)
    whole = int(late.late.sum())
    table = Table(
        {
            "rank": texts(rank_names(attributed, Devices.of_report(attributed)))[device],
            "collective": texts(kinds)[collective],
            "path": texts([*paths, NO_OP])[at],
            "cause": texts(WORDS)[cause],
            "op": texts([*attributed.ops, ""])[op],
            "call": texts([*causes.callees, ""])[callee],
            "count": count,
            "late_ns": total,
            "mean_ns": ratio(total, count),
            "max_ns": highest(group, causes.length, size),
            "share": ratio(total, whole),
            **HostTimes.of(attributed, causes.host_pieces).columns(
                group[causes.row_of_piece], size
            ),
        }
    )
    table.attrs["late_ns"] = whole
    table.attrs["waited_ns"] = int(late.waited.sum())
    return table
