"""The table of a run's ranks, and what they amount to together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bridge.analyze.concurrency.clocks import Clocks
from bridge.analyze.concurrency.exposure import exposed_times
from bridge.analyze.groups import counts, highest, lowest, quantiles, ratio, sums, texts
from bridge.analyze.names import files
from bridge.analyze.ranks.members import Member, Ranks
from bridge.analyze.roles import is_communication
from bridge.join.arrays import NONE, Ints, busy, number
from bridge.join.attributed import Attributed
from importers import frames

# -- The table of how unevenly ranks spend their GPU time: per op the slowest, and what it costs


def by_skew(joined: Attributed) -> pd.DataFrame:
    """Return one row per op that owns GPU time: how that is spread over the ranks (processes) that have any of it.

    ``total_ns`` is the op's own GPU time, of all ranks; mean, median, slowest and fastest are per rank. ``skew`` is
    slowest over median less 1, ``lost_ns`` slowest less median: what the run could gain of the op at most if its slowest
    rank were as the others. ``communication_ns`` is the part of ``total_ns`` in kernels of communication, which last longer the
    earlier a rank comes.
    """
    ranks = Ranks.of(joined.report, joined.place)
    rows = np.flatnonzero(joined.activity_op != NONE)
    op, time = joined.activity_op[rows], joined.duration[rows]
    columns = (frames.ints(joined.report.activities, c)[rows] for c in ("report", "process"))
    pair, first = number(op, ranks.place(*columns))
    own = sums(pair, time, len(first))
    place = ranks.place(
        *(frames.ints(joined.report.activities, c)[rows[first]] for c in ("report", "process"))
    )
    group, of_group = number(op[first])
    many, names = len(of_group), texts(ranks.names)
    total, have = sums(group, own, many), counts(group, many)
    slowest, fastest = highest(group, own, many), lowest(group, own, many)
    (median,) = quantiles(group, own, many, 0.5)
    talk = np.where(is_communication(joined)[rows], time, 0)
    return pd.DataFrame(
        {
            "op": texts(joined.ops)[op[first][of_group]],
            "ranks": have,
            "total_ns": total,
            "mean_ns": ratio(total, have),
            "median_ns": median,
            "slowest": names[_first(group, place, own == slowest[group], many)],
            "slowest_ns": slowest,
            "fastest": names[_first(group, place, own == fastest[group], many)],
            "fastest_ns": fastest,
            "skew": np.divide(slowest, median, out=np.ones(many), where=median > 0) - 1,
            "lost_ns": np.rint(slowest - median).astype(np.int64),
            "communication_ns": sums(group[pair], talk, many),
        }
    )


def _first(group: Ints, place: Ints, there: np.ndarray, many: int) -> Ints:
    """Return the first member of each group for which a flag is set."""
    return lowest(group[there], place[there], many)


# -- The table of a run's ranks, and what they amount to together


TIMED = ("activities", "launches", "ranges")


@dataclass(frozen=True)
class Run:
    """All ranks of a run: a row each, and the ``totals``: integers and fractions of 1 by name, spans in ns."""

    rows: pd.DataFrame
    totals: Mapping[str, int | float]
    warnings: list[str]

    @classmethod
    def of(cls, joined: Attributed) -> Run:
        """Describe the ranks of a report; clocks are aligned, so that the run has one span."""
        ranks, clocks = Ranks.of(joined.report, joined.place), Clocks.of(joined)
        figures = _Figures(joined, ranks, clocks)
        listed = np.array(ranks.workers, np.int64)
        rows = pd.DataFrame({**_identities(joined, ranks, clocks), **figures.columns()})
        chosen = rows.iloc[listed].reset_index(drop=True)
        return cls(chosen, figures.totals(listed, chosen), ranks.warnings)


def _identities(joined: Attributed, ranks: Ranks, clocks: Clocks) -> dict[str, np.ndarray | Ints]:
    """Return what tells each member apart, and its clock."""
    members, report = ranks.members, ranks.keys[0]
    source = texts(files(joined.report))
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
    """Return the numbers of the GPUs that a process used, with commas."""
    return ",".join(map(str, member.gpus))


class _Figures:
    """What each member of a run did."""

    def __init__(self, joined: Attributed, ranks: Ranks, clocks: Clocks) -> None:
        self.joined, self.many = joined, len(ranks.members)
        self.of = {table: self._places(ranks, table) for table in TIMED}
        self.offset = clocks.offset
        self.edges = self._edges()

    def _places(self, ranks: Ranks, table: str) -> Ints:
        rows = getattr(self.joined.report, table)
        return ranks.place(*(frames.ints(rows, c) for c in ("report", "process")))

    def _edges(self) -> tuple[Ints, Ints]:
        """Return first start and last end of each, on the reference's clock."""
        start, end, of = [], [], []
        for table, place in self.of.items():
            rows = getattr(self.joined.report, table)
            moved = self.offset[frames.ints(rows, "report")]
            start.append(frames.ints(rows, "start") + moved)
            last = self.joined.end if table == "activities" else frames.ints(rows, "end")
            end.append(np.maximum(last + moved, start[-1]))
            of.append(place)
        who = np.concatenate(of)
        return (
            lowest(who, np.concatenate(start), self.many, empty=0),
            highest(who, np.concatenate(end), self.many, empty=0),
        )

    def columns(self) -> dict[str, np.ndarray | Ints]:
        """Return a figure per member and column."""
        joined, of = self.joined, self.of["activities"]
        activities, time = joined.report.activities, joined.duration
        start = frames.ints(activities, "start")
        self.busy = busy(of, start, joined.end, self.many)
        gpu = sums(of, time, self.many)
        has_op = joined.activity_op != NONE
        self.gpu, self.attributed = gpu, sums(of[has_op], time[has_op], self.many)
        span = self.edges[1] - self.edges[0]
        kernels = of[frames.is_kind(activities, frames.KERNEL)]
        return {
            "start_ns": self.edges[0] - min(self.edges[0].tolist(), default=0),
            "span_ns": span,
            "kernels": counts(kernels, self.many),
            "gpu_ns": gpu,
            "busy_ns": self.busy,
            "busy_share": ratio(self.busy, span),
            "attributed_share": ratio(self.attributed, gpu),
            "exposed_ns": sums(of, exposed_times(joined), self.many),
        }

    def totals(self, listed: Ints, rows: pd.DataFrame) -> dict[str, int | float]:
        """Return what the listed members amount to together."""
        first, last = (edge[listed].tolist() for edge in self.edges)
        spans, gpu = int(rows["span_ns"].sum()), int(rows["gpu_ns"].sum())
        spread = rows["clock_spread_ns"]
        return {
            "ranks": len(rows),
            "hosts": len({host for host in rows["host"] if host}),
            "span_ns": max(last, default=0) - min(first, default=0),
            "kernels": int(rows["kernels"].sum()),
            "gpu_ns": gpu,
            "busy_share": int(rows["busy_ns"].sum()) / spans if spans else 0.0,
            "attributed_share": int(self.attributed[listed].sum()) / gpu if gpu else 0.0,
            "exposed_ns": int(rows["exposed_ns"].sum()),
            "clock_spread_ns": int(spread.max()) if len(rows) and (spread != NONE).all() else NONE,
        }
