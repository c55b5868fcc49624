"""Make the tables of ranks and of the skew between them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bridge.analyze.core.devices import Devices
from bridge.analyze.core.groups import counts, highest, lowest, quantiles, ratio, sums, texts
from bridge.analyze.core.kinds import is_communication
from bridge.analyze.core.names import file_names
from bridge.analyze.core.table import Table
from bridge.analyze.run.account import (
    RunClocks,
    covered_times,
    exposed_communication,
    states_of_work,
)
from bridge.analyze.run.concurrency.clocks import Clocks
from bridge.analyze.run.ranks.members import PLACE, UNKNOWN, Member, Ranks
from bridge.importers import frames
from bridge.importers.records import record
from bridge.join.arrays import NONE, Ints, number_groups
from bridge.join.attributed import AttributedCapture

# -- Skew of ops between ranks


def by_skew(attributed: AttributedCapture) -> Table:
    """Return one row per op with GPU time: how the time is spread over the ranks that have any.

    ``total_ns`` is the GPU self time of the op over all ranks; mean, median, slowest and fastest
    are per rank. ``skew`` is slowest over median less 1. ``lost_ns`` is slowest less median, the
    most that the run could gain if the slowest rank were as fast as the others.
    ``communication_ns`` is the part of ``total_ns`` in communication kernels, which last longer the
    earlier a rank arrives.
    """
    ranks = Ranks.of(attributed.capture, attributed.place)
    rows = np.flatnonzero(attributed.activity_op != NONE)
    op, time = attributed.activity_op[rows], attributed.duration[rows]
    columns = (
        attributed.capture.activities.report[rows],
        attributed.capture.activities.process[rows],
    )
    pair, first = number_groups(op, ranks.place(*columns))
    time_of_pair = sums(pair, time, len(first))
    place = ranks.place(
        *(attributed.capture.activities[c][rows[first]] for c in ("report", "process"))
    )
    group, first_pair = number_groups(op[first])
    size, names = len(first_pair), texts(ranks.names)
    total = sums(group, time_of_pair, size)
    rank_count = counts(group, size)
    slowest, fastest = highest(group, time_of_pair, size), lowest(group, time_of_pair, size)
    (median,) = quantiles(group, time_of_pair, size, 0.5)
    communication = np.where(is_communication(attributed)[rows], time, 0)
    return Table(
        {
            "op": texts(attributed.ops)[op[first][first_pair]],
            "ranks": rank_count,
            "total_ns": total,
            "mean_ns": ratio(total, rank_count),
            "median_ns": median,
            "slowest": names[_first_member(group, place, time_of_pair == slowest[group], size)],
            "slowest_ns": slowest,
            "fastest": names[_first_member(group, place, time_of_pair == fastest[group], size)],
            "fastest_ns": fastest,
            "skew": np.divide(slowest, median, out=np.ones(size), where=median > 0) - 1,
            "lost_ns": np.rint(slowest - median).astype(np.int64),
            "communication_ns": sums(group[pair], communication, size),
        }
    )


def _first_member(group: Ints, place: Ints, rows: np.ndarray, size: int) -> Ints:
    """Return the first member of each group for which the mask is true."""
    return lowest(group[rows], place[rows], size)


# -- The table of ranks


TIMED = ("activities", "launches", "ranges")


@record
class Run:
    """All ranks of a run, one row each, and the ``totals`` by name; spans are in ns."""

    rows: Table
    totals: Mapping[str, int | float]
    warnings: list[str]

    @classmethod
    def of(cls, attributed: AttributedCapture) -> Run:
        """Return the ranks of a capture; clocks are aligned, so that the run has one span."""
        ranks, clocks = Ranks.of(attributed.capture, attributed.place), Clocks.of(attributed)
        metrics = _RankMetrics(attributed, ranks, clocks)
        listed = np.array(ranks.workers, np.int64)
        rows = Table({**_identities(attributed, ranks, clocks), **metrics.columns()})
        workers = rows[listed]
        return cls(workers, metrics.totals(listed, workers), ranks.warnings)


def several_ranks(attributed: AttributedCapture) -> Run | None:
    """Return the ranks of a capture if there are several, of which something other than their place is known."""
    ranks = Ranks.of(attributed.capture, attributed.place)
    known = [ranks.members[number].known_by not in {PLACE, UNKNOWN} for number in ranks.workers]
    return Run.of(attributed) if len(known) > 1 and any(known) else None


def _identities(
    attributed: AttributedCapture, ranks: Ranks, clocks: Clocks
) -> dict[str, np.ndarray | Ints]:
    """Return the columns that identify each member, and those of its clock."""
    members, report = ranks.members, ranks.keys[0]
    source = texts(file_names(attributed.capture))
    return {
        "rank": np.array([m.rank for m in members], np.int64),
        "host": texts(m.host for m in members),
        "pid": np.array([m.pid for m in members], np.int64),
        "gpu": texts(_gpus(m) for m in members),
        "report": source[report],
        "known_by": texts(m.known_by for m in members),
        "clock": texts(clocks.known_by)[report],
        "clock_offset_ns": clocks.offset[report],
        "clock_spread_ns": clocks.spread[report],
    }


def _gpus(member: Member) -> str:
    """Return the numbers of the GPUs that a process used, separated by commas."""
    return ",".join(map(str, member.gpus))


class _RankMetrics:
    """Metrics of each member of a run."""

    def __init__(self, attributed: AttributedCapture, ranks: Ranks, clocks: Clocks) -> None:
        self.attributed, self.size = attributed, len(ranks.members)
        self.of = {table: self._places(ranks, table) for table in TIMED}
        self.offset = clocks.offset
        self.edges = self._edges()

    def _places(self, ranks: Ranks, table: str) -> Ints:
        rows = getattr(self.attributed.capture, table)
        return ranks.place(rows.report, rows.process)

    def _edges(self) -> tuple[Ints, Ints]:
        """Return the first start and the last end of each member, on the clock of the reference."""
        start, end, members = [], [], []
        for table, place in self.of.items():
            rows = getattr(self.attributed.capture, table)
            offset = self.offset[rows.report]
            start.append(rows.start + offset)
            ends = self.attributed.end if table == "activities" else rows.end
            end.append(np.maximum(ends + offset, start[-1]))
            members.append(place)
        member = np.concatenate(members)
        return (
            lowest(member, np.concatenate(start), self.size, empty=0),
            highest(member, np.concatenate(end), self.size, empty=0),
        )

    def columns(self) -> dict[str, np.ndarray | Ints]:
        """Return the columns of metrics, one value per member."""
        attributed, member = self.attributed, self.of["activities"]
        activities, time = attributed.capture.activities, attributed.duration
        gpu = sums(member, time, self.size)
        has_op = attributed.activity_op != NONE
        self.gpu, self.gpu_in_ops = gpu, sums(member[has_op], time[has_op], self.size)
        span = self.edges[1] - self.edges[0]
        kernels = member[activities.kind.among(frames.KERNEL)]
        return {
            "start_ns": self.edges[0] - min(self.edges[0].tolist(), default=0),
            "span_ns": span,
            "kernels": counts(kernels, self.size),
            "gpu_ns": gpu,
            "attributed_share": ratio(self.gpu_in_ops, gpu),
            **self._gpu_use(),
        }

    def _gpu_use(self) -> dict[str, np.ndarray]:
        """Return how the GPUs of each member were used in the selected part of the run, in sums over its GPUs."""
        attributed, member = self.attributed, self.of["activities"]
        devices, clocks = Devices.of_report(attributed), RunClocks.of(attributed)
        pair, first = number_groups(member, devices.gpu)
        gpu = devices.gpu[first]
        parts = [clocks.part_of(devices.report[number]) for number in gpu.tolist()]
        start = attributed.capture.activities.start
        state = np.where(attributed.counted, states_of_work(attributed), NONE)
        busy = covered_times(pair, state, start=start, end=attributed.end, parts=parts).sum(axis=0)
        exposed = exposed_communication(attributed, pair, gpu, parts)
        length = np.array([part.length for part in parts], np.int64)
        of_member = member[first]
        busy, exposed, run = (sums(of_member, c, self.size) for c in (busy, exposed, length))
        return {
            "busy_ns": busy,
            "run_ns": run,
            "busy_share": ratio(busy, run),
            "exposed_ns": exposed,
        }

    def totals(self, listed: Ints, rows: Table) -> dict[str, int | float]:
        """Return the totals of the listed members."""
        parts = RunClocks.of(self.attributed).part.values()
        first = min((part.start for part in parts), default=0)
        last = max((part.end for part in parts), default=0)
        run, gpu = int(rows["run_ns"].sum()), int(rows["gpu_ns"].sum())
        spread = rows["clock_spread_ns"]
        return {
            "ranks": len(rows),
            "hosts": len({host for host in rows["host"] if host}),
            "span_ns": last - first,
            "kernels": int(rows["kernels"].sum()),
            "gpu_ns": gpu,
            "busy_share": int(rows["busy_ns"].sum()) / run if run else 0.0,
            "attributed_share": int(self.gpu_in_ops[listed].sum()) / gpu if gpu else 0.0,
            "exposed_ns": int(rows["exposed_ns"].sum()),
            "clock_spread_ns": int(spread.max()) if len(rows) and (spread != NONE).all() else NONE,
        }
