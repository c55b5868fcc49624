"""Make tables of memory per op, path, step and allocation."""

from __future__ import annotations

import numpy as np

from bridge.analyze.core.calltree import stacks
from bridge.analyze.core.groups import counts, highest, ratio, sums, texts
from bridge.analyze.core.table import Table
from bridge.analyze.cost.memory.groups import alive_events, peak_events
from bridge.analyze.cost.memory.usage import BEFORE_CAPTURE, NO_OP, MemoryUsage
from bridge.importers import frames
from bridge.importers.arrays import MISSING, lookup
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by, run_edges

# -- Maxima of intervals


def range_maxima(values: Ints, first: Ints, last: Ints) -> Ints:
    """Return the maximum of ``values[first:last]`` for each interval, none of which is empty.

    Maxima over 1, 2, 4 … neighbours are computed in turn; two of them cover any interval.
    """
    result = np.empty(len(first), np.int64)
    length = last - first
    level = np.frexp(length)[1] - 1  # logarithm of the largest power of two that fits
    maxima, width = values, 1
    for power in range(int(level.max(initial=-1)) + 1):
        rows = np.flatnonzero(level == power)
        result[rows] = np.maximum(maxima[first[rows]], maxima[last[rows] - width])
        maxima = np.maximum(maxima[:-width], maxima[width:]) if len(maxima) > width else maxima
        width *= 2
    return result


# -- Memory at the peak by path


def by_scope(usage: MemoryUsage) -> Table:
    """Return one row per process, device, kind and path with anything alive at the peak.

    ``bytes`` were allocated in the innermost op of the path, ``total_bytes`` also under it. What
    was allocated before the capture has a row of its own.
    """
    alive, earlier, earlier_bytes = alive_events(usage)
    names = [*usage.attributed.node_path[1], NO_OP, BEFORE_CAPTURE]
    before_capture = np.full(len(earlier), len(names) - 1)
    own_path, under, path = _path_rows(usage, alive, len(names) - 2)
    group, size = usage.group[alive], usage.size[alive]
    # The row of each allocation in its own path, of each in all paths around it, and of what is older.
    groups = np.concatenate((group, group[under], earlier))
    paths = np.concatenate((own_path, path, before_capture))
    every, first = number_groups(groups, paths)
    own, total, older = np.split(every, np.cumsum([len(group), len(under)]))
    rows, group_of_row = len(first), groups[first]
    older_bytes = sums(older, earlier_bytes, rows)
    is_older = counts(older, rows) > 0  # their number is not known
    total_bytes = sums(total, size[under], rows) + older_bytes
    peak_bytes = lookup(usage.used, peak_events(usage, usage.used), 0)[group_of_row]
    table = Table(
        {
            "path": texts(names)[paths[first]],
            **usage.places(group_of_row),
            "count": np.where(is_older, MISSING, counts(own, rows)),
            "bytes": sums(own, size, rows) + older_bytes,
            "total_count": np.where(is_older, MISSING, counts(total, rows)),
            "total_bytes": total_bytes,
            "share": ratio(total_bytes, peak_bytes),
        }
    )
    return table[order_by(-peak_bytes, group_of_row, -total_bytes, paths[first])]


def _path_rows(usage: MemoryUsage, rows: Ints, no_op: int) -> tuple[Ints, Ints, Ints]:
    """Return the path of each event, and (event, path) for the path and all paths above it."""
    code, _ = usage.attributed.node_path
    node = usage.events.node[rows]
    rows_of_nodes, nodes = stacks(usage.attributed.attribution.nesting, node)
    without_op = np.flatnonzero(node == NONE)
    under = np.concatenate((rows_of_nodes, without_op))
    path = np.concatenate((code[nodes], np.full(len(without_op), no_op)))
    return np.append(code, no_op)[node], under, path


# -- Memory by step; a leak grows by the same amount in every step


DEFAULT_LATER = 2  # steps until the later check


def by_step(usage: MemoryUsage, later: int = DEFAULT_LATER) -> Table:
    """Return one row per step, process, device and kind of memory, in this order.

    ``kept_bytes`` were allocated in the step and alive at its end, ``later_bytes`` are those still
    alive at the end of the step ``later`` steps on; -1 if there is no such step.
    """
    steps, events = usage.attributed.iterations, usage.events
    table, groups = usage.attributed.capture.memory, events.row[events.groups]
    owner = [table.report[groups], table.process[groups]]
    parts = []
    rows = np.unique(usage.group)  # the kind of an allocation counts, not that of its release
    for group in rows.tolist():  # one iteration per process, device and kind
        steps_of_group = np.flatnonzero(
            (steps.report == owner[0][group]) & (steps.process == owner[1][group])
        )
        steps_of_group = steps_of_group[np.isin(steps_of_group, events.step[usage.counted])]
        if len(steps_of_group):
            parts.append(_steps_of_group(usage, group, steps_of_group, later))
    if not parts:
        return Table({"step": np.empty(0, np.int64)})
    return Table.concat(parts)


def _steps_of_group(usage: MemoryUsage, group: int, steps_of_group: Ints, later: int) -> Table:
    """Return the rows of one process, device and kind of memory: a row per step of ``steps_of_group``."""
    steps, events, count = usage.attributed.iterations, usage.events, len(steps_of_group)
    rows = np.flatnonzero(usage.group == group)
    step = np.searchsorted(steps_of_group, events.step[rows])
    in_step = lookup(steps_of_group, step) == events.step[rows]
    is_made, is_released = in_step & usage.is_made[rows], in_step & events.is_release[rows]
    made, made_in, made_size = rows[is_made], step[is_made], usage.size[rows[is_made]]
    released_in, released_size = step[is_released], usage.size[rows[is_released]]
    allocated = sums(made_in, made_size, count)
    released = sums(released_in, released_size, count)
    # What lives at the end of its step, and of the step ``later`` steps on.
    released_at, end = _end_times(usage, made), steps.end[steps_of_group]
    later_end = lookup(end, np.minimum(np.arange(count) + later, count))
    is_kept = released_at >= end[made_in]
    is_kept_later = is_kept & (released_at >= later_end[made_in])
    kept, kept_later = (
        sums(made_in[mask], made_size[mask], count) for mask in (is_kept, is_kept_later)
    )
    # ``level[n]`` is what is in use before event n.
    level = np.concatenate((usage.base[[group]], usage.used[rows]))
    first, last = (
        np.searchsorted(events.time[rows], times[steps_of_group])
        for times in (steps.start, steps.end)
    )
    return Table(
        {
            "step": steps.number[steps_of_group],
            **usage.places(np.full(count, group)),
            "allocations": counts(made_in, count),
            "releases": counts(released_in, count),
            "allocated_bytes": allocated,
            "released_bytes": released,
            "net_bytes": allocated - released,
            "peak_bytes": range_maxima(level, first, last + 1),
            "end_bytes": level[last],
            "kept_bytes": kept,
            "later_bytes": np.where(later_end == MISSING, MISSING, kept_later),
        }
    )


def _end_times(usage: MemoryUsage, rows: Ints) -> Ints:
    """Return the end of each allocation; the maximum of int64 if it was not released."""
    pairs = usage.pairs
    end = np.where(pairs.partner[rows] != NONE, pairs.partner[rows], pairs.next[rows])
    return np.append(usage.events.time, np.iinfo(np.int64).max)[end]


# -- Allocations


STATES = RELEASED, ALIVE, BEFORE_START, NOT_RECORDED = (
    "released",
    "alive at the end",
    "before the capture",
    "release not recorded",
)


def lifetimes(usage: MemoryUsage) -> tuple[Ints, Ints, Ints]:
    """Return the first and last event of each allocation (NONE for none), and its state.

    The state is a position in `STATES`. What was allocated before the capture begins with no event,
    or with one that reports it; allocations without a first event come last.
    """
    events, pairs = usage.events, usage.pairs
    first, earlier_releases = np.flatnonzero(usage.begins), np.flatnonzero(pairs.before)
    end = np.where(pairs.partner[first] != NONE, pairs.partner[first], pairs.next[first])
    state = np.where(end == NONE, STATES.index(ALIVE), STATES.index(RELEASED))
    state = np.where(pairs.next[first] != NONE, STATES.index(NOT_RECORDED), state)
    state = np.where(events.is_held[first], STATES.index(BEFORE_START), state)
    return (
        np.concatenate((first, np.full(len(earlier_releases), NONE))),
        np.concatenate((end, earlier_releases)),
        np.concatenate((state, np.full(len(earlier_releases), STATES.index(BEFORE_START)))),
    )


def by_allocation(usage: MemoryUsage) -> Table:
    """Return one row per allocation made or released in the selected time, largest first."""
    first, end, state = lifetimes(usage)
    counted = np.append(usage.counted, False)
    rows = np.flatnonzero(counted[first] | (counted[end] & (state != STATES.index(NOT_RECORDED))))
    first, end, state = first[rows], end[rows], state[rows]
    described = np.where(first == NONE, end, first)  # the event with place and size
    table, row = usage.attributed.capture.memory, usage.events.row[described]
    start = _times(usage, np.where(state == STATES.index(BEFORE_START), NONE, first))
    stop = _times(usage, end)
    unknown = (start == MISSING) | (stop == MISSING)
    result = Table(
        {
            "op": np.where(first == NONE, texts([BEFORE_CAPTURE]), usage.op_names(first)),
            **usage.places(usage.group[described]),
            "bytes": usage.size[described],
            "address": table.address[row],
            "start_ns": start,
            "end_ns": stop,
            "lifetime_ns": np.where(unknown, MISSING, stop - start),
            "step": np.where(first == NONE, MISSING, usage.steps(first)),
            "released_by": np.where(
                (end == NONE) | (state == STATES.index(NOT_RECORDED)),
                texts([""]),
                usage.op_names(end),
            ),
            "state": texts(STATES)[state],
            "name": texts([*table.name.texts, ""])[table.name.codes[row]],
        }
    )
    order = order_by(-usage.size[described], usage.events.time[described])
    return result[order]


def _times(usage: MemoryUsage, rows: Ints) -> Ints:
    return np.where(
        rows == NONE,
        MISSING,
        lookup(usage.events.time, rows, 0) - usage.attributed.capture.began,
    )


# -- Memory by op


def by_op(usage: MemoryUsage) -> Table:
    """Return one row per op and kind of memory, over all processes and devices.

    The op that allocates most comes first. ``peak_bytes`` is the maximum rise of the memory of a
    process, device and kind during a call of the op above its level at the start of the call;
    ``workspace_bytes`` that of `call_workspaces`.
    """
    rows = np.flatnonzero(usage.counted & ~usage.events.is_level)
    row, op = _op_rows(usage, rows)
    call_op, call_kind, rise = call_rises(usage, rows)
    own_op, own_kind, workspace = call_workspaces(usage, rows)
    kinds = len(frames.MEMORY_KINDS)
    pairs = [
        _pair(usage.op_of(rows), usage.kind_of(usage.group[rows]), kinds),
        _pair(op, usage.kind_of(usage.group[row]), kinds),
        _pair(call_op, call_kind, kinds),
        _pair(own_op, own_kind, kinds),
    ]
    distinct, code = np.unique(np.concatenate(pairs), return_inverse=True)
    own_row, total_row, call_row, workspace_row = np.split(
        code.astype(np.int64), np.cumsum([len(p) for p in pairs[:-1]])
    )
    ops, kind = np.divmod(distinct, kinds)
    groups = len(distinct)
    table = Table(
        {
            "op": texts([NO_OP, *usage.attributed.ops])[ops],
            "memory": texts(frames.MEMORY_KINDS)[kind],
            **_allocation_columns(usage, rows, own_row, groups),
            "left_bytes": _left_bytes(usage, rows, own_row, groups),
            **{
                f"total_{c}": v
                for c, v in _allocation_columns(usage, row, total_row, groups).items()
            },
            "largest_bytes": _largest_allocations(usage, rows, own_row, groups),
            "peak_bytes": highest(call_row, rise, groups, empty=0),
            "workspace_bytes": highest(workspace_row, workspace, groups, empty=0),
        }
    )
    order = np.lexsort((distinct, -table["total_allocated_bytes"], -table["allocated_bytes"]))
    return table[order]


def _pair(op: Ints, kind: Ints, kinds: int) -> Ints:
    return (op + 1) * kinds + kind


def _allocation_columns(
    usage: MemoryUsage, rows: Ints, group: Ints, groups: int
) -> dict[str, Ints]:
    release, size = usage.events.is_release[rows], usage.size[rows]
    is_made = usage.is_made[rows]
    allocated = sums(group[is_made], size[is_made], groups)
    released = sums(group[release], size[release], groups)
    return {
        "allocations": counts(group[is_made], groups),
        "releases": counts(group[release], groups),
        "allocated_bytes": allocated,
        "released_bytes": released,
        "net_bytes": allocated - released,
    }


def _left_bytes(usage: MemoryUsage, rows: Ints, group: Ints, groups: int) -> Ints:
    """Return the bytes that were allocated and are still alive at the end of the capture."""
    is_left = is_never_released(usage)[rows]
    return sums(group[is_left], usage.size[rows[is_left]], groups)


def is_never_released(usage: MemoryUsage) -> Flags:
    """Return whether each event is an allocation that is never released."""
    pairs = usage.pairs
    result: Flags = usage.is_made & (pairs.partner == NONE) & (pairs.next == NONE)
    return result


def _largest_allocations(usage: MemoryUsage, rows: Ints, group: Ints, groups: int) -> Ints:
    first = usage.is_made[rows]
    return highest(group[first], usage.size[rows[first]], groups, empty=0)


def _op_rows(usage: MemoryUsage, rows: Ints) -> tuple[Ints, Ints]:
    """Return (event, op) for each distinct op on the stack of each event; NONE for no op."""
    node = usage.events.node[rows]
    rows_of_nodes, nodes = stacks(usage.attributed.attribution.nesting, node)
    op = usage.attributed.node_op[nodes]
    _, first = number_groups(rows[rows_of_nodes], op)
    without_op = rows[node == NONE]
    return np.concatenate((rows[rows_of_nodes][first], without_op)), np.concatenate(
        (op[first], np.full(len(without_op), NONE))
    )


def call_rises(usage: MemoryUsage, rows: Ints) -> tuple[Ints, Ints, Ints]:
    """Return op, kind of memory and rise for each call and group with one of these events.

    The rise is the maximum of the group's memory while the call was open, on any thread, above its
    level at the start of the call.
    """
    attributed, ranges = usage.attributed, usage.attributed.capture.ranges
    rows_of_nodes, nodes = stacks(attributed.attribution.nesting, usage.events.node[rows])
    range_row, group = attributed.attribution.nesting.range[nodes], usage.group[rows[rows_of_nodes]]
    _, first_rows = number_groups(group, range_row)
    range_row, group = range_row[first_rows], group[first_rows]
    start, end = ranges.start[range_row], ranges.end[range_row]
    rise = np.zeros(len(range_row), np.int64)
    order = order_by(usage.group, np.arange(len(usage.group))) if len(usage.group) else usage.group
    level = usage.used[order]
    edges = run_edges(group)
    slices = np.searchsorted(
        usage.group[order], np.stack((group[edges[:-1]], group[edges[:-1]] + 1))
    )
    for number, (a, b) in enumerate(slices.T.tolist()):  # one iteration per group
        calls = np.arange(edges[number], edges[number + 1])
        time = usage.events.time[order[a:b]]
        first = a + np.searchsorted(time, start[calls], side="left")
        last = a + np.searchsorted(time, end[calls], side="left")
        calls, first, last = (c[last > first] for c in (calls, first, last))
        start_level = np.where(first > a, level[first - 1], usage.base[group[calls]])
        rise[calls] = np.maximum(range_maxima(level, first, last) - start_level, 0)
    return attributed.op[range_row], usage.kind_of(group), rise


def call_workspaces(usage: MemoryUsage, rows: Ints) -> tuple[Ints, Ints, Ints]:
    """Return op, kind of memory and workspace for each call and group with temporary allocations.

    An allocation is temporary to a call if it was made in it, on its thread, and released before it
    ended. The workspace is the maximum of their sum at a time.
    """
    attributed, ranges = usage.attributed, usage.attributed.capture.ranges
    made = rows[usage.is_made[rows] & (usage.pairs.partner[rows] != NONE)]
    place, nodes = stacks(attributed.attribution.nesting, usage.events.node[made])
    made, range_row = made[place], attributed.attribution.nesting.range[nodes]
    released = usage.pairs.partner[made]
    is_temporary = usage.events.time[released] < ranges.end[range_row]
    made, released, range_row = (c[is_temporary] for c in (made, released, range_row))
    call, first = number_groups(usage.group[made], range_row)
    size = usage.size[made]
    # Each call releases what it allocates, so that one running sum serves all calls.
    change, event = np.concatenate((size, -size)), np.concatenate((made, released))
    order = order_by(np.tile(call, 2), usage.events.time[event], event)
    workspace = highest(np.tile(call, 2)[order], np.cumsum(change[order]), len(first), empty=0)
    return attributed.op[range_row[first]], usage.kind_of(usage.group[made[first]]), workspace
