"""The tables per range and per call."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.core import call_details
from bridge.analyze.core.call_details import input_dtypes, input_shapes, output_shapes
from bridge.analyze.core.groups import texts
from bridge.analyze.core.table import Table
from bridge.analyze.tables.range_columns import Groups, first_slices
from bridge.analyze.tables.work_under import WorkUnder
from bridge.importers.arrays import lookup
from bridge.join.arrays import NONE, Ints
from bridge.join.attributed import AttributedCapture

# -- The table per range


def by_range(attributed: AttributedCapture, *, arguments: bool = False) -> Table:
    """Return one row per range that is an op; ``arguments`` adds the columns of `call_details.arguments`.

    ``gpu_start_ns`` and ``gpu_span_ns`` are the first start of its activities on the GPU, and the
    time from there to their last end; ``gpu_busy_ns`` is the union of their intervals. Without
    activities: -1, 0 and 0.
    """
    ranges, nesting = attributed.capture.ranges, attributed.hierarchy
    groups = len(ranges)
    none = np.empty(0, np.int64)
    under = WorkUnder(attributed, nesting.range, groups, (none, none))
    first, last = under.extremes()
    rows = np.flatnonzero(attributed.listed_ranges)
    table = Table(
        {
            "name": texts(attributed.ops)[attributed.op[rows]],
            "path": range_paths(attributed)[rows],
            "start_ns": ranges.start[rows],
            "duration_ns": np.maximum(ranges.end - ranges.start, 0)[rows],
            "thread": ranges.thread[rows],
            "gpu_start_ns": first[rows],
            "gpu_span_ns": (last - first)[rows],
            "gpu_busy_ns": under.busy()[rows],
            "activities": under.counts()[rows],
        }
    )
    if not arguments:
        return table
    return table.assign(**dict(call_details.arguments(attributed, table.columns).items()))


def range_paths(attributed: AttributedCapture) -> NDArray[np.object_]:
    """Return the path of each range; for a range cut in pieces, that of its first piece."""
    code, distinct = attributed.node_path
    path_code = lookup(code, attributed.attribution.nesting.first_nodes(len(attributed.op)))
    paths: NDArray[np.object_] = texts([*distinct, ""])[path_code]
    no_length = (path_code == NONE) & (
        attributed.op != NONE
    )  # a range of no length is never open: its path is its name
    paths[no_length] = texts(attributed.ops)[attributed.op[no_length]]
    return paths


# -- The table per call


TIMES = ("gpu_self_ns", "cpu_self_ns", "queue_ns")
COSTS = ("flops", "bytes")  # keys of recorded details


def by_call(attributed: AttributedCapture) -> Table:
    """Return one row per call of an op, in the order of their first ranges.

    Columns: op, path, start_ns (on the host), gpu_self_ns, cpu_self_ns, queue_ns (how long its work
    waited after it was launched), shape, output_shape, dtype ('' if unknown), flops, bytes (-1 if
    unknown).
    """
    nesting, call, firsts = (
        attributed.attribution.nesting,
        attributed.call,
        first_slices(attributed),
    )
    of_node = call[nesting.range]
    groups = Groups(
        attributed=attributed,
        count=len(firsts),
        of_range=call,
        of_node=of_node,
        of_activity=lookup(of_node, attributed.node),
    )
    return Table(
        {
            "op": texts(attributed.ops)[attributed.op[firsts]],
            "path": range_paths(attributed)[firsts],
            "start_ns": attributed.capture.ranges.start[firsts],
            **groups.columns(TIMES),
            "shape": _values(input_shapes(attributed), firsts),
            "output_shape": _values(output_shapes(attributed), firsts),
            "dtype": _values(input_dtypes(attributed), firsts),
            **_costs(attributed, firsts),
        }
    )


def _values(coded: tuple[Ints, list[str]], rows: Ints) -> np.ndarray:
    code, names = coded
    return texts(names)[code[rows]]


def _costs(attributed: AttributedCapture, firsts: Ints) -> dict[str, Ints]:
    """Return the recorded FLOPs and bytes of each call, -1 if unknown."""
    argument_columns = call_details.arguments(attributed)
    listed_row = np.cumsum(attributed.listed_ranges) - 1
    return {name: _integers(argument_columns, name, listed_row[firsts]) for name in COSTS}


def _integers(table: Table, name: str, rows: Ints) -> Ints:
    """Return some rows of a column; all are -1 if it is missing or holds no integers."""
    if name not in table or table[name].dtype != np.int64:
        return np.full(len(rows), NONE)
    return table[name][rows]
