"""Tables per kernel, per copy, and per op and kernel."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bridge.analyze.groups import Floats, counts, highest, lowest, quantiles, ratio, sums, texts
from bridge.analyze.tree import once, stacks
from bridge.join.attributed import Attributed
from bridge.join.order import NONE, Ints, number
from importers import frames

KERNEL_NAMES = {"short": "name", "demangled": "full_name", "mangled": "mangled"}
ENDS = ("source", "target")
MEMORY = texts([*frames.MEMORY_KINDS, ""])  # by code; the last is for -1, not known


def by_kernel(joined: Attributed, kernel_names: str = "short") -> pd.DataFrame:
    """Return one row per kernel name; ``share`` is of all kernels' time."""
    rows = _of_kind(joined, frames.KERNEL)
    name, names = _names(joined, KERNEL_NAMES[kernel_names], rows)
    time, groups = joined.duration[rows], len(names)
    whole = joined.duration[frames.is_kind(joined.report.activities, frames.KERNEL)].sum()
    table = {"kernel": texts(names), **times(name, time, groups, median=True)}
    return pd.DataFrame(table | {"share": ratio(sums(name, time, groups), int(whole))})


def by_copy(joined: Attributed, *, memory_kinds: bool = False) -> pd.DataFrame:
    """Return one row per kind of copy and for fills; ``gb_per_s`` is 10**9 bytes per second.

    With ``memory_kinds``, one for each pair of memories: ``source`` and ``target`` are pageable, pinned,
    device …, '' where the report does not say.
    """
    rows = _of_kind(joined, frames.COPY, frames.FILL)
    activities = joined.report.activities
    name, names = _names(joined, "name", rows)
    kinds = (
        {end: frames.ints(activities, f"{end}_kind")[rows] for end in ENDS} if memory_kinds else {}
    )
    group, some = number(name, *kinds.values())
    time, groups = joined.duration[rows], len(some)
    moved = sums(group, np.maximum(frames.ints(activities, "bytes")[rows], 0), groups)
    return pd.DataFrame(
        {
            "operation": texts(names)[name[some]],
            **{end: MEMORY[kind[some]] for end, kind in kinds.items()},
            **times(group, time, groups),
            "bytes": moved,
            "gb_per_s": ratio(moved, sums(group, time, groups)),
        }
    )


def by_op_kernel(
    joined: Attributed, kernel_names: str = "short", *, inclusive: bool = False
) -> pd.DataFrame:
    """Return one row per op and kernel name: of the innermost op, or of every op on the stack."""
    rows = _of_kind(joined, frames.KERNEL)
    rows = rows[joined.node[rows] != NONE]
    op = joined.activity_op[rows]
    if inclusive:
        place, op = _ops_above(joined, rows)
        rows = rows[place]
    name, names = _names(joined, KERNEL_NAMES[kernel_names], rows)
    pair, distinct = pd.factorize(op * max(1, len(names)) + name)
    ops, kernels = np.divmod(distinct, max(1, len(names)))
    table = {
        "op": texts(joined.ops[o] for o in ops.tolist()),
        "kernel": texts(names[k] for k in kernels.tolist()),
        **times(pair, joined.duration[rows], len(distinct)),
    }
    return pd.DataFrame(table)


def _ops_above(joined: Attributed, rows: Ints) -> tuple[Ints, Ints]:
    """Return (place in rows, op) once for every distinct op on the stack of each row."""
    nesting, op = joined.attribution.nesting, joined.node_op
    place, node = stacks(nesting, joined.node[rows])
    outer = once(nesting, op, joined.listed)[node]
    return place[outer], op[node[outer]]


def _of_kind(joined: Attributed, *kinds: str) -> Ints:
    """Return the rows of these kinds that are counted."""
    return np.flatnonzero(frames.is_kind(joined.report.activities, *kinds) & joined.counted)


def _names(joined: Attributed, column: str, rows: Ints) -> tuple[Ints, list[str]]:
    """Return a code per row and the names in use."""
    named = joined.report.activities[column]
    codes, used = pd.factorize(frames.codes(named)[rows])
    categories = named.cat.categories
    return codes.astype(np.int64), [categories[c] for c in used.tolist()]


def times(
    group: Ints, time: Ints, groups: int, *, median: bool = False
) -> dict[str, Ints | Floats]:
    """Return count, total, mean, least and greatest time of each group, in ns."""
    count, total = counts(group, groups), sums(group, time, groups)
    table: dict[str, Ints | Floats] = {
        "count": count,
        "total_ns": total,
        "mean_ns": ratio(total, count),
    }
    if median:
        (table["median_ns"],) = quantiles(group, time, groups, 0.5)
    low, high = lowest(group, time, groups), highest(group, time, groups)
    return table | {"min_ns": low, "max_ns": high}
