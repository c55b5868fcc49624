"""What each step allocated, and what of it outlived the step: a leak grows by the same every step."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bridge.analyze.groups import counts, sums
from bridge.analyze.memory import said
from bridge.analyze.memory.held import Held
from bridge.analyze.memory.peaks import highest_within
from bridge.join.order import NONE, Ints
from importers import frames
from importers.frames import MISSING

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
            **said.places(held, np.full(count, group)),
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
