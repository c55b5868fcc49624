"""What each op allocated and released, itself and with all under it, and how much more was used while it ran."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bridge.analyze.groups import counts, highest, sums, texts
from bridge.analyze.memory import said
from bridge.analyze.memory.held import Held
from bridge.analyze.memory.peaks import highest_within
from bridge.analyze.tree import stacks
from bridge.join.order import NONE, Flags, Ints, by, number, runs
from importers import frames


def by_op(held: Held) -> pd.DataFrame:
    """Return one row per op and kind of memory, of all processes and devices; the one that allocates most first.

    ``peak_bytes`` is the most by which memory of a process, device and kind rose above what it was when a
    call of the op began, until that call ended.
    """
    rows = np.flatnonzero(held.counted & ~held.events.is_level)
    row, op = _on_stacks(held, rows)
    call_op, call_kind, rise = rises(held, rows)
    kinds = len(frames.MEMORY_KINDS)
    pairs = [
        _pair(said.op_of(held, rows), said.kind_of(held, held.group[rows]), kinds),
        _pair(op, said.kind_of(held, held.group[row]), kinds),
        _pair(call_op, call_kind, kinds),
    ]
    distinct, code = np.unique(np.concatenate(pairs), return_inverse=True)
    own, total, call = np.split(code.astype(np.int64), np.cumsum([len(p) for p in pairs[:-1]]))
    ops, kind = np.divmod(distinct, kinds)
    groups = len(distinct)
    table = pd.DataFrame(
        {
            "op": texts([said.NO_OP, *held.joined.ops])[ops],
            "memory": texts(frames.MEMORY_KINDS)[kind],
            **_sums(held, rows, own, groups),
            "left_bytes": _left(held, rows, own, groups),
            **{f"total_{c}": v for c, v in _sums(held, row, total, groups).items()},
            "largest_bytes": _largest(held, rows, own, groups),
            "peak_bytes": highest(call, rise, groups, empty=0),
        }
    )
    order = np.lexsort((distinct, -table["total_allocated_bytes"], -table["allocated_bytes"]))
    return table.iloc[order].reset_index(drop=True)


def _pair(op: Ints, kind: Ints, kinds: int) -> Ints:
    return (op + 1) * kinds + kind


def _sums(held: Held, rows: Ints, group: Ints, groups: int) -> dict[str, Ints]:
    release, size = held.events.is_release[rows], held.size[rows]
    made = held.is_made[rows]
    allocated = sums(group[made], size[made], groups)
    released = sums(group[release], size[release], groups)
    return {
        "allocations": counts(group[made], groups),
        "releases": counts(group[release], groups),
        "allocated_bytes": allocated,
        "released_bytes": released,
        "net_bytes": allocated - released,
    }


def _left(held: Held, rows: Ints, group: Ints, groups: int) -> Ints:
    """Return what was allocated and is still there at the end of the capture."""
    left = stays(held)[rows]
    return sums(group[left], held.size[rows[left]], groups)


def stays(held: Held) -> Flags:
    """Tell which events allocate what nothing releases."""
    pairs = held.pairs
    found: Flags = held.is_made & (pairs.partner == NONE) & (pairs.next == NONE)
    return found


def _largest(held: Held, rows: Ints, group: Ints, groups: int) -> Ints:
    first = held.is_made[rows]
    return highest(group[first], held.size[rows[first]], groups, empty=0)


def _on_stacks(held: Held, rows: Ints) -> tuple[Ints, Ints]:
    """Return (event, op) for every op above each event, its own included, once each; NONE for none."""
    node = held.events.node[rows]
    at, nodes = stacks(held.joined.attribution.nesting, node)
    op = held.joined.node_op[nodes]
    _, once = number(rows[at], op)
    bare = rows[node == NONE]
    return np.concatenate((rows[at][once], bare)), np.concatenate(
        (op[once], np.full(len(bare), NONE))
    )


def rises(held: Held, rows: Ints) -> tuple[Ints, Ints, Ints]:
    """Return op, kind of memory and rise of every call and group of which one of these events is under the call.

    A rise is the most that the group held while the call was open, on whatever thread, above what it
    held when the call began.
    """
    joined, ranges = held.joined, held.joined.report.ranges
    at, nodes = stacks(joined.attribution.nesting, held.events.node[rows])
    of, group = joined.attribution.nesting.range[nodes], held.group[rows[at]]
    _, once = number(group, of)
    of, group = of[once], group[once]
    start, end = (frames.ints(ranges, c)[of] for c in ("start", "end"))
    rise = np.zeros(len(of), np.int64)
    order = by(held.group, np.arange(len(held.group))) if len(held.group) else held.group
    level = held.used[order]
    edges = runs(group)
    slices = np.searchsorted(
        held.group[order], np.stack((group[edges[:-1]], group[edges[:-1]] + 1))
    )
    for nth, (a, b) in enumerate(slices.T.tolist()):  # a turn per group
        calls = np.arange(edges[nth], edges[nth + 1])
        time = held.events.time[order[a:b]]
        first = a + np.searchsorted(time, start[calls], side="left")
        last = a + np.searchsorted(time, end[calls], side="left")
        calls, first, last = (c[last > first] for c in (calls, first, last))
        before = np.where(first > a, level[first - 1], held.base[group[calls]])
        rise[calls] = np.maximum(highest_within(level, first, last) - before, 0)
    return joined.op[of], said.kind_of(held, group), rise
