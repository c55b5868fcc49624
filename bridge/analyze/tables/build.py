"""One table of a report, as a `TableRequest` describes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from pkgutil import resolve_name
from typing import Any

from bridge.analyze.core import no_timeline
from bridge.analyze.core.catalog import VIEWS, View, column_named
from bridge.analyze.core.catalog.lookup import (
    DIRECTED,
    columns_are_chosen,
    dimensions_of,
    labels_of,
    sorting_columns,
)
from bridge.analyze.core.catalog.views import NO_COUNTERS, NO_ENERGY
from bridge.analyze.core.table import Table
from bridge.analyze.tables.breakdown import breakdown
from bridge.analyze.tables.request import METRIC_LIST, TableRequest, chosen
from bridge.join.attributed import BOTH, AttributedCapture

MakeRows = Callable[[Sequence[str]], Table]
# Columns of numbers that name a row.
IDS = frozenset(["step", "pid", "tid", "process", "thread", "rank"])


def table(attributed: AttributedCapture, request: TableRequest) -> Table:
    """Return a table, sorted by its own columns.

    Raises ValueError with a message for the user if the report cannot have the table or the
    columns.
    """
    if request.metrics == (METRIC_LIST,):
        from bridge.analyze.cost.metrics.values import metric_list

        return metric_list(attributed.capture)
    if request.metrics:
        return _with_metrics(attributed, request)
    return _checked(attributed, request)


def _with_metrics(attributed: AttributedCapture, request: TableRequest) -> Table:
    """Return a table with a column per requested metric of Nsight Compute."""
    from bridge.analyze.tables import metrics as columns  # most tables do not need it

    columns.metric_dimensions(request.by, inclusive=request.inclusive)
    result = _checked(attributed, request)
    counted = attributed.only(request.direction)
    return columns.add_metric_columns(
        counted, result, by=request.by, names=request.metrics, kernel_names=request.kernel_names
    )


def _checked(attributed: AttributedCapture, request: TableRequest) -> Table:
    """Return a table, with the checks and the columns for reports without a timeline."""
    capture, by = attributed.capture, request.by
    no_timeline.check_table(capture, by)
    _check_samples(attributed, request)
    return no_timeline.drop_unmeasured(capture, _table(attributed, request), request.columns)


def _check_samples(attributed: AttributedCapture, request: TableRequest) -> None:
    """Raise ValueError if columns of samples are requested that the report does not have."""
    if request.asks_for_counters and not len(attributed.capture.gpu_metrics):
        raise ValueError(NO_COUNTERS)
    if request.asks_for_energy:
        from bridge.analyze.cost.counters import has_energy

        if not has_energy(attributed):
            raise ValueError(NO_ENERGY)


def _table(attributed: AttributedCapture, request: TableRequest) -> Table:
    """Return a table without the checks for reports without a timeline."""
    by = request.by
    if by not in VIEWS:
        return arranged(request, making(attributed, request))
    if request.direction != BOTH and by not in DIRECTED:
        raise ValueError(f"no direction for view {by!r}: only for {', '.join(DIRECTED)}")
    if columns_are_chosen(by):
        return arranged(request, making(attributed, request))
    view = VIEWS[by]
    result = rows_function(view)(attributed.only(request.direction), **_taken(view, request))
    if view.sorted_by:
        result = ordered(result, view.sorted_by)
    return _with_columns(result, request)


def rows_function(view: View) -> Callable[..., Table]:
    """Return the function that computes the rows of a table; a built-in one is imported."""
    if not isinstance(view.rows, str):
        return view.rows
    function: Callable[..., Table] = resolve_name(f"bridge.analyze.{view.rows}")
    return function


def _taken(view: View, request: TableRequest) -> dict[str, Any]:
    """Return what the function of a table takes of a request."""
    return {name: getattr(request, name) for name in view.takes}


def _with_columns(table: Table, request: TableRequest) -> Table:
    """Return a table with fixed columns: those that name its rows, then the requested ones."""
    view, every = VIEWS[request.by], list(table.columns)
    for word in request.columns:
        name = column_named(word, view.recorded_by)
        if name and name not in every:
            raise ValueError(
                f"no column {name} in this report; record it with nsys profile {view.recorded_by[name]}"
            )
    names = list(takewhile(lambda c: c in IDS or not table.is_numeric(c), every))
    not_default = {column.name for column in view.columns.columns if not column.default}
    default = [c for c in every if c not in not_default]
    columns = chosen(request.columns, default, every, view.columns.sets)
    columns += request.besides(every, columns)
    return table[[*names, *(c for c in columns if c not in names)]]


def making(attributed: AttributedCapture, request: TableRequest) -> MakeRows:
    """Return the function that computes the rows of a table with the given columns."""
    counted = attributed.only(request.direction)
    if request.by not in VIEWS:
        dimensions, names = dimensions_of(request.by), request.kernel_names
        return lambda columns: breakdown(
            counted, dimensions, columns=columns, kernel_names=names, costs=request.costs
        )
    view = VIEWS[request.by]
    function, taken = rows_function(view), _taken(view, request)
    return lambda columns: function(counted, columns=columns, **taken)


def arranged(request: TableRequest, make: MakeRows) -> Table:
    """Return a sorted table with selectable columns: the names of rows, then the figures."""
    labels, figures = labels_of(request.by), request.figures
    result = make(request.computed)
    names = [c for c in result.columns if c in labels]
    return ordered(result, sorting_columns(request.by), names)[[*names, *figures]]


# -- The order of rows, and running sums


def ordered(
    table: Table,
    columns: Sequence[str],
    names: Sequence[str] = (),
    *,
    ascending: bool = False,
) -> Table:
    """Return a table sorted by columns, largest first unless ``ascending``.

    Ties are broken by ``names`` in their order, then by all other columns of text.
    """
    texts = [c for c in table.columns if not table.is_numeric(c) and c not in names]
    tie_breakers = [
        c for c in (*names, *texts, "start_ns") if c in table.columns and c not in columns
    ]
    directions = [ascending] * len(columns) + [True] * len(tie_breakers)
    return table.sort_values([*columns, *tie_breakers], ascending=directions)


def sorted_by(by: str, table: Table) -> str:
    """Return the column that a table is sorted by; its last column if the table lacks that one."""
    return next((c for c in sorting_columns(by) if c in table.columns), str(table.columns[-1]))


def with_running_sum(table: Table, column: str) -> Table:
    """Return a table with the running sum of a column. Raises ValueError for a column of names."""
    if not table.is_numeric(column):
        raise ValueError(f"no running sum of {column}: the column holds names")
    place = list(table.columns).index(column) + 1
    name = f"running_{column}"
    following = (*table.columns, "")[place]
    return table.inserted(name, table[column].cumsum(), before=following)
