"""Two reports compared: rows by any dimensions, their differences adding up exactly to that of the whole.

docs/diff.md defines every figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bridge.analyze.compare.calls import call_figures, matched_calls
from bridge.analyze.compare.parts import NO_IDENTITY, Parts
from bridge.analyze.compare.rows import Rows, matched
from bridge.analyze.compare.steps import LEAST, Samples, step_figures
from bridge.analyze.groups import Floats, counts, sums, texts
from bridge.analyze.tables.breakdown import DIMENSIONS
from bridge.analyze.tables.views import RANGES, rows_of
from bridge.join.arrays import NONE, Flags, Ints
from bridge.join.attributed import Attributed

# -- What became of each row: new, vanished, faster, slower, or the same


STATES = SAME, FASTER, SLOWER, NEW, VANISHED = ("same", "faster", "slower", "new", "vanished")
LEVEL = 0.05  # of significance


def states(
    figures: Mapping[str, np.ndarray], before: Flags, after: Flags, noise: float
) -> np.ndarray:
    """Return the state of each row; which rows are on either side is given.

    Where steps were tested, it is of the time per step: p is at most `LEVEL`, the means differ by more than ``noise``,
    and most pairs of steps differ the same way. Else it is of the whole time.
    """
    tested = figures["p"] != NONE
    size = np.maximum(figures["before_ns"], figures["after_ns"])
    diff = figures["diff_ns"].astype(np.float64)
    changed = np.abs(diff) > noise * size
    means = figures["step_before_ns"], figures["step_after_ns"]
    per_step = means[1] - means[0]
    agree = np.sign(per_step) == np.sign(figures["shift"])
    real = (figures["p"] <= LEVEL) & agree & (np.abs(per_step) > noise * np.maximum(*means))
    changed = np.where(tested, real, changed)
    slower = np.where(tested, per_step, diff) > 0
    state = np.select([~before, ~after, ~changed, slower], [3, 4, 0, 2], default=1)
    named: np.ndarray = texts(STATES)[state]
    return named


# -- The figures of the rows of a comparison: calls, counts and times on either side, what changed, and how surely


SIDES = BEFORE, AFTER = ("before", "after")
Figures = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Sides:
    """Two reports parted into the same rows; ``of_calls`` if the rows are of calls, and not of activities alone."""

    rows: Rows
    parts: tuple[Parts, Parts]
    samples: tuple[Samples, Samples]
    of_calls: bool

    def table(self, noise: float, *, tested: bool) -> pd.DataFrame:
        """Return all figures, a row each."""
        rows = len(self.rows)
        figures = {**self._times(), **step_figures(*self.samples, rows, tested=tested)}
        there = [self._there(row) for row in (self.rows.before, self.rows.after)]
        figures["state"] = states(figures, there[0], there[1], noise)
        del figures["shift"]
        calls = self._calls() if self.of_calls else {}
        found = {**self._counts(), **figures, **calls}
        return pd.DataFrame({**self.rows.labels, **found})

    def _counts(self) -> Figures:
        """Return how many calls, and how many activities, each row has on either side."""
        found = {}
        if self.of_calls:
            for side, row, parts in self._both():
                found[f"calls_{side}"] = counts(row[parts.call_part], len(self.rows))
        if not self.parts[0].host:
            for side, row, parts in self._both():
                found[f"activities_{side}"] = counts(row[parts.part[parts.inside]], len(self.rows))
        return found

    def _times(self) -> dict[str, Ints | Floats | NDArray[np.object_]]:
        rows = len(self.rows)
        before, after = (sums(row, parts.totals, rows) for _, row, parts in self._both())
        diff = after - before
        whole = self.parts[1].whole_ns - self.parts[0].whole_ns
        ratio = np.divide(after, before, out=np.full(rows, float(NONE)), where=before != 0)
        share = diff / whole if whole else np.zeros(rows)
        return {
            "before_ns": before, "after_ns": after, "diff_ns": diff, "ratio": ratio, "share": share,
        }  # fmt: skip

    def _calls(self) -> Figures:
        pairs = matched_calls(self.parts[0].joined, self.parts[1].joined)
        return call_figures(pairs, self.parts, (self.rows.before, self.rows.after), len(self.rows))

    def _both(self) -> list[tuple[str, Ints, Parts]]:
        return list(zip(SIDES, (self.rows.before, self.rows.after), self.parts, strict=True))

    def _there(self, row: Ints) -> Flags:
        there = np.zeros(len(self.rows), bool)
        there[row] = True
        return there


# -- Two reports compared: rows by any dimensions, their differences adding up exactly to that of the whole


COMPARABLE = tuple(name for name in DIMENSIONS if name not in NO_IDENTITY)
OP_KERNEL = "op-kernel"
NOISE = 0.01
Pair = dict[str, int]  # before_ns, after_ns, diff_ns


@dataclass(frozen=True)
class Comparison:
    """The rows of two reports beside each other; the differences of ``rows`` and ``outside`` add up to ``whole``'s.

    Times are those of activities on the GPU, or (``host``) where neither side has any those of ranges on the host.
    ``labels`` name the rows. ``steps`` are the samples on either side; ``untested`` says why rows have no p, '' where
    they have.
    """

    by: str
    host: bool
    labels: Sequence[str]
    rows: pd.DataFrame
    whole: Pair
    outside: Mapping[str, Pair]
    steps: tuple[int, int]
    untested: str

    @property
    def rows_diff_ns(self) -> int:
        """The change of all rows together."""
        return int(self.rows["diff_ns"].sum())


def compare(
    before: Attributed,
    after: Attributed,
    by: str = "op",
    *,
    kernel_names: str = "short",
    noise: float = NOISE,
) -> Comparison:
    """Compare two reports by dimensions: "op", "op-kernel", or any of `COMPARABLE`, several with commas.

    Changes up to ``noise``, a fraction of the larger side, are none. Raises ValueError, in words for the user, for
    other dimensions, and for those of activities where neither side has any.
    """
    dimensions = dimensions_of(by)
    reports = before, after
    host = not any(report.counted.any() for report in reports)
    if host and rows_of(dimensions) != RANGES:
        raise ValueError(f"nothing ran on a device in either report: no diff by {by}")
    one, other = (Parts.of(report, dimensions, kernel_names, host=host) for report in reports)
    rows = matched(one, other)
    samples = Samples.of(one, rows.before), Samples.of(other, rows.after)
    steps = len(samples[0]), len(samples[1])
    untested = "no p: rows are of single steps" if "step" in dimensions else _untested(steps)
    sides = Sides(rows, (one, other), samples, of_calls=rows_of(dimensions) == RANGES)
    table = _sorted(sides.table(noise, tested=not untested), list(rows.labels))
    whole = _pair(one.whole_ns, other.whole_ns)
    return Comparison(
        by, host, list(rows.labels), table, whole, _outside(one, other), steps, untested
    )


def dimensions_of(by: str) -> tuple[str, ...]:
    """Return the dimensions that a diff is by; ValueError, in words for the user, for what cannot be."""
    names = tuple(name.strip() for name in by.replace(OP_KERNEL, "op,kernel").split(","))
    for name in names:
        if name in NO_IDENTITY:
            raise ValueError(f"no diff by {name}: another run has others")
        if name not in COMPARABLE:
            raise ValueError(f"no diff by {name!r}: one of {', '.join((OP_KERNEL, *COMPARABLE))}")
    if len(set(names)) < len(names):
        raise ValueError(f"{by!r} names something twice")
    return names


def _sorted(table: pd.DataFrame, labels: Sequence[str]) -> pd.DataFrame:
    """Sort by the size of the change, largest first, ties by the longer side and the labels."""
    keys = {"size": -table["diff_ns"].abs(), "most": -table[["before_ns", "after_ns"]].max(axis=1)}
    order = table[list(labels)].assign(**keys).sort_values([*keys, *labels], kind="stable").index
    return table.loc[order].reset_index(drop=True)


def _outside(before: Parts, after: Parts) -> dict[str, Pair]:
    one, other = before.outside(), after.outside()
    return {name: _pair(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def _pair(before: int, after: int) -> Pair:
    return {"before_ns": before, "after_ns": after, "diff_ns": after - before}


def _untested(steps: tuple[int, int]) -> str:
    if min(steps) >= LEAST:
        return ""
    if not any(steps):
        return "no p: neither report has steps"
    return f"no p: it takes {LEAST} steps on each side, and there are {steps[0]} before, {steps[1]} after"
