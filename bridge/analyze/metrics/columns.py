"""Metrics as columns of a table: of each row those of its kernels, added up as each metric says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bridge.analyze.groups import Floats, counts, sums, texts
from bridge.analyze.metrics.values import LEAST, MATCH, MEAN, MOST, SUM, SURE, Measured, wanted
from bridge.analyze.names import KERNEL_NAMES, named
from bridge.analyze.tables import events
from bridge.analyze.tables.breakdown import DIMENSIONS
from bridge.analyze.tables.dimensions import kernel, together
from bridge.analyze.tables.views import ACTIVITIES, RANGES, VIEWS, dimensions_of, rows_of
from bridge.join.arrays import NONE, Flags, Ints, number
from bridge.join.attributed import Attributed
from importers import frames
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
    if rows_of(dimensions) not in (RANGES, ACTIVITIES):
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


# -- What the rules of Nsight Compute say of kernels, and what each estimates to save


WHOLE = "global"  # an estimate of the kernel's time; others are of one unit of the GPU
PER_CENT = 100.0
TOLD_APART = ("rule", "kind", "scope")
COLUMNS = ("rule", "kernel", "kind", "saves_ns", "speedup", "scope", "count", "total_ns", "text")


def by_rule(joined: Attributed, kernel_names: str = "short") -> pd.DataFrame:
    """Return a row per rule and kernel name that it says something of.

    ``speedup`` is the estimate in per cent, of the kernel that took longest, -1 where there is none;
    ``saves_ns`` what the estimates of the whole kernel (scope "global") amount to. Rules overlap: savings
    do not add up; of what one rule says of one kernel in several texts, the largest estimate counts.
    ``text`` is of the kernel that took longest.
    """
    activity, place = largest(joined)
    rules = joined.report.metrics.rules.iloc[place]
    code, names = named(joined, KERNEL_NAMES[kernel_names], activity)
    group, first = number(code, *(frames.codes(rules[c]) for c in TOLD_APART))
    groups, time = len(first), joined.duration[activity]
    longest = _longest(group, time)
    speedup = rules["speedup"].to_numpy()
    saved = np.where(is_named(rules["scope"], WHOLE) & (speedup > 0), time * speedup / PER_CENT, 0)
    columns = {
        **{c: texts(rules[c].astype(object).iloc[longest]) for c in (*TOLD_APART, "text")},
        "kernel": texts(names[c] for c in code[longest].tolist()),
        "saves_ns": sums(group, saved.round().astype(np.int64), groups),
        "speedup": speedup[longest],
        "count": counts(group, groups),
        "total_ns": sums(group, time, groups),
    }
    return pd.DataFrame({name: columns[name] for name in COLUMNS})


def largest(joined: Attributed) -> tuple[Ints, Ints]:
    """Return pairs of an activity and a row of rules: of what each says of a kernel that with the largest estimate."""
    return _most(joined.report.metrics.rules, *_rules_said(joined))


def _rules_said(joined: Attributed) -> tuple[Ints, Ints]:
    """Return pairs of an activity and a row of rules: all that rules say of the kernel it is."""
    metrics = joined.report.metrics
    rows = np.flatnonzero(joined.counted & known(joined.report))
    of_rule = frames.ints(metrics.rules, "kernel")  # ascending
    first, end = (np.searchsorted(of_rule, metrics.of[rows], side) for side in ("left", "right"))
    many = end - first
    before = np.cumsum(many) - many
    return np.repeat(rows, many), np.repeat(first - before, many) + np.arange(many.sum())


def _most(rules: pd.DataFrame, activity: Ints, place: Ints) -> tuple[Ints, Ints]:
    """Keep of what a rule says of a kernel that with the largest estimate."""
    keys = [frames.codes(rules[c])[place] for c in TOLD_APART]
    code, first = number(activity, *keys)
    best = np.lexsort((-rules["speedup"].to_numpy()[place], code))
    best = best[np.unique(code[best], return_index=True)[1]] if len(first) else best
    return activity[best], place[best]


def _longest(group: Ints, time: Ints) -> Ints:
    """Return the row of each group that took longest, of several the first."""
    order = np.lexsort((-time, group))
    return order[np.unique(group[order], return_index=True)[1]]


def is_named(column: pd.Series, name: str) -> Flags:
    """Tell which rows of a column of names have this one."""
    categories = list(column.cat.categories)
    same: Flags = frames.codes(column) == (
        categories.index(name) if name in categories else len(categories)
    )
    return same
