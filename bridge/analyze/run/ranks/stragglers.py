"""Ranks that others wait for in collectives: when they come, and what they spend more time on than the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bridge.analyze.core.devices import Devices
from bridge.analyze.core.groups import counts, lowest, sums, texts
from bridge.analyze.core.table import Table
from bridge.analyze.run.account import RunClocks
from bridge.analyze.run.causes.gaps import Gaps
from bridge.analyze.run.causes.operating_system import HostTimes
from bridge.analyze.run.critical.device import Met
from bridge.analyze.run.critical.retiming import Change
from bridge.analyze.run.critical.run import Run
from bridge.analyze.run.idle.causes import CODE, LATE_RANK, WORDS, Causes, causes_of
from bridge.analyze.run.ranks.members import Ranks
from bridge.importers.arrays import lookup, scatter
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by, run_edges
from bridge.join.attributed import AttributedCapture

# -- When ranks come


@record
class LateArrivals:
    """Collectives and transfers to which one rank came later than half of the others that waited for it.

    ``activity`` is the row of the kernel of the late rank, ``late`` the time in ns from when half of the others had
    come (the earlier half, where their number is even) to when it came, and ``waited`` the time that all others waited.
    """

    activity: Ints
    late: Ints
    waited: Ints

    def take(self, rows: Ints | Flags) -> LateArrivals:
        """Return some of them."""
        return LateArrivals(self.activity[rows], self.late[rows], self.waited[rows])

    @classmethod
    def of(cls, run: Run) -> LateArrivals:
        """Return those of a run, in the order of their collectives."""
        work, met, gpu = run.work, Met.of(run.work), run.gpu_of_place
        last = run_edges(met.of_awaited)[1:] - 1  # of equal starts the last one by row
        place, collective = met.awaited[last], met.of_awaited[last]
        late_of = np.searchsorted(collective, met.of_waiting)
        others = np.flatnonzero(gpu[met.waiting] != gpu[place[late_of]])
        late_of, came = late_of[others], work.start[met.waiting[others]]
        start = work.start[place]
        order, size = order_by(late_of, came), counts(late_of, len(place))
        middle = np.cumsum(size) - size + np.maximum(size - 1, 0) // 2
        half = lookup(came[order], np.where(size > 0, middle, NONE), 0)
        late = np.where(size > 0, start - half, 0)
        waited = sums(late_of, np.maximum(start[late_of] - came, 0), len(place))
        return cls(work.row[place], late, waited).take(late > 0)


# -- What ranks spend time on


@record
class Comparison:
    """What ranks spend time on, one row per rank, cause, op and call; see `by_straggler` for the times.

    ``rank`` is a GPU. ``row`` are the rows of ``causes`` by their rank and what they are, NONE for what a rank has not.
    ``less`` is by how many ns each of the ``ranks`` waits less for later ranks than the others.
    """

    causes: Causes
    rank: Ints
    cause: Ints
    op: Ints
    callee: Ints
    time: Ints
    others: Ints
    row: Ints
    ranks: Ints
    less: Ints

    @property
    def more(self) -> Ints:
        """How much more time a rank spends than the others."""
        return self.time - self.others

    @property
    def waits(self) -> Flags:
        """Which rows are waits for later ranks."""
        result: Flags = self.cause == CODE[LATE_RANK]
        return result

    def least_waiting(self) -> tuple[int, int]:
        """Return the rank that waits least beside the others that it meets, and by how many ns; NONE without any."""
        if not len(self.less):
            return NONE, 0
        return int(self.ranks[self.less.argmax()]), int(self.less.max())

    @classmethod
    def of(cls, attributed: AttributedCapture, run: Run) -> Comparison:
        """Compare the ranks in the selection of a capture, by the graph of its run."""
        causes = _causes_alone(attributed, run)
        keys = causes.cause, causes.op, causes.callee
        what, first = number_groups(*keys)
        ranks, of_gap = np.unique(causes.gaps.device, return_inverse=True)
        row = np.full((len(ranks), len(first)), NONE)
        row[of_gap[causes.gap], what] = np.arange(len(what))
        time = lookup(causes.length, row, 0)
        waited = time[:, causes.cause[first] == CODE[LATE_RANK]].sum(axis=1, keepdims=True)
        all_times = np.hstack((time, waited))
        others = np.zeros_like(all_times)
        team = _teams(run)[ranks]
        for one in np.unique(team).tolist():  # one iteration per team
            others[team == one] = _middle_of_others(all_times[team == one])
        less, others = (others - all_times)[:, -1], others[:, :-1]
        rank, what = np.nonzero((time != 0) | (others != 0))
        cause, op, callee = (column[first[what]] for column in keys)
        return cls(
            causes=causes,
            rank=ranks[rank],
            cause=cause,
            op=op,
            callee=callee,
            time=time[rank, what],
            others=others[rank, what],
            row=row[rank, what],
            ranks=ranks,
            less=less,
        )

    def counts(self) -> Ints:
        """Return of how many pieces of time each row is."""
        size = counts(self.causes.row_of_piece, len(self.causes.gap))
        return lookup(size, self.row, 0)

    def longest_nodes(self, run: Run) -> Ints:
        """Return the node of the nesting in which most of each row passed at once, NONE for none."""
        pieces, row, point = self.causes.pieces, self.causes.row_of_piece, self.causes.point
        order = order_by(row, pieces.start - pieces.end)
        first = order[run_edges(row[order])[:-1]]
        longest = lookup(point[first], self.row)
        is_host = longest >= run.hosts
        of_host = lookup(run.host.node, np.where(is_host, longest - run.hosts, NONE))
        place = lookup(run.device.activity, np.where(is_host, NONE, longest))
        of_work = lookup(run.work.attributed.attribution.node, lookup(run.work.row, place))
        result: Ints = np.where(is_host, of_host, of_work)
        return result

    def as_others(self, number: int) -> Change:
        """Let a rank spend no more time than the others on what a row is."""
        pieces = self.causes.pieces
        rows = np.flatnonzero(
            (self.causes.row_of_piece == self.row[number]) & (self.causes.point != NONE)
        )
        points, group = np.unique(self.causes.point[rows], return_inverse=True)
        length = sums(group, (pieces.end - pieces.start)[rows], len(points))
        part = self.more[number] / max(1, int(self.time[number]))
        shorter = np.rint(length * part).astype(np.int64)
        return lambda draft: draft.shorten(points, shorter)


def by_straggler(attributed: AttributedCapture) -> Table:
    """Return one row per rank, cause, op and call: how long a rank took for it, and how much longer than others.

    ``time_ns`` is that on the path of the rank alone, from the begin of the run or of its selection to its last
    collective: what it waited for at each instant, its own work, and in collectives the ranks that came later. The rows
    of a rank add up to that time. ``others_ns`` is the lower median of the other ranks that meet it in collectives, or
    meet those that do; ``more_ns`` is the difference, which is negative for what the rank has less of. No rows where no
    ranks met on one clock.
    """
    found = Comparison.of(attributed, Run.of_any(attributed.unselected or attributed))
    causes = found.causes
    row_of_causes = scatter(
        np.flatnonzero(found.row != NONE), found.row[found.row != NONE], len(causes.gap)
    )
    return Table(
        {
            "rank": texts(names_of_ranks(attributed))[found.rank],
            "cause": texts(WORDS)[found.cause],
            "op": texts([*attributed.ops, ""])[found.op],
            "call": texts([*causes.callees, ""])[found.callee],
            "time_ns": found.time,
            "others_ns": found.others,
            "more_ns": found.more,
            **HostTimes.of(attributed, causes.host_pieces).columns(
                row_of_causes[causes.row_of_piece], len(found.time)
            ),
        }
    )


def names_of_ranks(attributed: AttributedCapture) -> list[str]:
    """Return a name of each GPU: that of its rank, if this uses no other GPU and no other rank uses it."""
    devices, activities = Devices.of_report(attributed), attributed.capture.activities
    ranks, result = Ranks.of(attributed.capture, attributed.place), list(devices.names)
    member = ranks.place(activities.report, activities.process)
    _, first = number_groups(devices.gpu, member)
    gpu, member = devices.gpu[first], member[first]
    alone = (counts(gpu, len(result))[gpu] == 1) & (counts(member, len(ranks.names))[member] == 1)
    for one in np.flatnonzero(alone).tolist():  # one iteration per rank
        result[gpu[one]] = ranks.names[member[one]]
    return result


def _teams(run: Run) -> Ints:
    """Return a number per GPU, the same for those that meet in collectives, also by way of others."""
    met, gpu = Met.of(run.work), run.gpu_of_place
    collective = np.concatenate((met.of_awaited, met.of_waiting))
    member = gpu[np.concatenate((met.awaited, met.waiting))]
    team = np.arange(int(gpu.max(initial=NONE)) + 1)
    size = int(collective.max(initial=NONE)) + 1
    while True:  # each round reaches those that are one meeting further
        of_collective = lowest(collective, team[member], size)
        joined = np.minimum(
            team, lowest(member, of_collective[collective], len(team), empty=len(team))
        )
        if np.array_equal(joined, team):
            return team
        team = joined


def _middle_of_others(time: Ints) -> Ints:
    """Return for each rank, a row, the lower median of the other rows of each column; 0 of one rank alone."""
    size = len(time)
    if size <= 1:
        return np.zeros_like(time)
    order = np.argsort(time, axis=0, kind="stable")
    position = np.empty_like(order)
    np.put_along_axis(position, order, np.arange(size)[:, np.newaxis], axis=0)
    ordered = np.take_along_axis(time, order, axis=0)
    middle = (size - 2) // 2
    result: Ints = np.where(position > middle, ordered[middle], ordered[middle + 1])
    return result


def _causes_alone(attributed: AttributedCapture, run: Run) -> Causes:
    """Return what each rank waited for up to its last collective in the selection, by a graph without other ranks."""
    met = Met.of(run.work)
    rows = np.unique(np.concatenate((met.awaited, met.waiting)))
    rows = run.work.row[rows]
    rows = rows[attributed.counted[rows]]
    start, devices = attributed.capture.activities.start, Devices.of_report(attributed)
    rows = rows[order_by(devices.gpu[rows], start[rows])]
    last = rows[run_edges(devices.gpu[rows])[1:] - 1]
    gpu, clocks = devices.gpu[last], RunClocks.of(attributed)
    begin = np.array([clocks.part_of(devices.report[one]).start for one in gpu.tolist()], np.int64)
    if (
        attributed.selection is not None and attributed.selection.is_window
    ):  # each report has a window of its own
        report = np.array([devices.report[one] for one in gpu.tolist()], np.int64)
        begin = np.maximum(begin, attributed.selection.start[report])
    gaps = Gaps(
        start=begin,
        end=start[last],
        device=gpu,
        ended_by=last.astype(np.int32),
        before=np.full(len(last), NONE, np.int32),
        devices=devices.names,
    )
    cross = run.graph.cross.copy()
    cross[run.device.end[met.waiting]] = NONE
    alone = replace(run, graph=replace(run.graph, cross=cross))
    return causes_of(attributed, gaps.that(gaps.length > 0), alone)
