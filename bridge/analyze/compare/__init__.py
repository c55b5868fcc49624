"""Compare two captures: rows by any dimensions, whose differences add up to that of the whole.

docs/diff.md defines every column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.compare.parts import IDLE, NOT_COMPARABLE, Parts, idle_parts
from bridge.analyze.compare.rows import Rows, call_metrics, match_calls, match_parts
from bridge.analyze.compare.statistics import NEW, VANISHED, row_states
from bridge.analyze.compare.steps import MEANS, MIN_STEPS, STEP_FIGURES, Samples
from bridge.analyze.compare.steps import step_metrics as step_figures
from bridge.analyze.core.catalog.dimensions import DIMENSIONS
from bridge.analyze.core.catalog.lookup import TABLE_LIST, rows_of_dimensions
from bridge.analyze.core.catalog.views import RANGES
from bridge.analyze.core.groups import Floats, counts, sums
from bridge.analyze.core.table import Table
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints
from bridge.join.attributed import AttributedCapture
from bridge.knowledge.suggestions import unknown_name

# -- Columns of a comparison


SIDES = BEFORE, AFTER = ("before", "after")
Figures = Mapping[str, NDArray[np.generic]]


@record
class Sides:
    """Two captures divided into the same rows.

    ``of_calls`` is whether rows are of calls, and not only of activities.
    """

    rows: Rows
    parts: tuple[Parts, Parts]
    samples: tuple[Samples, Samples]
    of_calls: bool

    def table(self, noise: float, *, tested: bool, per_step: bool) -> Table:
        """Return all columns, one row per row of the comparison."""
        rows = len(self.rows)
        figures = {**self._times(), **step_figures(*self.samples, rows, tested=tested)}
        before, after = (self._is_present(row) for row in (self.rows.before, self.rows.after))
        figures["state"] = row_states(figures, before, after, noise, per_step=per_step)
        del figures["shift"]
        calls = self._calls() if self.of_calls else {}
        result = {**self._counts(), **figures, **calls}
        return Table({**self.rows.labels, **result})

    def whole(self, noise: float, *, tested: bool, per_step: bool) -> dict[str, Any]:
        """Return the figures per step and the state of everything together."""
        before, after = (np.array([parts.whole_ns]) for parts in self.parts)
        samples = [side.together() for side in self.samples]
        steps = step_figures(samples[0], samples[1], 1, tested=tested)
        figures = {"before_ns": before, "after_ns": after, **steps}
        state = row_states(figures, before > 0, after > 0, noise, per_step=per_step)
        return {name: float(steps[name][0]) for name in STEP_FIGURES} | {"state": str(state[0])}

    def _counts(self) -> Figures:
        """Return the numbers of calls and of activities of each row on both sides."""
        result = {}
        if self.of_calls:
            for side, row, parts in self._both():
                result[f"calls_{side}"] = counts(row[parts.call_part], len(self.rows))
        if not self.parts[0].host:
            for side, row, parts in self._both():
                result[f"activities_{side}"] = counts(row[parts.part[parts.inside]], len(self.rows))
        return result

    def _times(self) -> dict[str, Ints | Floats | NDArray[np.object_]]:
        rows = len(self.rows)
        before, after = (sums(row, parts.totals, rows) for _, row, parts in self._both())
        diff = after - before
        total_change = self.parts[1].whole_ns - self.parts[0].whole_ns
        ratio = np.divide(after, before, out=np.full(rows, float(NONE)), where=before != 0)
        share = diff / total_change if total_change else np.zeros(rows)
        return {
            "before_ns": before,
            "after_ns": after,
            "diff_ns": diff,
            "ratio": ratio,
            "share": share,
        }

    def _calls(self) -> Figures:
        pairs = match_calls(self.parts[0].attributed, self.parts[1].attributed)
        return call_metrics(pairs, self.parts, (self.rows.before, self.rows.after), len(self.rows))

    def _both(self) -> list[tuple[str, Ints, Parts]]:
        return list(zip(SIDES, (self.rows.before, self.rows.after), self.parts, strict=True))

    def _is_present(self, row: Ints) -> Flags:
        rows = np.zeros(len(self.rows), bool)
        rows[row] = True
        return rows


# -- The comparison


COMPARABLE = (*(name for name in DIMENSIONS if name not in NOT_COMPARABLE), IDLE)
OP_KERNEL = "op-kernel"
NOISE = 0.01
Pair = dict[str, int]  # before_ns, after_ns, diff_ns


@record
class Comparison:
    """The rows of two captures side by side.

    The differences of ``rows`` and ``outside`` add up to that of ``whole``. Times are those of
    activities, or (``host``) those of ranges on the host if neither side has activities. ``labels``
    are the columns that name the rows. ``steps`` are the numbers of samples, ``work`` those of all
    steps, ``processes`` those of the processes that have steps; ``untested`` is the reason why rows
    have no interval, '' if they have. ``whole_step`` are the figures per step and the state of
    everything together.
    """

    by: str
    host: bool
    labels: Sequence[str]
    rows: Table
    whole: Pair
    outside: Mapping[str, Pair]
    steps: tuple[int, int]
    untested: str
    work: tuple[int, int] = (0, 0)
    whole_step: Mapping[str, Any] = field(default_factory=dict)
    processes: tuple[int, int] = (0, 0)

    @property
    def per_step(self) -> bool:
        """Whether states are those of times per step: intervals are known, or steps not equally many."""
        return _is_per_step(self.work, self.steps) and "step" not in self.labels

    @property
    def unequal_steps(self) -> bool:
        """Whether only times per step can be compared: both sides have steps, not equally many."""
        return self.per_step and self.work[0] != self.work[1]

    def timed(self, rows: Table) -> Table:
        """Return the rows that have time on either side, in steps if these are compared."""
        sides = MEANS if self.per_step else ("before_ns", "after_ns")
        return rows[_has_any(rows, sides)]

    @property
    def unmatched(self) -> tuple[float, float]:
        """The shares of the time before and after that are in rows of that side alone."""
        sides = (VANISHED, "before_ns"), (NEW, "after_ns")
        times = (int(self.rows[name][self.rows["state"] == state].sum()) for state, name in sides)
        wholes = (self.whole[name] for _, name in sides)
        first, second = (
            time / whole if whole else 0.0 for time, whole in zip(times, wholes, strict=True)
        )
        return first, second

    @property
    def outside_steps(self) -> tuple[int, Pair]:
        """The number and the times of the rows that have time, but none in a step."""
        sides = MEANS if self.per_step else ("before_ns", "after_ns")
        has_time = _has_any(self.rows, ("before_ns", "after_ns")) & ~_has_any(self.rows, sides)
        rows = self.rows[has_time]
        return len(rows), _pair(int(rows["before_ns"].sum()), int(rows["after_ns"].sum()))

    @property
    def rows_diff_ns(self) -> int:
        """Difference of all rows in ns."""
        return int(self.rows["diff_ns"].sum())


def compare(
    before: AttributedCapture,
    after: AttributedCapture,
    by: str = "op",
    *,
    kernel_names: str = "readable",
    noise: float = NOISE,
) -> Comparison:
    """Compare two captures by dimensions: "op", "op-kernel", or `COMPARABLE` names with commas.

    "idle" compares the idle time of the GPUs by cause and op. Changes of at most ``noise``, a
    fraction of the larger side, count as none. Raises ValueError
    with a message for the user for other dimensions, and for those of activities if neither side
    has any.
    """
    dimensions = dimensions_of(by)
    reports = before, after
    host = not any(attributed.counted.any() for attributed in reports)
    of_calls = rows_of_dimensions(dimensions) == RANGES and IDLE not in dimensions
    if host and not of_calls:
        raise ValueError(f"nothing ran on a device in either report: no diff by {by}")
    parts, other = (
        idle_parts(reports)
        if IDLE in dimensions
        else [Parts.of(side, dimensions, kernel_names, host=host) for side in reports]
    )
    rows = match_parts(parts, other)
    samples = Samples.of(parts, rows.before), Samples.of(other, rows.after)
    steps, work = (len(samples[0]), len(samples[1])), (samples[0].work, samples[1].work)
    untested = (
        "no interval: rows are of single steps" if "step" in dimensions else _reason_untested(steps)
    )
    per_step = _is_per_step(work, steps) and "step" not in dimensions
    sides = Sides(rows, (parts, other), samples, of_calls=of_calls)
    table = sides.table(noise, tested=not untested, per_step=per_step)
    return Comparison(
        by=by,
        host=host,
        labels=list(rows.labels),
        rows=_sorted(table, list(rows.labels), per_step=per_step),
        whole=_pair(parts.whole_ns, other.whole_ns),
        outside=_outside(parts, other),
        steps=steps,
        untested=untested,
        work=work,
        whole_step=sides.whole(noise, tested=min(steps) >= MIN_STEPS, per_step=per_step),
        processes=(_processes_with_steps(before), _processes_with_steps(after)),
    )


def _processes_with_steps(attributed: AttributedCapture) -> int:
    return sum(1 for _ in attributed.iterations.by_process()) if len(attributed.iterations) else 0


def _is_per_step(work: tuple[int, int], steps: tuple[int, int]) -> bool:
    return min(steps) >= MIN_STEPS or (work[0] != work[1] and min(steps) > 0)


def dimensions_of(by: str) -> tuple[str, ...]:
    """Return the dimensions in a request.

    Raises ValueError with a message for the user if a dimension cannot be compared.
    """
    names = tuple(name.strip() for name in by.replace(OP_KERNEL, "op,kernel").split(","))
    for name in names:
        if name in NOT_COMPARABLE:
            raise ValueError(f"no diff by {name}: its values differ from run to run")
        if name not in COMPARABLE:
            raise ValueError(unknown_name("diff by", name, (OP_KERNEL, *COMPARABLE), TABLE_LIST))
    if len(set(names)) < len(names):
        raise ValueError(f"{by!r} names a dimension twice")
    if IDLE in names and len(names) > 1:
        raise ValueError(f"{IDLE!r} cannot be combined with others")
    return names


def _sorted(table: Table, labels: Sequence[str], *, per_step: bool) -> Table:
    """Return rows sorted by the size of the change, then by the longer side and the labels.

    With ``per_step`` the changes are those of the means per step.
    """
    before, after = (table[side] for side in (MEANS if per_step else ("before_ns", "after_ns")))
    keys = {
        "size": -np.abs(after - before),
        "most": -np.maximum(before, after),
        "whole": -np.abs(table["diff_ns"]),
    }
    names = [*table.columns]
    return table.assign(**keys).sort_values([*keys, *labels])[names]


def _has_any(rows: Table, columns: Sequence[str]) -> Flags:
    """Return whether each row has a value other than 0 in one of some columns."""
    result: Flags = np.any([rows[name] != 0 for name in columns], axis=0)
    return result


def _outside(before: Parts, after: Parts) -> dict[str, Pair]:
    first, second = before.outside(), after.outside()
    return {name: _pair(first.get(name, 0), second.get(name, 0)) for name in {**first, **second}}


def _pair(before: int, after: int) -> Pair:
    return {"before_ns": before, "after_ns": after, "diff_ns": after - before}


def _reason_untested(steps: tuple[int, int]) -> str:
    if min(steps) >= MIN_STEPS:
        return ""
    if not any(steps):
        return "no interval and no p-value: neither report has steps"
    return (
        f"no interval and no p-value: they need at least {MIN_STEPS} steps per report;"
        f" there are {steps[0]} before, {steps[1]} after"
    )
