"""Divide the time of a capture into parts by dimensions.

Every nanosecond of an activity is in one part, or outside all parts with a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.core.calltree import self_times
from bridge.analyze.core.catalog.dimensions import DIMENSIONS
from bridge.analyze.core.catalog.lookup import rows_of_dimensions
from bridge.analyze.core.catalog.views import RANGES
from bridge.analyze.core.groups import counts, sums, texts
from bridge.analyze.core.names import activity_names
from bridge.analyze.run.account import runs
from bridge.analyze.run.causes.gaps import gaps_between_work
from bridge.analyze.run.idle.causes import WORDS, Causes, causes_of, find_causes
from bridge.analyze.tables.dimensions import (
    CODINGS,
    Coding,
    DimensionCodes,
    Events,
    activity_events,
    combine,
    node_events,
    range_events,
)
from bridge.analyze.tables.range_columns import first_slices
from bridge.importers.arrays import lookup, positions
from bridge.importers.records import record
from bridge.join.arrays import NONE, Ints, number_groups
from bridge.join.attributed import AttributedCapture
from bridge.join.attribution import ATTRIBUTED, REASONS

OTHER = "other"  # attributed, but in no part: a kernel where parts are copies
IDLE = "idle"  # the dimension of the causes of idle time, which stands alone
NOT_COMPARABLE = frozenset(name for name, one in DIMENSIONS.items() if not one.comparable)


@record
class Parts:
    """The parts of a capture, by code: each of the ``labels`` has an entry per code.

    ``call_part`` is the part of each call of an op. Each activity, or (``host``) piece of a range,
    has a ``part`` (NONE if outside), a time ``ns``, a ``range`` (NONE if none), and its row.
    """

    attributed: AttributedCapture
    labels: Mapping[str, NDArray[np.generic]]
    host: bool
    call_part: Ints
    part: Ints
    ns: Ints
    range: Ints
    rows: Ints

    @classmethod
    def of(
        cls,
        attributed: AttributedCapture,
        dimensions: Sequence[str],
        kernel_names: str,
        *,
        host: bool,
    ) -> Parts:
        """Divide a capture by `DIMENSIONS`. The dimension of kernels has all activities here."""
        coding_of: Mapping[str, Coding] = {
            **CODINGS,
            "kernel": named_activities(kernel_names),
        }
        timed = _pieces(attributed) if host else _activities(attributed)
        calls = (
            first_slices(attributed)
            if rows_of_dimensions(dimensions) == RANGES
            else np.empty(0, np.int64)
        )
        kinds = [range_events(attributed, calls), timed.events]
        codes = combine([coding_of[name](attributed, kinds) for name in dimensions])
        labels, (call_part, part) = _drop_unused(codes)
        return cls(
            attributed=attributed,
            labels=labels,
            host=host,
            call_part=call_part,
            part=part,
            ns=timed.ns,
            range=timed.events.range,
            rows=timed.rows,
        )

    @classmethod
    def of_idle_time(cls, attributed: AttributedCapture, causes: Causes) -> Parts:
        """Divide idle time of the GPUs by cause and op; the row is the activity that ended a gap between activities."""
        part, rows = number_groups(causes.cause, causes.op)
        labels = {
            "cause": texts(WORDS)[causes.cause[rows]],
            "op": texts([*attributed.ops, ""])[causes.op[rows]],
        }
        gaps, no_calls = causes.gaps, np.empty(0, np.int64)
        ended_by = np.where(gaps.before == NONE, NONE, gaps.ended_by)
        return cls(
            attributed=attributed,
            labels=labels,
            host=False,
            call_part=no_calls,
            part=part,
            ns=causes.length,
            range=causes.op,
            rows=ended_by[causes.gap],
        )

    def __len__(self) -> int:
        return len(next(iter(self.labels.values())))

    @property
    def whole_ns(self) -> int:
        """Time of all activities or pieces."""
        return int(self.ns.sum())

    @cached_property
    def inside(self) -> Ints:
        """Positions of what is in a part."""
        return np.flatnonzero(self.part != NONE)

    @cached_property
    def totals(self) -> Ints:
        """Time of each part in ns."""
        return sums(self.part[self.inside], self.ns[self.inside], len(self))

    @cached_property
    def step(self) -> Ints:
        """The step of each activity or piece, a row of the capture's iterations, or NONE."""
        if not self.host:
            return lookup(self.attributed.activity_iteration, self.rows)
        ranges, owner = self.attributed.capture.ranges, self.range
        report, process = ranges.report[owner], ranges.process[owner]
        return self.attributed.iterations.at(
            report, process, self.attributed.attribution.nesting.start[self.rows]
        )

    def outside(self) -> dict[str, int]:
        """Return the time outside all parts by reason, ``other`` if it is attributed."""
        if self.host:
            return {}
        positions = np.flatnonzero(self.part == NONE)
        reason = self.attributed.attribution.reason[self.rows[positions]]
        time = sums(reason, self.ns[positions], len(REASONS))
        names = (OTHER if code == ATTRIBUTED else name for code, name in enumerate(REASONS))
        present = counts(reason, len(REASONS)) > 0
        return {n: int(ns) for n, ns, some in zip(names, time, present, strict=True) if some}


def named_activities(names: str) -> Coding:
    """Return the coding of activities by name; ``names`` is one of `KERNEL_NAMES`."""

    def code_rows(attributed: AttributedCapture, kinds: Sequence[Events]) -> DimensionCodes:
        column = activity_names(attributed, names)
        labels = texts(column.texts)
        return DimensionCodes({"kernel": labels}, [column.codes[e.activity] for e in kinds])

    return code_rows


@record
class _TimedEvents:
    events: Events
    ns: Ints
    rows: Ints


def _activities(attributed: AttributedCapture) -> _TimedEvents:
    rows = np.flatnonzero(attributed.counted)
    return _TimedEvents(activity_events(attributed, rows), attributed.duration[rows], rows)


def _pieces(attributed: AttributedCapture) -> _TimedEvents:
    """Return the counted pieces of ranges, each with its self time."""
    rows = np.flatnonzero(attributed.listed)
    nodes, self_time = node_events(attributed), self_times(attributed.attribution.nesting)
    selected = Events(
        range=nodes.range[rows],
        node=nodes.node[rows],
        launch=nodes.launch[rows],
        activity=nodes.activity[rows],
        column=lambda name: nodes.column(name)[rows],
    )
    return _TimedEvents(selected, self_time[rows], rows)


def _drop_unused(
    codes_and_labels: DimensionCodes,
) -> tuple[dict[str, NDArray[np.generic]], list[Ints]]:
    """Return labels and codes without the labels that no code uses."""
    is_used = np.zeros(codes_and_labels.size + 1, bool)
    for codes in codes_and_labels.codes:
        is_used[codes] = True
    in_use = np.flatnonzero(is_used[:-1])
    new_code = positions(in_use, codes_and_labels.size + 1)
    labels = {name: column[in_use] for name, column in codes_and_labels.labels.items()}
    return labels, [new_code[codes] for codes in codes_and_labels.codes]


def are_alike(sides: Iterable[AttributedCapture]) -> bool:
    """Return whether the same kinds of events tell when the runs of all sides begin, so that their lengths compare."""
    return len({tuple(run.evidence for run in runs(side)) for side in sides}) == 1


def idle_parts(sides: Sequence[AttributedCapture]) -> list[Parts]:
    """Divide the idle time of the GPUs of each side: in the run, or where runs do not compare, between their work."""
    if are_alike(sides):
        return [Parts.of_idle_time(side, find_causes(side)) for side in sides]
    between = (causes_of(side, gaps_between_work(side)) for side in sides)
    return [Parts.of_idle_time(*pair) for pair in zip(sides, between, strict=True)]
