"""Metrics as columns of a table: of each row those of its kernels, added up as each metric says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bridge.analyze.breakdown import ACTIVITIES as OF_ACTIVITIES
from bridge.analyze.breakdown import DIMENSIONS, RANGES, events, rows_of
from bridge.analyze.breakdown.coded import together
from bridge.analyze.breakdown.dimensions import kernel
from bridge.analyze.groups import Floats, counts, texts
from bridge.analyze.metrics.headline import LEAST, MEAN, MOST, SUM
from bridge.analyze.metrics.measured import MATCH, SURE, Measured, wanted
from bridge.analyze.views import VIEWS, dimensions_of
from bridge.join.attributed import Attributed
from bridge.join.order import NONE, Ints
from importers.report import Report

OF_VIEWS = {"op": ("op",), "kernel": ("kernel",), "op-kernel": ("op", "kernel")}
MISSING = -1.0
EXACT = 2.0**53  # integers below are exact as floats


def checked(by: str, *, inclusive: bool = False) -> tuple[str, ...]:
    """Return the dimensions of a table that can have metrics; ValueError, in words for the user, for another."""
    if inclusive:
        raise ValueError("metrics are of the innermost op: leave out --inclusive")
    if by in VIEWS and by not in OF_VIEWS:
        raise ValueError(
            f"no metrics for view {by!r}: only for {', '.join(OF_VIEWS)}, and dimensions"
        )
    dimensions = OF_VIEWS.get(by) or dimensions_of(by)
    if rows_of(dimensions) not in (RANGES, OF_ACTIVITIES):
        raise ValueError(
            "no metrics by API call: Nsight Compute does not say which launched a kernel"
        )
    return dimensions


def beside(
    joined: Attributed, found: pd.DataFrame, by: str, names: Sequence[str], kernel_names: str
) -> pd.DataFrame:
    """Return a table with a column per metric, of the kernels that each row's own are.

    Of an op that are those it launched itself. -1 and '' where none of them was measured.
    """
    dimensions = checked(by)
    made = {**DIMENSIONS, "kernel": kernel(kernel_names)}
    rows = np.flatnonzero(joined.counted & known(joined.report))
    coded = together(
        [made[name](joined, [events.of_activities(joined, rows)]) for name in dimensions]
    )
    there = coded.codes[0] != NONE
    labels = pd.DataFrame(dict(coded.labels))
    shared = [c for c in labels.columns if c in found.columns]
    same, distinct = pd.factorize(pd.MultiIndex.from_frame(labels[shared]))
    group = same[coded.codes[0][there]].astype(np.int64)
    figures = _figures(joined, rows[there], group, len(distinct), names)
    place = distinct.get_indexer(pd.MultiIndex.from_frame(found[shared]))
    table = found.assign(**{name: _at(column, place) for name, column in figures.items()})
    table.attrs["units"] = units(joined.report, names)
    return table


def known(report: Report) -> NDArray[np.bool_]:
    """Tell of which activities anything was measured."""
    found: NDArray[np.bool_] = report.metrics.of != NONE
    return found if len(found) else np.zeros(len(report.activities), bool)


def _at(column: NDArray[np.generic], place: Ints) -> NDArray[np.generic]:
    none = "" if column.dtype == object else MISSING
    padded: NDArray[np.generic] = np.append(column, np.array([none], column.dtype))[place]
    return padded


def _figures(
    joined: Attributed, rows: Ints, group: Ints, groups: int, names: Sequence[str]
) -> Mapping[str, NDArray[np.generic]]:
    metrics = joined.report.metrics
    own = [name for name in names if name != MATCH]
    found: dict[str, NDArray[np.generic]] = {}
    kernels, weight = metrics.of[rows], joined.duration[rows].astype(np.float64)
    for name, one in zip(own, wanted(joined.report, own), strict=True):
        if one.texts is not None:
            found[name] = _said(one.texts[kernels], group, groups)
        else:
            found[name] = _added(one, one.numbers[kernels], weight, group, groups)
    if MATCH in names:
        sure = metrics.sure if len(metrics.sure) else np.zeros(len(metrics.of), np.int64)
        least = np.full(groups, NONE)
        np.maximum.at(least, group, sure[rows])
        found[MATCH] = texts([*SURE, ""])[least]
    return {name: found[name] for name in names}


def _added(
    one: Measured, numbers: Floats, weight: Floats, group: Ints, groups: int
) -> NDArray[np.generic]:
    """Return a number per group of those that are known, -1 where none is; counts as integers."""
    there = ~np.isnan(numbers)
    total = HOW[one.how](group[there], numbers[there], weight[there], groups)
    found = np.where(counts(group[there], groups) > 0, total, MISSING)
    whole = one.how != MEAN and bool((found == np.floor(found)).all())
    return found.astype(np.int64) if whole and np.abs(found).max(initial=0) < EXACT else found


def _sum(group: Ints, numbers: Floats, _weight: Floats, groups: int) -> Floats:
    return np.bincount(group, numbers, groups).astype(np.float64)


def _mean(group: Ints, numbers: Floats, weight: Floats, groups: int) -> Floats:
    """Return the mean by the kernels' time; of those without a time, each counts alike."""
    timed = np.bincount(group, weight, groups)[group] > 0
    weight = np.where(timed, weight, 1.0)
    whole = np.bincount(group, weight, groups)
    added = np.bincount(group, weight * numbers, groups)
    mean = np.divide(added, whole, out=np.zeros(groups), where=whole > 0)
    return np.where(_same(group, numbers, groups), _greatest(group, numbers, weight, groups), mean)


def _same(group: Ints, numbers: Floats, groups: int) -> NDArray[np.bool_]:
    """Tell which groups have one value alone, which no rounding shall touch."""
    nothing = np.zeros(0)
    return np.asarray(
        _greatest(group, numbers, nothing, groups) == _least(group, numbers, nothing, groups)
    )


def _greatest(group: Ints, numbers: Floats, _weight: Floats, groups: int) -> Floats:
    found = np.full(groups, -np.inf)
    np.maximum.at(found, group, numbers)
    return found


def _least(group: Ints, numbers: Floats, _weight: Floats, groups: int) -> Floats:
    found = np.full(groups, np.inf)
    np.minimum.at(found, group, numbers)
    return found


HOW: Mapping[str, Callable[[Ints, Floats, Floats, int], Floats]] = {
    SUM: _sum,
    MEAN: _mean,
    MOST: _greatest,
    LEAST: _least,
}


def _said(said: NDArray[np.object_], group: Ints, groups: int) -> NDArray[np.object_]:
    """Return the text that all kernels of a group have, '' where they differ."""
    pairs = pd.DataFrame({"group": group, "text": said}).drop_duplicates()
    alone = pairs[~pairs["group"].duplicated(keep=False)]
    found = texts([""] * groups)
    found[alone["group"].to_numpy()] = alone["text"].to_numpy()
    return found


def units(report: Report, names: Sequence[str]) -> dict[str, str]:
    """Return the unit of each metric."""
    own = [name for name in names if name != MATCH]
    return {name: one.unit for name, one in zip(own, wanted(report, own), strict=True)}
