"""One report told apart by some dimensions, every nanosecond of its work in one part or outside all for a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.calltree import own_time
from bridge.analyze.groups import counts, sums, texts
from bridge.analyze.names import KERNEL_NAMES
from bridge.analyze.tables import events
from bridge.analyze.tables.breakdown import DIMENSIONS
from bridge.analyze.tables.dimensions import Coded, Dimension, together
from bridge.analyze.tables.events import Events
from bridge.analyze.tables.range_metrics import first_slices
from bridge.analyze.tables.views import RANGES, rows_of
from bridge.join.arrays import NONE, Ints
from bridge.join.attributed import Attributed
from bridge.join.attribution import ATTRIBUTED, REASONS
from importers import frames

OTHER = "other"  # attributed, and of no part: a kernel among copies
NO_IDENTITY = frozenset(("thread", "process", "stream", "report"))  # another run has others


@dataclass(frozen=True)
class Parts:
    """The parts of a report, by code: an entry per code in each of the ``labels``.

    ``call_part`` is the part of each call of an op. What takes time, activities or (``host``) pieces of ranges, has a
    part (``part``, NONE outside all), a time (``ns``) and a range (``range``, NONE for none).
    """

    joined: Attributed
    labels: Mapping[str, NDArray[np.generic]]
    host: bool
    call_part: Ints
    part: Ints
    ns: Ints
    range: Ints
    rows: Ints

    @classmethod
    def of(
        cls, joined: Attributed, dimensions: Sequence[str], kernel_names: str, *, host: bool
    ) -> Parts:
        """Tell a report apart by `DIMENSIONS`; its kernels are here all activities, by their names."""
        made: Mapping[str, Dimension] = {**DIMENSIONS, "kernel": work(kernel_names)}
        timed = _pieces(joined) if host else _activities(joined)
        calls = first_slices(joined) if rows_of(dimensions) == RANGES else np.empty(0, np.int64)
        kinds = [events.of_ranges(joined, calls), timed.events]
        coded = together([made[name](joined, kinds) for name in dimensions])
        labels, (call_part, part) = _in_use(coded)
        return cls(joined, labels, host, call_part, part, timed.ns, timed.events.range, timed.rows)

    def __len__(self) -> int:
        return len(next(iter(self.labels.values())))

    @property
    def whole_ns(self) -> int:
        """Time of all that takes any."""
        return int(self.ns.sum())

    @cached_property
    def inside(self) -> Ints:
        """The places of what is in a part."""
        return np.flatnonzero(self.part != NONE)

    @cached_property
    def totals(self) -> Ints:
        """Time of each part in ns."""
        return sums(self.part[self.inside], self.ns[self.inside], len(self))

    @cached_property
    def step(self) -> Ints:
        """The step, among the report's iterations, that each was issued in, or NONE."""
        if not self.host:
            return self.joined.activity_iteration[self.rows]
        ranges, owner = self.joined.report.ranges, self.range
        of, process = (frames.ints(ranges, c)[owner] for c in ("report", "process"))
        return self.joined.iterations.at(
            of, process, self.joined.attribution.nesting.start[self.rows]
        )

    def outside(self) -> dict[str, int]:
        """Return the time that is in no part, by reason, ``other`` for what has an op."""
        if self.host:
            return {}
        out = np.flatnonzero(self.part == NONE)
        reason = self.joined.attribution.reason[self.rows[out]]
        time = sums(reason, self.ns[out], len(REASONS))
        names = (OTHER if code == ATTRIBUTED else name for code, name in enumerate(REASONS))
        there = counts(reason, len(REASONS)) > 0
        return {n: int(ns) for n, ns, some in zip(names, time, there, strict=True) if some}


def work(names: str) -> Dimension:
    """Return the dimension of all activities by name: kernels by one of `KERNEL_NAMES`, else what they do."""

    def coded(joined: Attributed, kinds: Sequence[Events]) -> Coded:
        activities = joined.report.activities
        column = activities[KERNEL_NAMES[names]]
        named = texts(column.cat.categories)
        return Coded({"kernel": named}, [frames.codes(column)[e.activity] for e in kinds])

    return coded


@dataclass(frozen=True)
class _Timed:
    events: Events
    ns: Ints
    rows: Ints


def _activities(joined: Attributed) -> _Timed:
    rows = np.flatnonzero(joined.counted)
    return _Timed(events.of_activities(joined, rows), joined.duration[rows], rows)


def _pieces(joined: Attributed) -> _Timed:
    """Return the pieces of ranges that are counted, each with the time in it and in nothing under it."""
    rows = np.flatnonzero(joined.listed)
    nodes, own = events.of_nodes(joined), own_time(joined.attribution.nesting)
    some = Events(
        nodes.range[rows],
        nodes.node[rows],
        nodes.launch[rows],
        nodes.activity[rows],
        lambda name: nodes.column(name)[rows],
    )
    return _Timed(some, own[rows], rows)


def _in_use(coded: Coded) -> tuple[dict[str, NDArray[np.generic]], list[Ints]]:
    """Return labels and codes without those that nothing has."""
    used = np.zeros(coded.size + 1, bool)
    for codes in coded.codes:
        used[codes] = True
    kept = np.flatnonzero(used[:-1])
    place = np.full(coded.size + 1, NONE)
    place[kept] = np.arange(len(kept))
    labels = {name: column[kept] for name, column in coded.labels.items()}
    return labels, [place[codes] for codes in coded.codes]
