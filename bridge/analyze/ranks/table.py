"""The table of a run's ranks, and what they amount to together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bridge.analyze.concurrency.clocks import Clocks
from bridge.analyze.concurrency.exposure import exposed_times
from bridge.analyze.groups import counts, highest, lowest, ratio, sums, texts
from bridge.analyze.names import files
from bridge.analyze.ranks.members import Member, Ranks
from bridge.join.attributed import Attributed
from bridge.join.intervals import busy
from bridge.join.order import NONE, Ints
from importers import frames

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
