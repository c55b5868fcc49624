"""What ops reach against what they compute and move: of calls whose FLOPs and bytes are known, and whose work ran."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from bridge.analyze.groups import Floats, counts, sums
from bridge.analyze.overview.names import Names
from bridge.analyze.tree import subtree_sums
from bridge.join.attributed import Attributed
from bridge.join.order import NONE, Flags, Ints
from importers import frames

KEYS = ("flops", "bytes")
MOST = 1 << 62


def roofline(joined: Attributed, names: Names) -> dict[str, Any] | None:
    """Return a row per op: FLOPs, bytes and time on the GPU (ns) of the calls that tell both and ran.

    ``calls`` are those counted, ``left`` the op's other calls. A call's time is of all work under it, as its FLOPs are.
    """
    call, flops, moved = _said(joined)
    time = _times(joined)[call]
    counted = (flops > 0) & (moved > 0) & (time > 0)
    if not counted.any():
        return None
    op_of_call = _ops(joined)
    size = len(joined.ops)
    op = op_of_call[call[counted]]
    calls, known = counts(op_of_call, size), counts(op, size)
    columns = [_floats(op, column[counted], size) for column in (flops, moved)]
    spent = sums(op, time[counted], size)
    rows = np.flatnonzero(known)
    rows = rows[np.argsort(-spent[rows], kind="stable")]
    return {
        "op": names.of(joined.ops[row] for row in rows.tolist()),
        "flops": columns[0][rows].tolist(),
        "bytes": columns[1][rows].tolist(),
        "gpu_ns": spent[rows].tolist(),
        "calls": known[rows].tolist(),
        "left": (calls - known)[rows].tolist(),
    }


def _said(joined: Attributed) -> tuple[Ints, Ints, Ints]:
    """Return the calls that say what they compute, once each, with their FLOPs and bytes (0 if unknown)."""
    column = joined.report.ranges["json"]
    told = [_numbers(text) for text in column.cat.categories]
    table = np.array([*told, (0, 0)], np.int64)[frames.codes(column)]
    rows = np.flatnonzero((table[:, 0] > 0) & (joined.call != NONE))
    call, first = np.unique(joined.call[rows], return_index=True)
    return call, table[rows[first], 0], table[rows[first], 1]


def _numbers(text: str) -> tuple[int, int]:
    """Return FLOPs and bytes that a JSON text tells, 0 for none."""
    if '"flops"' not in text:
        return 0, 0
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return 0, 0
    found = [said.get(key) if isinstance(said, dict) else None for key in KEYS]
    flops, moved = (int(n) if isinstance(n, int | float) and 0 < n < MOST else 0 for n in found)
    return flops, moved


def _times(joined: Attributed) -> Ints:
    """Return the time on the GPU of each call, with everything under it."""
    node, nesting = joined.attribution.node, joined.attribution.nesting
    has: Flags = node != NONE
    total = subtree_sums(nesting, sums(node[has], joined.duration[has], len(nesting)))
    call = joined.call[nesting.range]
    is_call = call != NONE
    return sums(call[is_call], total[is_call], int(joined.call.max(initial=NONE)) + 1)


def _ops(joined: Attributed) -> Ints:
    """Return the op of each call."""
    rows = np.flatnonzero(joined.call != NONE)
    op = np.full(int(joined.call.max(initial=NONE)) + 1, NONE)
    op[joined.call[rows]] = joined.op[rows]
    return op


def _floats(group: Ints, values: Ints, groups: int) -> Floats:
    """Return each group's sum: FLOPs of a long run are beyond 64 bits."""
    total = np.zeros(groups)
    np.add.at(total, group, values)
    return total
