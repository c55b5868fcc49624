"""One table of a report by its name (``--by``), with the columns and options that are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

import pandas as pd
from pandas.api.types import is_numeric_dtype

from bridge.analyze.causes.gaps import OVER_NS, by_gap, by_idle
from bridge.analyze.concurrency import by_collective, by_device
from bridge.analyze.filters import meant
from bridge.analyze.flops import Costs
from bridge.analyze.metrics import columns, no_timeline
from bridge.analyze.metrics.columns import by_rule
from bridge.analyze.ranks.table import by_skew
from bridge.analyze.steps import by_step
from bridge.analyze.tables import activity_metrics, breakdown, views
from bridge.analyze.tables.activity_metrics import by_kernel, by_memcpy, by_op_kernel
from bridge.analyze.tables.breakdown import by_op
from bridge.analyze.tables.launches import by_launch
from bridge.analyze.tables.modules import by_forward_op, by_module
from bridge.analyze.tables.phases import by_phase, by_wait
from bridge.analyze.tables.ranges import by_range
from bridge.analyze.tables.views import (
    BROKEN_DOWN,
    DIRECTED,
    FLOPS,
    OF_STEPS,
    VIEWS,
    View,
    costs_of,
    dimensions_of,
    labels_of,
)
from bridge.join.attributed import BOTH, Attributed

# -- Which columns of a table someone asks for: by name, by set, or as it comes


DEFAULT, ALL = "default", "all"


def chosen(
    asked: Sequence[str],
    default: Sequence[str],
    every: Sequence[str],
    sets: Mapping[str, Sequence[str]],
) -> list[str]:
    """Return the columns that are asked for, each once, in the order asked.

    A word is a column, a set, "default", "all", or a column without its ``_ns``. Raises ValueError, in
    words for the user, for any other.
    """
    known = {DEFAULT: default, ALL: [*default, *(c for c in every if c not in default)], **sets}
    found: list[str] = []
    for word in asked or (DEFAULT,):
        if word in known and word not in every:
            found += known[word]
            continue
        column = next((c for c in (word, f"{word}_ns") if c in every or c in default), None)
        if column is None:
            raise ValueError(
                f"no column {word!r}: one of {', '.join(every)}; or {', '.join(known)}"
            )
        found.append(column)
    return list(dict.fromkeys(found))


# -- One table of a report by its name (``--by``), with the columns and options that are asked for


Table = Callable[[Attributed], pd.DataFrame]
Made = Callable[[Sequence[str]], pd.DataFrame]
ROWS = {  # what the rows of a view with columns by choice are made of
    "op": views.RANGES,
    "op-kernel": views.ACTIVITIES,
    "kernel": views.ACTIVITIES,
    "memcpy": views.ACTIVITIES,
}
STEP_COSTS = ("wall_ns", *OF_STEPS)
IDS = frozenset(["step", "pid", "process", "thread", "rank"])  # numbers that name a row


@dataclass(frozen=True)
class Options:
    """What `bridge.Joined.by` takes besides the name of the table; documented there."""

    columns: Sequence[str] = ()
    also: Sequence[
        str
    ] = ()  # columns to compute beside them, if there are such: those sorted or filtered by
    inclusive: bool = False
    kernel_names: str = "short"
    memory_kinds: bool = False
    arguments: bool = False
    direction: str = BOTH
    idle_over_ns: int = OVER_NS
    costs: Costs = breakdown.COSTS
    metrics: Sequence[str] = ()


def table(joined: Attributed, by: str, options: Options) -> pd.DataFrame:
    """Return a table, sorted as it comes; ValueError, in words for the user, for what there is not."""
    if options.metrics:
        columns.checked(by, inclusive=options.inclusive)
    no_timeline.check(joined.report, by, by not in VIEWS)
    found = no_timeline.kept(joined.report, _table(joined, by, options), options.columns)
    if not options.metrics:
        return found
    counted = joined.only(options.direction)
    return columns.beside(counted, found, by, options.metrics, options.kernel_names)


def _table(joined: Attributed, by: str, options: Options) -> pd.DataFrame:
    """Return a table as it comes, with whatever it has for any report."""
    if by not in VIEWS:
        return arranged(by, options, making(joined, by, options))
    if options.direction != BOTH and by not in DIRECTED:
        raise ValueError(f"no direction for view {by!r}: only for {', '.join(DIRECTED)}")
    if by in ROWS:
        return arranged(by, options, making(joined, by, options))
    counted = joined.only(options.direction)
    tables: Mapping[str, Table] = {
        "range": partial(by_range, with_arguments=options.arguments),
        "module": by_module,
        "forward-op": by_forward_op,
        "phase": by_phase,
        "wait": by_wait,
        "launch": partial(by_launch, kernel_names=options.kernel_names),
        "gap": partial(by_gap, threshold_ns=options.idle_over_ns),
        "idle": partial(by_idle, threshold_ns=options.idle_over_ns),
        "step": partial(by_step, costs=_costs_of_steps(options)),
        "device": by_device,
        "rule": partial(by_rule, kernel_names=options.kernel_names),
        "collective": by_collective,
        "skew": by_skew,
    }
    found = tables[by](counted)
    if VIEWS[by].sorted_by:
        found = ordered(found, VIEWS[by].sorted_by)
    names = list(takewhile(lambda c: c in IDS or not is_numeric_dtype(found[c]), found.columns))
    every = list(found.columns)
    usual = [c for c in every if by != "step" or c not in OF_STEPS]
    wanted = chosen(options.columns, usual, every, {FLOPS: STEP_COSTS} if by == "step" else {})
    wanted += _also(options, every, wanted)
    return found[[*names, *(c for c in wanted if c not in names)]]


def _costs_of_steps(options: Options) -> Costs | None:
    """Return how FLOPs of steps are counted, None where nobody asks for them."""
    return options.costs if costs_of("step", (*options.columns, *options.also)) else None


def sorted_by(by: str, found: pd.DataFrame) -> str:
    """Return the column that a table comes sorted by; its last one if that was not asked for."""
    return next((c for c in _view(by).sorted_by if c in found.columns), str(found.columns[-1]))


def with_running_sum(found: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return a table with the running sum of a column; ValueError for one of names."""
    if not is_numeric_dtype(found[column]):
        raise ValueError(f"no running sum of {column}: it is a name")
    place = list(found.columns).index(column) + 1
    name = f"running_{column}"
    parts = [found.iloc[:, :place], found[column].cumsum().rename(name), found.iloc[:, place:]]
    summed = pd.concat(parts, axis=1)
    summed.attrs = found.attrs
    return summed


def ordered(
    table: pd.DataFrame,
    columns: Sequence[str],
    names: Sequence[str] = (),
    *,
    ascending: bool = False,
) -> pd.DataFrame:
    """Sort by columns, largest first unless told otherwise; ties by the names, in order: by these, by all that are texts."""
    texts = [c for c in table.columns if not is_numeric_dtype(table[c]) and c not in names]
    ties = [c for c in (*names, *texts, "start_ns") if c in table.columns and c not in columns]
    directions = [ascending] * len(columns) + [True] * len(ties)
    return table.sort_values(
        [*columns, *ties], ascending=directions, ignore_index=True, kind="stable"
    )


def making(joined: Attributed, by: str, options: Options) -> Made:
    """Return what makes the rows of a table of which columns may be asked for, of the columns that it is given."""
    counted, names = joined.only(options.direction), options.kernel_names
    if by not in ROWS:
        dimensions = dimensions_of(by)
        return lambda wanted: breakdown.breakdown(counted, dimensions, wanted, names, options.costs)
    tables: Mapping[str, Callable[..., pd.DataFrame]] = {
        "op": partial(by_op, costs=options.costs),
        "op-kernel": partial(by_op_kernel, kernel_names=names, inclusive=options.inclusive),
        "kernel": partial(by_kernel, kernel_names=names),
        "memcpy": partial(by_memcpy, memory_kinds=options.memory_kinds),
    }
    return lambda wanted: tables[by](counted, columns=wanted)


def rows_of(by: str) -> str:
    """Return what the rows of a table of which columns may be asked for are made of, of `breakdown.COLUMNS`."""
    return ROWS[by] if by in ROWS else views.rows_of(dimensions_of(by))


def wanted(by: str, options: Options) -> list[str]:
    """Return the columns of figures that such a table shows; ValueError, in words for the user, for what there is not."""
    rows, view, labels = rows_of(by), _view(by), labels_of(by)
    every = breakdown.COLUMNS[rows]
    if "median_ns" in view.columns:
        every = [c for c in every if c not in activity_metrics.ALSO_MEDIAN]
    asked = chosen(options.columns, view.columns, [*labels, *every], breakdown.SETS[rows])
    found = [c for c in asked if c not in labels]
    return found + _also(options, [*view.columns, *every], found)


def made_of(by: str, shown: Sequence[str]) -> list[str]:
    """Return the columns that such a table is made with: those shown, and those that it is sorted by."""
    return [*shown, *(c for c in _view(by).sorted_by if c not in shown)]


def arranged(by: str, options: Options, made: Made) -> pd.DataFrame:
    """Make a table with the columns asked for after those that name its rows, sorted by those that it always is."""
    labels, shown = labels_of(by), wanted(by, options)
    found = made(made_of(by, shown))
    names = [c for c in found.columns if c in labels]
    return ordered(found, _view(by).sorted_by, names)[[*names, *shown]]


def _view(by: str) -> View:
    return VIEWS[by] if by in VIEWS else BROKEN_DOWN[rows_of(by)]


def _also(options: Options, every: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Return the columns that are sorted or filtered by and were not asked for, of those there are."""
    found = (next((c for c in meant(name) if c in every), None) for name in options.also)
    return [c for c in dict.fromkeys(found) if c is not None and c not in wanted]
