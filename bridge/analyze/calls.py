"""The table of single calls: what each took by itself, on the GPU and on the host, and what it says of its inputs."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bridge.analyze.arguments import arguments
from bridge.analyze.breakdown import said
from bridge.analyze.breakdown.of_ranges import Groups, first_slices
from bridge.analyze.groups import texts
from bridge.analyze.ranges import range_paths
from bridge.join.attributed import Attributed
from bridge.join.order import NONE, Ints
from importers import frames

TIMES = ("gpu_self_ns", "cpu_self_ns", "queue_ns")
COSTS = ("flops", "bytes")  # as recorded details have them


def by_call(joined: Attributed) -> pd.DataFrame:
    """Return one row per call of an op, in the order of their first ranges.

    Columns: op, path, start_ns (on the host), gpu_self_ns, cpu_self_ns, queue_ns (how long its work waited after
    it was launched), shape, output_shape, dtype ('' where nothing is said), flops, bytes (-1 where nothing is said).
    """
    nesting, call, firsts = joined.attribution.nesting, joined.call, first_slices(joined)
    of_node = call[nesting.range]
    groups = Groups(joined, len(firsts), call, of_node, np.append(of_node, NONE)[joined.node])
    return pd.DataFrame(
        {
            "op": texts(joined.ops)[joined.op[firsts]],
            "path": range_paths(joined)[firsts],
            "start_ns": frames.ints(joined.report.ranges, "start")[firsts],
            **groups.columns(TIMES),
            "shape": _named(said.shapes(joined), firsts),
            "output_shape": _named(said.output_shapes(joined), firsts),
            "dtype": _named(said.dtypes(joined), firsts),
            **_costs(joined, firsts),
        }
    )


def _named(coded: tuple[Ints, list[str]], rows: Ints) -> np.ndarray:
    code, names = coded
    return texts(names)[code[rows]]


def _costs(joined: Attributed, firsts: Ints) -> dict[str, Ints]:
    """Return FLOPs and bytes of each call, -1 where its details say none."""
    known = arguments(joined)
    listed = np.cumsum(joined.listed_ranges) - 1
    return {name: _integers(known.get(name), listed[firsts]) for name in COSTS}


def _integers(column: pd.Series | None, rows: Ints) -> Ints:
    """Return the rows of a column of integers, -1 each if there is none."""
    if column is None or column.dtype != np.int64:
        return np.full(len(rows), NONE)
    found: Ints = column.to_numpy()[rows]
    return found
