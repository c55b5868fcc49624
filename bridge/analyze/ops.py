"""The table per op: calls, what ran under it, its time on the GPU and on the CPU."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bridge.analyze.groups import counts, highest, quantiles, ratio, sums, texts
from bridge.analyze.tree import once, stacks, subtree_sums
from bridge.join.attributed import Attributed
from bridge.join.intervals import busy_apart
from bridge.join.order import NONE, Flags, Ints
from importers import frames


def by_op(joined: Attributed) -> pd.DataFrame:
    """Return one row per op.

    ``self`` is of the innermost op only, so selfs add up; ``total`` is of the op and everything
    under it, once per activity however often the op recurs on the stack. Counts of activities are
    selfs. ``busy`` is the union of the total's intervals; mean to max are of a call's total.
    """
    groups = len(joined.ops)
    outer = once(joined.attribution.nesting, joined.node_op, joined.listed)
    tables = (_activities(joined, groups), _gpu(joined, outer), _cpu(joined, outer), _calls(joined))
    table = pd.DataFrame({"op": texts(joined.ops)} | {k: v for t in tables for k, v in t.items()})
    # A range that crosses out of the backward pass is backward; what it launches then is forward.
    there = (table["calls"] > 0) | table["op"].isin(_owners(joined))
    return table.loc[there, list(COLUMNS)].reset_index(drop=True)


COLUMNS = tuple(
    "op calls kernels copies fills graphs gpu_self_ns gpu_total_ns gpu_busy_ns cpu_self_ns"
    " cpu_total_ns gpu_mean_ns gpu_p50_ns gpu_p95_ns gpu_max_ns share".split()
)


def _owners(joined: Attributed) -> list[str]:
    return [joined.ops[op] for op in np.unique(joined.activity_op) if op != NONE]


def _activities(joined: Attributed, groups: int) -> dict[str, Ints]:
    op, activities = joined.activity_op, joined.report.activities
    columns = dict(
        zip(("kernels", "copies", "fills", "graphs"), frames.ACTIVITY_KINDS, strict=True)
    )
    return {
        column: counts(op[(op != NONE) & frames.is_kind(activities, kind)], groups)
        for column, kind in columns.items()
    }


def _gpu(joined: Attributed, outer: Flags) -> dict[str, Ints | np.ndarray]:
    groups, op = len(joined.ops), joined.activity_op
    has = op != NONE
    own = sums(op[has], joined.duration[has], groups)
    nesting = joined.attribution.nesting
    total = sums(joined.node_op[outer], _node_totals(joined)[outer], groups)
    row, node = stacks(nesting, joined.node)
    row, node = row[outer[node]], node[outer[node]]
    activities = joined.report.activities
    report, start, end = (frames.ints(activities, c)[row] for c in ("report", "start", "end"))
    return {
        "gpu_self_ns": own,
        "gpu_total_ns": total,
        "gpu_busy_ns": busy_apart(joined.node_op[node], report, start, end, groups),
        "share": ratio(own, int(joined.duration.sum())),
    }


def _cpu(joined: Attributed, outer: Flags) -> dict[str, Ints]:
    nesting, op = joined.attribution.nesting, joined.node_op
    length = nesting.end - nesting.start
    inner = np.flatnonzero(nesting.parent != NONE)
    inner = inner[
        nesting.stack[inner] == nesting.stack[nesting.parent[inner]]
    ]  # adopted: no time of ours
    own = length.copy()
    np.subtract.at(own, nesting.parent[inner], length[inner])
    groups = len(joined.ops)
    return {
        "cpu_self_ns": sums(op[joined.listed], own[joined.listed], groups),
        "cpu_total_ns": sums(op[outer], length[outer], groups),
    }


def _calls(joined: Attributed) -> dict[str, Ints | np.ndarray]:
    groups, call = len(joined.ops), joined.call
    rows = np.flatnonzero(call != NONE)
    calls = int(call.max(initial=NONE)) + 1
    op = np.zeros(calls, np.int64)
    op[call[rows]] = joined.op[rows]
    of_node = call[joined.attribution.nesting.range]
    total = sums(of_node[joined.listed], _node_totals(joined)[joined.listed], calls)
    p50, p95 = quantiles(op, total, groups, 0.5, 0.95)
    count = counts(op, groups)
    return {
        "calls": count,
        "gpu_mean_ns": ratio(sums(op, total, groups), count),
        "gpu_p50_ns": p50,
        "gpu_p95_ns": p95,
        "gpu_max_ns": highest(op, total, groups, empty=0),
    }


def _node_totals(joined: Attributed) -> Ints:
    node = joined.node
    has = node != NONE
    nesting = joined.attribution.nesting
    return subtree_sums(nesting, sums(node[has], joined.duration[has], len(nesting)))
