"""What each op allocated and released, itself and with all under it, and how much more was used while it ran."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bridge.analyze.calltree import stacks
from bridge.analyze.groups import counts, highest, ratio, sums, texts
from bridge.analyze.memory.groups import alive, peaks
from bridge.analyze.memory.usage import BEFORE_CAPTURE, NO_OP, Held
from bridge.join.arrays import NONE, Flags, Ints, by, number, runs
from importers import frames
from importers.frames import MISSING

# -- The greatest value among stretches of a column, many at once


def highest_within(values: Ints, first: Ints, last: Ints) -> Ints:
    """Return the greatest of ``values[first:last]`` of each stretch, none of which is empty.

    Maxima of 1, 2, 4 … neighbours are made in turn; two of one length cover any stretch.
    """
    found = np.empty(len(first), np.int64)
    length = last - first
    level = np.frexp(length)[1] - 1  # the greatest power of two in it
    maxima, width = values, 1
    for power in range(int(level.max(initial=-1)) + 1):
        rows = np.flatnonzero(level == power)
        found[rows] = np.maximum(maxima[first[rows]], maxima[last[rows] - width])
        maxima = np.maximum(maxima[:-width], maxima[width:]) if len(maxima) > width else maxima
        width *= 2
    return found


# -- What was alive at the peak by the path of ops that allocated it: itself, and with everything under it


def by_scope(held: Held) -> pd.DataFrame:
    """Return one row per process, device, kind of memory and path under which anything was alive at the peak.

    ``bytes`` are of what was allocated in the innermost op of the path, ``total_bytes`` also of what was under
    it. What had been allocated before the capture is a row of its own.
    """
    rows, left, rest = alive(held)
    names = [*held.joined.node_path[1], NO_OP, BEFORE_CAPTURE]
    own, under, path = _on_paths(held, rows, len(names) - 2)
    group, size = held.group[rows], held.size[rows]
    keys = (group, own), (group[under], path), (left, np.full(len(left), len(names) - 1))
    pairs = np.concatenate([of * len(names) + code for of, code in keys])
    distinct, place = np.unique(pairs, return_inverse=True)
    self_of, total_of, rest_of = np.split(place, np.cumsum([len(of) for of, _ in keys[:2]]))
    of, code = np.divmod(distinct, len(names))
    many = len(distinct)
    more, unknown = sums(rest_of, rest, many), counts(rest_of, many) > 0
    total = sums(total_of, size[under], many) + more
    whole = np.append(held.used, 0)[peaks(held, held.used)][of]
    table = pd.DataFrame(
        {
            "path": texts(names)[code],
            **held.places(of),
            "count": np.where(unknown, MISSING, counts(self_of, many)),
            "bytes": sums(self_of, size, many) + more,
            "total_count": np.where(unknown, MISSING, counts(total_of, many)),
            "total_bytes": total,
            "share": ratio(total, whole),
        }
    )
    return table.iloc[by(-whole, of, -total, code)].reset_index(drop=True)


def _on_paths(held: Held, rows: Ints, no_op: int) -> tuple[Ints, Ints, Ints]:
    """Return the path of each event, and (place, path) of every path above it, its own included."""
    code, _ = held.joined.node_path
    node = held.events.node[rows]
    at, nodes = stacks(held.joined.attribution.nesting, node)
    bare = np.flatnonzero(node == NONE)
    under = np.concatenate((at, bare))
    path = np.concatenate((code[nodes], np.full(len(bare), no_op)))
    return np.append(code, no_op)[node], under, path


# -- What each step allocated, and what of it outlived the step: a leak grows by the same every step


LATER = 2  # steps


def by_step(held: Held, later: int = LATER) -> pd.DataFrame:
    """Return one row per step, process, device and kind of memory, in their order.

    ``kept_bytes`` is what was allocated in the step and alive at its end, ``later_bytes`` of that what still
    was at the end of the step so many later; -1 where there is none.
    """
    steps, events = held.joined.iterations, held.events
    table, groups = held.joined.report.memory, events.row[events.groups]
    owner = [frames.ints(table, c)[groups] for c in ("report", "process")]
    parts = []
    there = np.unique(
        held.group
    )  # a release may be of another kind than its allocation, which counts
    for group in there.tolist():  # a turn per process, device and kind
        ours = np.flatnonzero(
            (steps.report == owner[0][group]) & (steps.process == owner[1][group])
        )
        ours = ours[np.isin(ours, events.step[held.counted])]
        if len(ours):
            parts.append(_of_group(held, group, ours, later))
    if not parts:
        return pd.DataFrame({"step": np.empty(0, np.int64)})
    return pd.concat(parts, ignore_index=True)


def _of_group(held: Held, group: int, ours: Ints, later: int) -> pd.DataFrame:
    steps, events = held.joined.iterations, held.events
    rows = np.flatnonzero(held.group == group)
    time, level = events.time[rows], held.used[rows]
    place = np.searchsorted(ours, events.step[rows])
    inside = np.append(ours, NONE)[place] == events.step[rows]
    release = events.is_release[rows]
    size, count = held.size[rows], len(ours)
    given, back = inside & held.is_made[rows], inside & release
    allocated, released = (sums(place[f], size[f], count) for f in (given, back))
    first, last = (np.searchsorted(time, c[ours]) for c in (steps.start, steps.end))
    around = np.concatenate((held.base[[group]], level))  # around[n] is held before event n
    ended = _ends(held, rows[given])
    until = steps.end[ours]
    after = np.append(until, MISSING)[np.minimum(np.arange(count) + later, count)]
    kept = ended >= until[place[given]]
    kept_later = (ended >= after[place[given]]) & kept
    end_of = sums(place[given][kept_later], size[given][kept_later], count)
    return pd.DataFrame(
        {
            "step": steps.number[ours],
            **held.places(np.full(count, group)),
            "allocations": counts(place[given], count),
            "releases": counts(place[back], count),
            "allocated_bytes": allocated,
            "released_bytes": released,
            "net_bytes": allocated - released,
            "peak_bytes": highest_within(around, first, last + 1),
            "end_bytes": around[last],
            "kept_bytes": sums(place[given][kept], size[given][kept], count),
            "later_bytes": np.where(after == MISSING, MISSING, end_of),
        }
    )


def _ends(held: Held, rows: Ints) -> Ints:
    """Return when each allocation ended; of what stays, the end of time."""
    pairs = held.pairs
    end = np.where(pairs.partner[rows] != NONE, pairs.partner[rows], pairs.next[rows])
    return np.append(held.events.time, np.iinfo(np.int64).max)[end]


# -- A row per allocation: how large, of which op, from when to when


STATES = RELEASED, ALIVE, BEFORE, TAKEN = (
    "released",
    "alive at the end",
    "before the capture",
    "release not recorded",
)


def lives(held: Held) -> tuple[Ints, Ints, Ints]:
    """Return the events that begin and end each allocation (NONE for none), and its place in `STATES`.

    What was allocated before the capture begins with nothing, or with what tells of it. In order of what
    begins them, those last.
    """
    events, pairs = held.events, held.pairs
    first, before = np.flatnonzero(held.begins), np.flatnonzero(pairs.before)
    end = np.where(pairs.partner[first] != NONE, pairs.partner[first], pairs.next[first])
    state = np.where(end == NONE, STATES.index(ALIVE), STATES.index(RELEASED))
    state = np.where(pairs.next[first] != NONE, STATES.index(TAKEN), state)
    state = np.where(events.is_held[first], STATES.index(BEFORE), state)
    return (
        np.concatenate((first, np.full(len(before), NONE))),
        np.concatenate((end, before)),
        np.concatenate((state, np.full(len(before), STATES.index(BEFORE)))),
    )


def by_allocation(held: Held) -> pd.DataFrame:
    """Return one row per allocation that was made or released in the time looked at, the largest first."""
    first, end, state = lives(held)
    counted = np.append(held.counted, False)
    rows = np.flatnonzero(counted[first] | (counted[end] & (state != STATES.index(TAKEN))))
    first, end, state = first[rows], end[rows], state[rows]
    told = np.where(first == NONE, end, first)  # the event that says where and how large
    table, row = held.joined.report.memory, held.events.row[told]
    start = _times(held, np.where(state == STATES.index(BEFORE), NONE, first))
    stop = _times(held, end)
    unknown = (start == MISSING) | (stop == MISSING)
    found = pd.DataFrame(
        {
            "op": np.where(first == NONE, texts([BEFORE_CAPTURE]), held.op_names(first)),
            **held.places(held.group[told]),
            "bytes": held.size[told],
            "address": frames.ints(table, "address")[row],
            "start_ns": start,
            "end_ns": stop,
            "lifetime_ns": np.where(unknown, MISSING, stop - start),
            "step": np.where(first == NONE, MISSING, held.steps(first)),
            "released_by": np.where(
                (end == NONE) | (state == STATES.index(TAKEN)), texts([""]), held.op_names(end)
            ),
            "state": texts(STATES)[state],
            "name": texts([*table["name"].cat.categories, ""])[frames.codes(table["name"])[row]],
        }
    )
    order = by(-held.size[told], held.events.time[told])
    return found.iloc[order].reset_index(drop=True)


def _times(held: Held, rows: Ints) -> Ints:
    return np.where(
        rows == NONE, MISSING, np.append(held.events.time, 0)[rows] - held.joined.report.began
    )


# -- What each op allocated and released, itself and with all under it, and how much more was used while it ran


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
        _pair(held.op_of(rows), held.kind_of(held.group[rows]), kinds),
        _pair(op, held.kind_of(held.group[row]), kinds),
        _pair(call_op, call_kind, kinds),
    ]
    distinct, code = np.unique(np.concatenate(pairs), return_inverse=True)
    own, total, call = np.split(code.astype(np.int64), np.cumsum([len(p) for p in pairs[:-1]]))
    ops, kind = np.divmod(distinct, kinds)
    groups = len(distinct)
    table = pd.DataFrame(
        {
            "op": texts([NO_OP, *held.joined.ops])[ops],
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
    return joined.op[of], held.kind_of(group), rise
