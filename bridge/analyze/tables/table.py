"""One table of a report, as a `TableRequest` describes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import takewhile

import pandas as pd
from pandas.api.types import is_numeric_dtype

from bridge.analyze.columns import column_named
from bridge.analyze.metrics import no_timeline
from bridge.analyze.tables import breakdown
from bridge.analyze.tables.activity_metrics import by_kernel, by_memcpy, by_op_kernel
from bridge.analyze.tables.breakdown import by_op
from bridge.analyze.tables.request import TableRequest, chosen
from bridge.analyze.tables.views import (
    DIRECTED,
    NO_COUNTERS,
    NO_ENERGY,
    OS_COLUMNS,
    ROWS,
    VIEWS,
    columns_are_chosen,
    columns_of,
    dimensions_of,
    labels_of,
    view_of,
)
from bridge.join.attributed import BOTH, AttributedCapture

MakeRows = Callable[[Sequence[str]], pd.DataFrame]
# Columns of numbers that name a row.
IDS = frozenset(["step", "pid", "tid", "process", "thread", "rank"])


def table(attributed: AttributedCapture, request: TableRequest) -> pd.DataFrame:
    """Return a table, sorted by its own columns.

    Raises ValueError with a message for the user if the report cannot have the table or the
    columns.
    """
    if request.metrics:
        return _with_metrics(attributed, request)
    return _checked(attributed, request)


def _with_metrics(attributed: AttributedCapture, request: TableRequest) -> pd.DataFrame:
    """Return a table with a column per requested metric of Nsight Compute."""
    from bridge.analyze.metrics import columns  # most tables do not need it

    columns.metric_dimensions(request.by, inclusive=request.inclusive)
    result = _checked(attributed, request)
    counted = attributed.only(request.direction)
    return columns.add_metric_columns(
        counted, result, request.by, request.metrics, request.kernel_names
    )


def _checked(attributed: AttributedCapture, request: TableRequest) -> pd.DataFrame:
    """Return a table, with the checks and the columns for reports without a timeline."""
    capture, by = attributed.capture, request.by
    no_timeline.check_table(capture, by, by not in VIEWS)
    _check_samples(attributed, request)
    return no_timeline.drop_unmeasured(capture, _table(attributed, request), request.columns)


def _check_samples(attributed: AttributedCapture, request: TableRequest) -> None:
    """Raise ValueError if columns of samples are requested that the report does not have."""
    if request.asks_for_counters and not len(attributed.capture.gpu_metrics):
        raise ValueError(NO_COUNTERS)
    if request.asks_for_energy:
        from bridge.analyze.counters import has_energy

        if not has_energy(attributed):
            raise ValueError(NO_ENERGY)


def _table(attributed: AttributedCapture, request: TableRequest) -> pd.DataFrame:
    """Return a table without the checks for reports without a timeline."""
    by = request.by
    if by not in VIEWS:
        return arranged(request, making(attributed, request))
    if request.direction != BOTH and by not in DIRECTED:
        raise ValueError(f"no direction for view {by!r}: only for {', '.join(DIRECTED)}")
    if columns_are_chosen(by):
        return arranged(request, making(attributed, request))
    result = FIXED[by](attributed.only(request.direction), request)
    if VIEWS[by].sorted_by:
        result = ordered(result, VIEWS[by].sorted_by)
    return _with_columns(result, request)


# -- Tables with fixed columns; each function imports only what its table needs


def _range(attributed: AttributedCapture, request: TableRequest) -> pd.DataFrame:
    from bridge.analyze.tables.ranges import by_range

    return by_range(attributed, with_arguments=request.arguments)


def _module(attributed: AttributedCapture, _request: TableRequest) -> pd.DataFrame:
    from bridge.analyze.tables.modules import by_module

    return by_module(attributed)


def _forward_op(attributed: AttributedCapture, _request: TableRequest) -> pd.DataFrame:
    from bridge.analyze.tables.modules import by_forward_op

    return by_forward_op(attributed)


def _phase(attributed: AttributedCapture, _request: TableRequest) -> pd.DataFrame:
    from bridge.analyze.tables.host import by_phase

    return by_phase(attributed)


def _frame(attributed: AttributedCapture, _request: TableRequest) -> pd.DataFrame:
    from bridge.analyze.frame_rate import by_frame

    return by_frame(attributed)


def _wait(attributed: AttributedCapture, _request: TableRequest) -> pd.DataFrame:
    from bridge.analyze.tables.host import by_wait

    return by_wait(attributed)


def _launch(attributed: AttributedCapture, request: TableRequest) -> pd.DataFrame:
    from bridge.analyze.tables.host import by_launch

    return by_launch(attributed, kernel_names=request.kernel_names)


def _source(attributed: AttributedCapture, _request: TableRequest) -> pd.DataFrame:
    from bridge.analyze.source_lines import by_source

    return by_source(attributed)


def _gap(attributed: AttributedCapture, request: TableRequest) -> pd.DataFrame:
    from bridge.analyze.causes.tables import by_gap

    return by_gap(attributed, *_threshold(request))


def _idle(attributed: AttributedCapture, request: TableRequest) -> pd.DataFrame:
    from bridge.analyze.causes.tables import by_idle

    return by_idle(attributed, *_threshold(request))


def _osrt(attributed: AttributedCapture, _request: TableRequest) -> pd.DataFrame:
    from bridge.analyze.causes.tables import by_osrt

    return by_osrt(attributed)


def _sample(attributed: AttributedCapture, _request: TableRequest) -> pd.DataFrame:
    from bridge.analyze.causes.samples import by_sample

    return by_sample(attributed)


def _recompute(attributed: AttributedCapture, _request: TableRequest) -> pd.DataFrame:
    from bridge.analyze.tables.recomputation import by_recompute

    return by_recompute(attributed)


def _critical(attributed: AttributedCapture, _request: TableRequest) -> pd.DataFrame:
    from bridge.analyze.critical import by_critical

    return by_critical(attributed)


def _threshold(request: TableRequest) -> tuple[int, ...]:
    return () if request.idle_over_ns is None else (request.idle_over_ns,)


def _step(attributed: AttributedCapture, request: TableRequest) -> pd.DataFrame:
    from bridge.analyze.flops import Costs
    from bridge.analyze.steps import by_step

    costs = (request.costs or Costs()) if request.needs_costs else None
    return by_step(attributed, costs=costs)


def _device(attributed: AttributedCapture, _request: TableRequest) -> pd.DataFrame:
    from bridge.analyze.concurrency import by_device

    return by_device(attributed)


def _counter(attributed: AttributedCapture, _request: TableRequest) -> pd.DataFrame:
    from bridge.analyze.counters import by_counter

    return by_counter(attributed)


def _rule(attributed: AttributedCapture, request: TableRequest) -> pd.DataFrame:
    from bridge.analyze.metrics.columns import by_rule

    return by_rule(attributed, kernel_names=request.kernel_names)


def _collective(attributed: AttributedCapture, _request: TableRequest) -> pd.DataFrame:
    from bridge.analyze.concurrency import by_collective

    return by_collective(attributed)


def _skew(attributed: AttributedCapture, _request: TableRequest) -> pd.DataFrame:
    from bridge.analyze.ranks.table import by_skew

    return by_skew(attributed)


FIXED: Mapping[str, Callable[[AttributedCapture, TableRequest], pd.DataFrame]] = {
    "range": _range,
    "module": _module,
    "forward-op": _forward_op,
    "phase": _phase,
    "frame": _frame,
    "wait": _wait,
    "launch": _launch,
    "source": _source,
    "gap": _gap,
    "idle": _idle,
    "osrt": _osrt,
    "sample": _sample,
    "critical": _critical,
    "recompute": _recompute,
    "step": _step,
    "device": _device,
    "counter": _counter,
    "rule": _rule,
    "collective": _collective,
    "skew": _skew,
}


def _with_columns(table: pd.DataFrame, request: TableRequest) -> pd.DataFrame:
    """Return a table with fixed columns: those that name its rows, then the requested ones."""
    described, every = columns_of(request.by), list(table.columns)
    for word in request.columns:
        name = column_named(word, [*OS_COLUMNS]) if request.by in ("idle", "gap") else None
        if name and name not in every:
            raise ValueError(
                f"no column {name} in this report; record it with nsys profile {OS_COLUMNS[name]}"
            )
    names = list(takewhile(lambda c: c in IDS or not is_numeric_dtype(table[c]), every))
    not_default = {column.name for column in described.columns if not column.default}
    default = [c for c in every if c not in not_default]
    columns = chosen(request.columns, default, every, described.sets)
    columns += request.besides(every, columns)
    return table[[*names, *(c for c in columns if c not in names)]]


def making(attributed: AttributedCapture, request: TableRequest) -> MakeRows:
    """Return the function that computes the rows of a table with the given columns."""
    counted, names = attributed.only(request.direction), request.kernel_names
    costs = request.costs
    if request.by not in ROWS:
        dimensions = dimensions_of(request.by)
        return lambda columns: breakdown.breakdown(counted, dimensions, columns, names, costs)
    tables: Mapping[str, Callable[..., pd.DataFrame]] = {
        "op": partial(by_op, costs=costs),
        "op-kernel": partial(by_op_kernel, kernel_names=names, inclusive=request.inclusive),
        "kernel": partial(by_kernel, kernel_names=names),
        "memcpy": partial(by_memcpy, memory_kinds=request.memory_kinds),
    }
    return lambda columns: tables[request.by](counted, columns=columns)


def arranged(request: TableRequest, make: MakeRows) -> pd.DataFrame:
    """Return a sorted table with selectable columns: the names of rows, then the figures."""
    labels, figures = labels_of(request.by), request.figures
    result = make(request.computed)
    names = [c for c in result.columns if c in labels]
    return ordered(result, view_of(request.by).sorted_by, names)[[*names, *figures]]


# -- The order of rows, and running sums


def ordered(
    table: pd.DataFrame,
    columns: Sequence[str],
    names: Sequence[str] = (),
    *,
    ascending: bool = False,
) -> pd.DataFrame:
    """Return a table sorted by columns, largest first unless ``ascending``.

    Ties are broken by ``names`` in their order, then by all other columns of text.
    """
    texts = [c for c in table.columns if not is_numeric_dtype(table[c]) and c not in names]
    tie_breakers = [
        c for c in (*names, *texts, "start_ns") if c in table.columns and c not in columns
    ]
    directions = [ascending] * len(columns) + [True] * len(tie_breakers)
    return table.sort_values(
        [*columns, *tie_breakers], ascending=directions, ignore_index=True, kind="stable"
    )


def sorted_by(by: str, table: pd.DataFrame) -> str:
    """Return the column that a table is sorted by; its last column if the table lacks that one."""
    return next((c for c in view_of(by).sorted_by if c in table.columns), str(table.columns[-1]))


def with_running_sum(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return a table with the running sum of a column. Raises ValueError for a column of names."""
    if not is_numeric_dtype(table[column]):
        raise ValueError(f"no running sum of {column}: the column holds names")
    place = list(table.columns).index(column) + 1
    name = f"running_{column}"
    parts = [table.iloc[:, :place], table[column].cumsum().rename(name), table.iloc[:, place:]]
    result = pd.concat(parts, axis=1)
    result.attrs = table.attrs
    return result
