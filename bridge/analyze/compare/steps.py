"""The time per step of each row on both sides: means, the interval of the change, tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from bridge.analyze.compare.parts import Parts
from bridge.analyze.compare.statistics import (
    Matrix,
    confidence_bounds,
    false_discovery_rates,
    mann_whitney,
)
from bridge.analyze.core.filters import COMPARE, Condition, column_of, filter_rows
from bridge.analyze.core.groups import Floats, counts
from bridge.analyze.core.table import Table
from bridge.analyze.run.parts import is_warm_up
from bridge.importers.arrays import lookup, positions
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints
from bridge.join.attributed import AttributedCapture

# -- Samples


MIN_STEPS = 4  # steps on each side; with fewer no test reaches 5 %
MAX_VALUES = 1 << 22  # values in memory at a time
MINUS_ONE_IF_UNKNOWN = ("p", "q", "step_ratio", "step_ratio_low", "step_ratio_high")  # columns


@record
class Samples:
    """The steps of one side that are samples: selected ones after warm-up.

    ``row`` is the row of each activity or piece, ``work`` the number of selected steps, those of
    the warm-up too.
    """

    parts: Parts
    row: Ints
    steps: Flags
    work: int

    @classmethod
    def of(cls, parts: Parts, row_of_part: Ints) -> Samples:
        row = lookup(row_of_part, parts.part)
        selected, is_warm_up = selected_steps(parts.attributed)
        return cls(parts, row, selected & ~is_warm_up, int(selected.sum()))

    def together(self) -> Samples:
        """Return the samples of one row that holds everything, also what is in no row."""
        return replace(self, row=np.zeros_like(self.row))

    def __len__(self) -> int:
        return int(self.steps.sum())

    @cached_property
    def sample(self) -> Ints:
        """The sample of each activity or piece, NONE for none."""
        place = np.where(self.steps, np.cumsum(self.steps) - 1, NONE)
        sample: Ints = lookup(place, self.parts.step)
        return sample

    def times(self, rows: Ints) -> Matrix:
        """Return the time of some rows in each step in ns: a row each, a column per step."""
        new_row = positions(rows, int(max(self.row.max(initial=0), rows.max())) + 2)
        row = new_row[self.row]
        selected = np.flatnonzero((row != NONE) & (self.sample != NONE))
        result = np.zeros(len(rows) * len(self), np.int64)
        np.add.at(
            result, row[selected] * len(self) + self.sample[selected], self.parts.ns[selected]
        )
        return result.reshape(len(rows), len(self))


def selected_steps(attributed: AttributedCapture) -> tuple[Flags, Flags]:
    """Return whether anything of each iteration is selected, and whether it is warm-up."""
    steps = attributed.iterations
    if not len(steps):
        return np.zeros(0, bool), np.zeros(0, bool)
    selected = np.ones(len(steps), bool)
    if attributed.selection is not None:
        of_activity = attributed.activity_iteration[attributed.accounted]
        selected = counts(of_activity[of_activity != NONE], len(steps)) > 0
        selected |= lookup(attributed.selection.ranges, steps.range, False)
    return selected, is_warm_up(attributed)


def step_metrics(before: Samples, after: Samples, rows: int, *, tested: bool) -> dict[str, Floats]:
    """Return metrics of the time per step, one value per row.

    ``step_before_ns`` and ``step_after_ns`` are means per step, ``step_ratio`` is after / before.
    ``low_ns`` and ``high_ns`` bound the difference of the means with 95 % confidence,
    ``step_ratio_low`` and ``step_ratio_high`` the ratio, by the observed mean before; no ratio is
    below 0. ``p`` is that of a two-sided Mann-Whitney U test, ``q`` the value after Benjamini and
    Hochberg over the tested rows, those with any time in a step. ``shift`` is the share of pairs of
    steps in which the later one takes longer (ties count half), less one half.

    Unless ``tested``, which takes several steps on both sides, bounds, p and q are unknown; without
    a step on either side all are. The unknown columns in `MINUS_ONE_IF_UNKNOWN` are -1, the others
    0.
    """
    result = {name: np.zeros(rows) for name in (*MEANS, *TESTS)}
    result |= {name: np.full(rows, float(NONE)) for name in MINUS_ONE_IF_UNKNOWN}
    if not rows or not min(len(before), len(after)):
        return result

    for chunk in chunks(_rows_with_time(before, after), len(before) + len(after)):
        times = before.times(chunk), after.times(chunk)
        figures: dict[str, Floats] = dict(
            zip(MEANS, (side.mean(axis=1) for side in times), strict=True)
        )
        if tested:
            columns = (*confidence_bounds(*times), *mann_whitney(*times))
            figures |= dict(zip(("low_ns", "high_ns", "p", "shift"), columns, strict=True))
        for name, column in figures.items():
            result[name][chunk] = column
    return result | _ratios(result) | {"q": _corrected(result["p"])}


MEANS = ("step_before_ns", "step_after_ns")
TESTS = ("low_ns", "high_ns", "shift")
STEP_FIGURES = (*MEANS, "low_ns", "high_ns", *MINUS_ONE_IF_UNKNOWN)


def _ratios(figures: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return the ratio of the means and its bounds, -1 where they are unknown."""
    base = figures["step_before_ns"]
    bounded = (base > 0) & (figures["p"] != NONE)
    unknown = np.full(len(base), float(NONE))
    ratio = np.divide(figures["step_after_ns"], base, out=unknown.copy(), where=base > 0)
    bounds = [
        np.where(
            bounded,
            np.maximum(
                1 + np.divide(figures[side], base, where=bounded, out=np.zeros(len(base))), 0
            ),
            NONE,
        )
        for side in ("low_ns", "high_ns")
    ]
    return {"step_ratio": ratio, "step_ratio_low": bounds[0], "step_ratio_high": bounds[1]}


def _corrected(p: Floats) -> Floats:
    """Return q of the rows that have a p, -1 for the others."""
    q, is_tested = np.full(len(p), float(NONE)), p != NONE
    if is_tested.any():
        q[is_tested] = false_discovery_rates(p[is_tested])
    return q


def _rows_with_time(*sides: Samples) -> Ints:
    """Return the rows with any time in a step of either side."""
    rows = [
        side.row[(side.row != NONE) & (side.sample != NONE) & (side.parts.ns > 0)] for side in sides
    ]
    return np.unique(np.concatenate(rows))


def chunks(rows: Ints, width: int) -> Iterator[Ints]:
    """Return the rows in chunks whose steps fit in `MAX_VALUES`."""
    size = max(1, MAX_VALUES // max(width, 1))
    return (rows[first : first + size] for first in range(0, len(rows), size))


# -- Filters of comparisons


MAY_BE_UNKNOWN = (*MINUS_ONE_IF_UNKNOWN, "ratio")
ORDERINGS = frozenset(COMPARE) - {"=", "!="}


def filter_known_rows(rows: Table, conditions: Sequence[Condition]) -> Table:
    """Return the rows that meet conditions; an unknown ratio or p meets no ordering.

    Raises ValueError for conditions that cannot be read.
    """
    for condition in conditions:
        column = column_of(rows, condition.column)
        if column in MAY_BE_UNKNOWN and condition.comparison in ORDERINGS:
            rows = rows[rows[column] != NONE]
    return filter_rows(rows, conditions)


def check_same_steps(
    before: AttributedCapture, after: AttributedCapture, first: int, last: int
) -> None:
    """Raise ValueError, with a message for the user, unless both sides have the same steps.

    Compared are the steps from ``first`` to ``last`` of each process.
    """
    sides = [_step_numbers(side, first, last) for side in (before, after)]
    if sides[0] == sides[1]:
        return
    lines = [", ".join(sorted(map(_step_text, side))) for side in sides]
    common = set.intersection(*map(set, sides[0] | sides[1]))
    hint = f"; all have {min(common)}..{max(common)}" if common else ""
    raise ValueError(
        f"not the same steps of {first}..{last} on both sides:"
        f" {lines[0]} before, {lines[1]} after, by process{hint}"
    )


def _step_numbers(side: AttributedCapture, first: int, last: int) -> set[tuple[int, ...]]:
    """Return the distinct sets of steps in the interval that processes have."""
    steps = side.iterations
    numbers_of_processes = (np.sort(steps.number[start:end]) for start, end in steps.by_process())
    return {tuple(n[(n >= first) & (n <= last)].tolist()) for n in numbers_of_processes}


def _step_text(numbers: tuple[int, ...]) -> str:
    """Return the text for a set of step numbers."""
    if not numbers:
        return "none"
    is_contiguous = len(numbers) == numbers[-1] - numbers[0] + 1
    return f"{numbers[0]}..{numbers[-1]}" + ("" if is_contiguous else f" ({len(numbers)} steps)")
