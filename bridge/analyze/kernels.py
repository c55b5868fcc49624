"""Tables per kernel, per copy, and per op and kernel."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pandas as pd

from bridge.analyze.breakdown.of_activities import Groups
from bridge.analyze.calltree import once, stacks
from bridge.analyze.groups import texts
from bridge.analyze.names import KERNEL_NAMES, named
from bridge.analyze.views import VIEWS
from bridge.join.attributed import Attributed
from bridge.join.order import NONE, Ints, number
from importers import frames

ENDS = ("source", "target")
MEMORY = texts([*frames.MEMORY_KINDS, ""])  # by code; the last is for -1, not known


def by_kernel(
    joined: Attributed,
    kernel_names: str = "short",
    columns: Collection[str] = VIEWS["kernel"].columns,
) -> pd.DataFrame:
    """Return one row per kernel name; ``share`` is of all kernels' time."""
    rows = _of_kind(joined, frames.KERNEL)
    name, names = named(joined, KERNEL_NAMES[kernel_names], rows)
    is_kernel = frames.is_kind(joined.report.activities, frames.KERNEL)
    whole = int(joined.duration[is_kernel & joined.accounted].sum())
    groups = Groups(joined, len(names), rows, name, whole)
    return pd.DataFrame({"kernel": texts(names), **groups.columns(columns)})


def by_copy(
    joined: Attributed,
    *,
    memory_kinds: bool = False,
    columns: Collection[str] = VIEWS["copy"].columns,
) -> pd.DataFrame:
    """Return one row per kind of copy and for fills; ``gb_per_s`` is 10**9 bytes per second.

    With ``memory_kinds``, one for each pair of memories: ``source`` and ``target`` are pageable, pinned,
    device …, '' where the report does not say. ``share`` is of the time of all activities.
    """
    rows = _of_kind(joined, frames.COPY, frames.FILL)
    name, names = named(joined, "name", rows)
    kinds = {
        end: frames.ints(joined.report.activities, f"{end}_kind")[rows]
        for end in (ENDS if memory_kinds else ())
    }
    group, some = number(name, *kinds.values())
    groups = Groups(joined, len(some), rows, group, joined.whole_ns)
    return pd.DataFrame(
        {
            "operation": texts(names)[name[some]],
            **{end: MEMORY[kind[some]] for end, kind in kinds.items()},
            **groups.columns(columns),
        }
    )


def by_op_kernel(
    joined: Attributed,
    kernel_names: str = "short",
    *,
    inclusive: bool = False,
    columns: Collection[str] = VIEWS["op-kernel"].columns,
) -> pd.DataFrame:
    """Return one row per op and kernel name: of the innermost op, or of every op on the stack.

    ``share`` is of the time of all activities.
    """
    rows = _of_kind(joined, frames.KERNEL)
    rows = rows[joined.node[rows] != NONE]
    op = joined.activity_op[rows]
    if inclusive:
        place, op = _ops_above(joined, rows)
        rows = rows[place]
    name, names = named(joined, KERNEL_NAMES[kernel_names], rows)
    pair, distinct = pd.factorize(op * max(1, len(names)) + name)
    ops, kernels = np.divmod(distinct, max(1, len(names)))
    groups = Groups(joined, len(distinct), rows, pair, joined.whole_ns)
    return pd.DataFrame(
        {
            "op": texts(joined.ops[o] for o in ops.tolist()),
            "kernel": texts(names[k] for k in kernels.tolist()),
            **groups.columns(columns),
        }
    )


def _ops_above(joined: Attributed, rows: Ints) -> tuple[Ints, Ints]:
    """Return (place in rows, op) once for every distinct op on the stack of each row."""
    nesting, op = joined.attribution.nesting, joined.node_op
    place, node = stacks(nesting, joined.node[rows])
    outer = once(nesting, op, joined.around)[node]
    return place[outer], op[node[outer]]


def _of_kind(joined: Attributed, *kinds: str) -> Ints:
    """Return the rows of these kinds that are counted."""
    return np.flatnonzero(frames.is_kind(joined.report.activities, *kinds) & joined.counted)
