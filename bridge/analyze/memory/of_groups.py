"""What was held where: a row per process, device and kind of memory, and what was alive at its peak."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bridge.analyze.groups import counts, highest, ratio, sums, texts
from bridge.analyze.memory import said
from bridge.analyze.memory.held import Held
from bridge.join.order import NONE, Ints, by, number
from importers.frames import MISSING


def summary(held: Held) -> pd.DataFrame:
    """Return one row per report, process, device and kind of memory, the one with the highest peak first."""
    events, groups = held.events, len(held.events.groups)
    rows = np.flatnonzero(held.counted)
    of, release = held.group[rows], events.is_release[rows]
    every = np.arange(groups)
    peak, reserved = peaks(held, held.used), peaks(held, held.reserved)
    peak_bytes = _at(held.used, peak)
    if held.joined.chosen is None:
        peak = np.where(held.base >= peak_bytes, NONE, peak)
        peak_bytes = np.maximum(held.base, peak_bytes)
    size = held.size[rows]
    table = pd.DataFrame(
        {
            **said.places(held, every),
            "allocations": counts(of[~release], groups),
            "releases": counts(of[release], groups),
            "allocated_bytes": sums(of[~release], size[~release], groups),
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


def alive_at_peak(held: Held) -> pd.DataFrame:
    """Return what was alive when most was used, a row per process, device, kind and op that allocated it.

    What had been allocated before the capture is a row of its own.
    """
    events, pairs = held.events, held.pairs
    peak = peaks(held, held.used)
    first = np.flatnonzero(~events.is_release)
    at = peak[held.group[first]]
    end = np.where(pairs.partner != NONE, pairs.partner, pairs.next)[first]
    rows = first[(at != NONE) & (first <= at) & ((end == NONE) | (end > at))]
    op = said.op_of(held, rows)
    pair, distinct = number(held.group[rows], op)
    size = sums(pair, held.size[rows], len(distinct))
    of, ops = held.group[rows][distinct], said.ops(held, rows[distinct])
    known = sums(of, size, len(peak))
    rest = np.where(peak == NONE, 0, _at(held.used, peak) - known)
    left = np.flatnonzero(rest)
    table = pd.DataFrame(
        {
            **said.places(held, np.concatenate((of, left))),
            "op": np.concatenate((ops, texts([said.BEFORE] * len(left)))),
            "count": np.concatenate((counts(pair, len(distinct)), np.full(len(left), MISSING))),
            "bytes": np.concatenate((size, rest[left])),
        }
    )
    group = np.concatenate((of, left))
    table["share"] = ratio(table["bytes"].to_numpy(), _at(held.used, peak)[group])
    order = by(-_at(held.used, peak)[group], group, -table["bytes"].to_numpy())
    return table.iloc[order].reset_index(drop=True)


def _where(held: Held, what: str, at: Ints) -> dict[str, Ints | said.NAMES]:
    """Return when a peak was, in which op and step; of none -1 and nothing."""
    there = np.flatnonzero(at != NONE)
    when, step = np.full(len(at), MISSING), np.full(len(at), MISSING)
    op = texts([""] * len(at))
    when[there] = said.since_start(held, at[there])
    step[there], op[there] = said.steps(held, at[there]), said.ops(held, at[there])
    return {f"{what}_ns": when, f"{what}_op": op, f"{what}_step": step}


def _last(held: Held) -> Ints:
    """Return what each group holds at the end of the capture."""
    groups, lost = len(held.base), held.lost
    gone = sums(held.group[lost], held.size[lost], groups)
    return held.base + sums(held.group, held.change, groups) - gone


def _at(level: Ints, rows: Ints) -> Ints:
    return np.append(level, 0)[rows]
