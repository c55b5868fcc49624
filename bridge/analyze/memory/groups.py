"""What was held where: a row per process, device and kind of memory, and what was alive at its peak."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bridge.analyze.groups import counts, highest, ratio, sums, texts
from bridge.analyze.memory.usage import BEFORE_CAPTURE, NAMES, Held
from bridge.join.arrays import NONE, Ints, by, number
from importers.frames import MISSING


def summary(held: Held) -> pd.DataFrame:
    """Return one row per report, process, device and kind of memory, the one with the highest peak first."""
    events, groups = held.events, len(held.events.groups)
    rows = np.flatnonzero(held.counted)
    of, release, made = held.group[rows], events.is_release[rows], held.is_made[rows]
    every = np.arange(groups)
    peak, reserved = peaks(held, held.used), peaks(held, held.reserved)
    peak_bytes = _at(held.used, peak)
    if held.joined.chosen is None:
        peak = np.where(held.base >= peak_bytes, NONE, peak)
        peak_bytes = np.maximum(held.base, peak_bytes)
    size = held.size[rows]
    table = pd.DataFrame(
        {
            **held.places(every),
            "allocations": counts(of[made], groups),
            "releases": counts(of[release], groups),
            "allocated_bytes": sums(of[made], size[made], groups),
            "released_bytes": sums(of[release], size[release], groups),
            "before_bytes": held.base,
            "end_bytes": _last(held),
            "peak_bytes": peak_bytes,
            **_where(held, "peak", peak),
            "peak_reserved_bytes": np.where(
                reserved == NONE, MISSING, _at(held.reserved, reserved)
            ),
            **_where(held, "reserved", reserved),
            "fragmentation": fragmentation(held, reserved),
        }
    )
    there = np.flatnonzero(counts(of, groups) > 0)
    return table.iloc[there[by(-peak_bytes[there], there)]].reset_index(drop=True)


def in_order(held: Held) -> list[int]:
    """Return the groups in the order of the summary."""
    groups = len(held.events.groups)
    rows = np.flatnonzero(held.counted)
    there = np.flatnonzero(counts(held.group[rows], groups) > 0)
    peak = highest(held.group[rows], held.used[rows], groups)
    peak = peak if held.joined.chosen is not None else np.maximum(peak, held.base)
    found: list[int] = there[by(-peak[there], there)].tolist()
    return found


def peaks(held: Held, level: Ints) -> Ints:
    """Return the first event of each group at which a level is highest of those counted; NONE if none is known."""
    groups = len(held.events.groups)
    rows = np.flatnonzero(held.counted & (level != MISSING))
    top = highest(held.group[rows], level[rows], groups, empty=MISSING)
    at = rows[level[rows] == top[held.group[rows]]]
    found = np.full(groups, NONE)
    found[held.group[at][::-1]] = at[::-1]
    return found


def fragmentation(held: Held, at: Ints) -> Ints:
    """Return the share of what was reserved that was not used, at some events; -1 for none."""
    reserved, used = _at(held.reserved, at), _at(held.used, at)
    share = 1 - ratio(np.minimum(used, reserved), reserved)
    return np.where((at == NONE) | (reserved <= 0), float(MISSING), share)


def alive(held: Held) -> tuple[Ints, Ints, Ints]:
    """Return what was alive when most was used: the events that made it, and groups with bytes of which no event tells."""
    events, pairs = held.events, held.pairs
    peak = peaks(held, held.used)
    first = np.flatnonzero(held.begins)
    at = peak[held.group[first]]
    end = np.where(pairs.partner != NONE, pairs.partner, pairs.next)[first]
    there = (first <= at) | events.is_held[first]
    rows = first[(at != NONE) & there & ((end == NONE) | (end > at))]
    known = sums(held.group[rows], held.size[rows], len(peak))
    rest = np.where(peak == NONE, 0, _at(held.used, peak) - known)
    left = np.flatnonzero(rest)
    return rows, left, rest[left]


def alive_at_peak(held: Held) -> pd.DataFrame:
    """Return what was alive when most was used, a row per process, device, kind and op that allocated it.

    What had been allocated before the capture is a row of its own.
    """
    rows, left, rest = alive(held)
    op = held.op_of(rows)
    pair, distinct = number(held.group[rows], op)
    size = sums(pair, held.size[rows], len(distinct))
    ops = held.op_names(rows[distinct])
    group = np.concatenate((held.group[rows][distinct], left))
    table = pd.DataFrame(
        {
            **held.places(group),
            "op": np.concatenate((ops, texts([BEFORE_CAPTURE] * len(left)))),
            "count": np.concatenate((counts(pair, len(distinct)), np.full(len(left), MISSING))),
            "bytes": np.concatenate((size, rest)),
        }
    )
    whole = _at(held.used, peaks(held, held.used))[group]
    table["share"] = ratio(table["bytes"].to_numpy(), whole)
    return table.iloc[by(-whole, group, -table["bytes"].to_numpy())].reset_index(drop=True)


def _where(held: Held, what: str, at: Ints) -> dict[str, Ints | NAMES]:
    """Return when a peak was, in which op and step; of none -1 and nothing."""
    there = np.flatnonzero(at != NONE)
    when, step = np.full(len(at), MISSING), np.full(len(at), MISSING)
    op = texts([""] * len(at))
    when[there] = held.since_start(at[there])
    step[there], op[there] = held.steps(at[there]), held.op_names(at[there])
    return {f"{what}_ns": when, f"{what}_op": op, f"{what}_step": step}


def _last(held: Held) -> Ints:
    """Return what each group holds at the end of the capture."""
    groups, lost = len(held.base), held.lost
    gone = sums(held.group[lost], held.size[lost], groups)
    return held.base + sums(held.group, held.change, groups) - gone


def _at(level: Ints, rows: Ints) -> Ints:
    return np.append(level, 0)[rows]
