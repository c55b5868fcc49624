"""Two reports compared: rows by any dimensions, their differences adding up exactly to that of the whole.

docs/diff.md defines every figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from bridge.analyze.breakdown import DIMENSIONS, RANGES, rows_of
from bridge.analyze.compare.figures import Sides
from bridge.analyze.compare.parts import NO_IDENTITY, Parts
from bridge.analyze.compare.rows import matched
from bridge.analyze.compare.stepwise import LEAST, Samples
from bridge.join.attributed import Attributed

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
