"""Add metrics of Nsight Compute to tables, and make the table of its rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.core.catalog import VIEWS
from bridge.analyze.core.catalog.lookup import dimensions_of, rows_of_dimensions
from bridge.analyze.core.catalog.views import ACTIVITIES, RANGES
from bridge.analyze.core.groups import Floats, counts, highest, lowest, sums, texts
from bridge.analyze.core.names import name_codes
from bridge.analyze.core.table import Table
from bridge.analyze.cost.metrics.values import (
    BOTTLENECK,
    MATCH,
    MATCH_LEVELS,
    MAX,
    MEAN,
    MIN,
    OF_ROWS,
    SUM,
    TIME_RATIO,
    MetricValues,
    bottlenecks,
    select_metrics,
)
from bridge.analyze.tables.dimensions import CODINGS, activity_events, combine, kernel
from bridge.importers.arrays import factorize
from bridge.importers.capture import Capture
from bridge.importers.frames import Names, distinct_keys
from bridge.importers.ncu.metrics import RuleMessages
from bridge.join.arrays import NONE, Ints, number_groups
from bridge.join.attributed import AttributedCapture

DIMENSIONS_OF_VIEW = {"op": ("op",), "kernel": ("kernel",), "op-kernel": ("op", "kernel")}
MISSING = -1.0
MAX_EXACT = 2.0**53  # integers up to here are exact as floats


def metric_dimensions(by: str, *, inclusive: bool = False) -> tuple[str, ...]:
    """Return the dimensions of a table to which metrics can be added.

    Raises ValueError with a message for the user for other tables.
    """
    if inclusive:
        raise ValueError("metrics are of the innermost op: leave out --inclusive")
    if by in VIEWS and by not in DIMENSIONS_OF_VIEW:
        raise ValueError(
            f"no metrics for view {by!r}: only for {', '.join(DIMENSIONS_OF_VIEW)}, and dimensions"
        )
    dimensions = DIMENSIONS_OF_VIEW.get(by) or dimensions_of(by)
    if rows_of_dimensions(dimensions) not in (RANGES, ACTIVITIES):
        raise ValueError(
            "no metrics by API call: Nsight Compute does not say which launched a kernel"
        )
    return dimensions


def add_metric_columns(
    attributed: AttributedCapture,
    result: Table,
    by: str,
    names: Sequence[str],
    kernel_names: str,
) -> Table:
    """Return a table with a column per metric, over the kernels of each row.

    The kernels of an op are those that it launched itself. The value is -1 or '' where none was
    measured.
    """
    dimensions = metric_dimensions(by)
    coding_of = {**CODINGS, "kernel": kernel(kernel_names)}
    rows = np.flatnonzero(attributed.counted & has_metrics(attributed.capture))
    codes = combine(
        [coding_of[name](attributed, [activity_events(attributed, rows)]) for name in dimensions]
    )
    has_row = codes.codes[0] != NONE
    common = [name for name in codes.labels if name in result]
    size = len(next(iter(codes.labels.values())))
    both = [np.concatenate((codes.labels[name], result[name])) for name in common]
    key, first = distinct_keys(*(factorize(column)[0] for column in both))
    group = key[:size][codes.codes[0][has_row]]
    columns = _metric_columns(
        attributed, rows[has_row], group=group, groups=len(first), names=names
    )
    row = key[size:]
    table = result.assign(**{name: column[row] for name, column in columns.items()})
    table.attrs["units"] = units(attributed.capture, names)
    return table


def has_metrics(capture: Capture) -> NDArray[np.bool_]:
    """Return whether each activity has metrics."""
    result: NDArray[np.bool_] = capture.metrics.of != NONE
    return result if len(result) else np.zeros(len(capture.activities), bool)


def _metric_columns(
    attributed: AttributedCapture, rows: Ints, group: Ints, groups: int, names: Sequence[str]
) -> Mapping[str, NDArray[np.generic]]:
    metrics = attributed.capture.metrics
    sources = [part for name in names for part in SOURCES.get(name, (name,))]
    metric_names = [name for name in dict.fromkeys(sources) if name not in OF_ROWS]
    result: dict[str, NDArray[np.generic]] = {}
    kernels, weight = metrics.of[rows], attributed.duration[rows].astype(np.float64)
    measured = dict(
        zip(metric_names, select_metrics(attributed.capture, metric_names), strict=True)
    )
    for name, metric in measured.items():
        if metric.texts is not None:
            result[name] = _common_texts(metric.texts[kernels], group, groups)
        else:
            result[name] = _aggregated(
                metric, metric.numbers[kernels], weight=weight, group=group, groups=groups
            )
    if MATCH in names:
        sure = metrics.sure if len(metrics.sure) else np.zeros(len(metrics.of), np.int64)
        least_certain = np.full(groups, NONE)
        np.maximum.at(least_certain, group, sure[rows])
        result[MATCH] = texts([*MATCH_LEVELS, ""])[least_certain]
    if BOTTLENECK in names:
        compute, memory = (result[name].astype(np.float64) for name in SOURCES[BOTTLENECK])
        result[BOTTLENECK] = bottlenecks(compute, memory)
    if TIME_RATIO in names:
        [source] = SOURCES[TIME_RATIO]
        result[TIME_RATIO] = _ratios(measured[source].numbers[kernels], weight, group, groups)
    return {name: result[name] for name in names}


SOURCES = {BOTTLENECK: ("sm_throughput", "memory_throughput"), TIME_RATIO: ("ncu_time",)}


def _ratios(numbers: Floats, weight: Floats, group: Ints, groups: int) -> Floats:
    """Return the sum of a metric over that of the times of the same kernels per group, -1 without any."""
    known = ~np.isnan(numbers) & (weight > 0)
    measured, timed = (
        np.bincount(group[known], column[known], groups).astype(np.float64)
        for column in (numbers, weight)
    )
    result: Floats = np.divide(measured, timed, out=np.full(groups, MISSING), where=timed > 0)
    return result


def _aggregated(
    metric: MetricValues, numbers: Floats, weight: Floats, group: Ints, groups: int
) -> NDArray[np.generic]:
    """Return the aggregated metric per group, -1 where it is unknown; counts are integers."""
    is_known = ~np.isnan(numbers)
    total = AGGREGATIONS[metric.aggregation](
        group[is_known], numbers[is_known], weight[is_known], groups
    )
    result = np.where(counts(group[is_known], groups) > 0, total, MISSING)
    is_count = metric.aggregation != MEAN and bool((result == np.floor(result)).all())
    return (
        result.astype(np.int64)
        if is_count and np.abs(result).max(initial=0) < MAX_EXACT
        else result
    )


def _sum(group: Ints, numbers: Floats, _weight: Floats, groups: int) -> Floats:
    return np.bincount(group, numbers, groups).astype(np.float64)


def _mean(group: Ints, numbers: Floats, weight: Floats, groups: int) -> Floats:
    """Return the mean weighted by time; kernels of a group without times have equal weights."""
    has_time = np.bincount(group, weight, groups)[group] > 0
    weight = np.where(has_time, weight, 1.0)
    total_weight = np.bincount(group, weight, groups)
    weighted_sum = np.bincount(group, weight * numbers, groups)
    mean = np.divide(weighted_sum, total_weight, out=np.zeros(groups), where=total_weight > 0)
    return np.where(
        _is_constant(group, numbers, groups), _maximum(group, numbers, weight, groups), mean
    )


def _is_constant(group: Ints, numbers: Floats, groups: int) -> NDArray[np.bool_]:
    """Return whether each group has a single value, which rounding must not change."""
    no_weight = np.zeros(0)
    return np.asarray(
        _maximum(group, numbers, no_weight, groups) == _minimum(group, numbers, no_weight, groups)
    )


def _maximum(group: Ints, numbers: Floats, _weight: Floats, groups: int) -> Floats:
    result = np.full(groups, -np.inf)
    np.maximum.at(result, group, numbers)
    return result


def _minimum(group: Ints, numbers: Floats, _weight: Floats, groups: int) -> Floats:
    result = np.full(groups, np.inf)
    np.minimum.at(result, group, numbers)
    return result


AGGREGATIONS: Mapping[str, Callable[[Ints, Floats, Floats, int], Floats]] = {
    SUM: _sum,
    MEAN: _mean,
    MAX: _maximum,
    MIN: _minimum,
}


def _common_texts(values: NDArray[np.object_], group: Ints, groups: int) -> NDArray[np.object_]:
    """Return the text of each group, '' where its kernels differ."""
    names = Names.of(values.tolist())
    result = texts([""] * groups)
    low, high = (bound(group, names.codes, groups) for bound in (lowest, highest))
    has_one = (low == high) & (low != MISSING)
    result[has_one] = texts(names.texts)[low[has_one]]
    return result


def units(capture: Capture, names: Sequence[str]) -> dict[str, str]:
    metric_names = [name for name in names if name not in OF_ROWS]
    return {
        name: metric.unit
        for name, metric in zip(metric_names, select_metrics(capture, metric_names), strict=True)
    }


# -- Results of the rules of Nsight Compute


KERNEL_SCOPE = "global"  # scope of estimates for the whole kernel; others are for a unit of the GPU
PERCENT = 100.0
RULE_KEYS = ("rule", "kind", "scope")
COLUMNS = ("rule", "kernel", "kind", "saves_ns", "speedup", "scope", "count", "total_ns", "text")


def by_rule(attributed: AttributedCapture, kernel_names: str = "readable") -> Table:
    """Return one row per rule and kernel name with a result.

    ``speedup`` is the estimate in percent for the kernel that took longest, -1 if there is none.
    ``saves_ns`` is the sum of the estimates for whole kernels (scope "global"). Rules overlap, so
    savings do not add up; of several results of a rule for a kernel the largest estimate counts.
    ``text`` is that of the kernel that took longest.
    """
    activity, place = rule_results(attributed)
    rules = attributed.capture.metrics.rules.take(place)
    code, names = name_codes(attributed, kernel_names, activity)
    group, first = number_groups(code, *(rules[c].codes for c in RULE_KEYS))
    groups, time = len(first), attributed.duration[activity]
    longest = _longest(group, time)
    speedup = rules.speedup
    savings = np.where(rules.scope.among(KERNEL_SCOPE) & (speedup > 0), time * speedup / PERCENT, 0)
    columns = {
        **{c: rules[c][longest] for c in (*RULE_KEYS, "text")},
        "kernel": texts(names[c] for c in code[longest].tolist()),
        "saves_ns": sums(group, savings.round().astype(np.int64), groups),
        "speedup": speedup[longest],
        "count": counts(group, groups),
        "total_ns": sums(group, time, groups),
    }
    return Table({name: columns[name] for name in COLUMNS})


def rule_results(attributed: AttributedCapture) -> tuple[Ints, Ints]:
    """Return pairs of an activity and a row of rules.

    Of several results of a rule for a kernel, that with the largest estimate is returned.
    """
    return _best_estimates(attributed.capture.metrics.rules, *_all_rule_results(attributed))


def _all_rule_results(attributed: AttributedCapture) -> tuple[Ints, Ints]:
    """Return pairs of an activity and a row of rules: all results for its kernel."""
    metrics = attributed.capture.metrics
    rows = np.flatnonzero(attributed.counted & has_metrics(attributed.capture))
    kernel_of_rule = metrics.rules.kernel  # ascending
    first, end = (
        np.searchsorted(kernel_of_rule, metrics.of[rows], side) for side in ("left", "right")
    )
    size = end - first
    offset = np.cumsum(size) - size
    return np.repeat(rows, size), np.repeat(first - offset, size) + np.arange(size.sum())


def _best_estimates(rules: RuleMessages, activity: Ints, row: Ints) -> tuple[Ints, Ints]:
    """Return, of the results of a rule for a kernel, that with the largest estimate."""
    keys = [rules[c].codes[row] for c in RULE_KEYS]
    code, first = number_groups(activity, *keys)
    best = np.lexsort((-rules.speedup[row], code))
    best = best[np.unique(code[best], return_index=True)[1]] if len(first) else best
    return activity[best], row[best]


def _longest(group: Ints, time: Ints) -> Ints:
    """Return the row of each group with the longest time, the first of several."""
    order = np.lexsort((-time, group))
    return order[np.unique(group[order], return_index=True)[1]]
