"""Summarise memory per process, device and kind, and list what was alive at the peak."""

from __future__ import annotations

import numpy as np

from bridge.analyze.core.groups import counts, highest, ratio, sums, texts
from bridge.analyze.core.table import Table
from bridge.analyze.cost.memory.usage import BEFORE_CAPTURE, NAMES, MemoryUsage
from bridge.importers.arrays import MISSING, lookup, scatter
from bridge.join.arrays import NONE, Ints, number_groups, order_by


def summary(usage: MemoryUsage) -> Table:
    """Return one row per file, process, device and kind of memory, highest peak first."""
    events, groups = usage.events, len(usage.events.groups)
    rows = np.flatnonzero(usage.counted)
    group, release, is_made = usage.group[rows], events.is_release[rows], usage.is_made[rows]
    all_groups = np.arange(groups)
    peak, reserved = peak_events(usage, usage.used), peak_events(usage, usage.reserved)
    peak_bytes = _at(usage.used, peak)
    if usage.attributed.selection is None:
        peak = np.where(usage.base >= peak_bytes, NONE, peak)
        peak_bytes = np.maximum(usage.base, peak_bytes)
    size = usage.size[rows]
    table = Table(
        {
            **usage.places(all_groups),
            "allocations": counts(group[is_made], groups),
            "releases": counts(group[release], groups),
            "allocated_bytes": sums(group[is_made], size[is_made], groups),
            "released_bytes": sums(group[release], size[release], groups),
            "before_bytes": usage.base,
            "end_bytes": _end_bytes(usage),
            "peak_bytes": peak_bytes,
            **_peak_columns(usage, "peak", peak),
            "peak_reserved_bytes": np.where(
                reserved == NONE, MISSING, _at(usage.reserved, reserved)
            ),
            **_peak_columns(usage, "reserved", reserved),
            "fragmentation": fragmentation(usage, reserved),
        }
    )
    present = np.flatnonzero(counts(group, groups) > 0)
    return table[present[order_by(-peak_bytes[present], present)]]


def groups_by_peak(usage: MemoryUsage) -> list[int]:
    """Return the groups in the order of the summary."""
    groups = len(usage.events.groups)
    rows = np.flatnonzero(usage.counted)
    present = np.flatnonzero(counts(usage.group[rows], groups) > 0)
    peak = highest(usage.group[rows], usage.used[rows], groups)
    peak = peak if usage.attributed.selection is not None else np.maximum(peak, usage.base)
    result: list[int] = present[order_by(-peak[present], present)].tolist()
    return result


def peak_events(usage: MemoryUsage, level: Ints) -> Ints:
    """Return the first counted event of each group at its highest level, NONE if unknown."""
    groups = len(usage.events.groups)
    rows = np.flatnonzero(usage.counted & (level != MISSING))
    top = highest(usage.group[rows], level[rows], groups, empty=MISSING)
    top_rows = rows[level[rows] == top[usage.group[rows]]]
    return scatter(top_rows[::-1], usage.group[top_rows][::-1], groups)


def fragmentation(usage: MemoryUsage, at: Ints) -> Ints:
    """Return the share of the reserved bytes that was unused at these events, -1 for no event."""
    reserved, used = _at(usage.reserved, at), _at(usage.used, at)
    share = 1 - ratio(np.minimum(used, reserved), reserved)
    return np.where((at == NONE) | (reserved <= 0), float(MISSING), share)


def alive_events(usage: MemoryUsage) -> tuple[Ints, Ints, Ints]:
    """Return what was alive at the peak of each group.

    These are allocation events, then groups and their bytes that no event accounts for.
    """
    events, pairs = usage.events, usage.pairs
    peak = peak_events(usage, usage.used)
    first = np.flatnonzero(usage.begins)
    peak_of_event = peak[usage.group[first]]
    end = np.where(pairs.partner != NONE, pairs.partner, pairs.next)[first]
    is_present = (first <= peak_of_event) | events.is_held[first]
    rows = first[(peak_of_event != NONE) & is_present & ((end == NONE) | (end > peak_of_event))]
    explained = sums(usage.group[rows], usage.size[rows], len(peak))
    remaining = np.where(peak == NONE, 0, _at(usage.used, peak) - explained)
    unexplained = np.flatnonzero(remaining)
    return rows, unexplained, remaining[unexplained]


def alive_at_peak(usage: MemoryUsage) -> Table:
    """Return one row per process, device, kind and op with what was alive at the peak.

    What was allocated before the capture has a row of its own.
    """
    rows, earlier, earlier_bytes = alive_events(usage)
    op = usage.op_of(rows)
    pair, distinct = number_groups(usage.group[rows], op)
    size = sums(pair, usage.size[rows], len(distinct))
    ops = usage.op_names(rows[distinct])
    group = np.concatenate((usage.group[rows][distinct], earlier))
    whole = _at(usage.used, peak_events(usage, usage.used))[group]
    size = np.concatenate((size, earlier_bytes))
    table = Table(
        {
            **usage.places(group),
            "op": np.concatenate((ops, texts([BEFORE_CAPTURE] * len(earlier)))),
            "count": np.concatenate((counts(pair, len(distinct)), np.full(len(earlier), MISSING))),
            "bytes": size,
            "share": ratio(size, whole),
        }
    )
    return table[order_by(-whole, group, -size)]


def _peak_columns(usage: MemoryUsage, prefix: str, at: Ints) -> dict[str, Ints | NAMES]:
    """Return the time, op and step of peaks; -1 and '' where there is none."""
    rows = np.flatnonzero(at != NONE)
    time, step = np.full(len(at), MISSING), np.full(len(at), MISSING)
    op = texts([""] * len(at))
    time[rows] = usage.since_start(at[rows])
    step[rows], op[rows] = usage.steps(at[rows]), usage.op_names(at[rows])
    return {f"{prefix}_ns": time, f"{prefix}_op": op, f"{prefix}_step": step}


def _end_bytes(usage: MemoryUsage) -> Ints:
    """Return the used bytes of each group at the end of the capture."""
    groups, lost = len(usage.base), usage.lost
    lost_bytes = sums(usage.group[lost], usage.size[lost], groups)
    return usage.base + sums(usage.group, usage.change, groups) - lost_bytes


def _at(level: Ints, rows: Ints) -> Ints:
    return lookup(level, rows, 0)
