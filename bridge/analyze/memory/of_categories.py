"""How much of each category was allocated, held at the peak, and at most."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bridge.analyze.groups import counts, ratio, sums, texts
from bridge.analyze.memory import said
from bridge.analyze.memory.categories import CATEGORIES, Categories
from bridge.analyze.memory.held import Held
from bridge.analyze.memory.of_groups import peaks
from bridge.join.order import NONE, Ints


def by_category(held: Held) -> pd.DataFrame:
    """Return one row per process, device, kind of memory and category that is there, in the order of `CATEGORIES`.

    ``at_peak_bytes`` is what the category held when most was used of all; ``peak_bytes`` its own maximum.
    """
    found = Categories(held)
    parts = [_of_group(found, group) for group in range(len(held.events.groups))]
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    there = np.flatnonzero(table["peak_bytes"] + table["allocations"] + table["at_peak_bytes"] > 0)
    return table.iloc[there].reset_index(drop=True)


def levels(found: Categories, group: int) -> tuple[Ints, Ints]:
    """Return the events of a group in order, and what each category held: at first, after each event, at the end.

    At first is what is known to have been allocated before the capture.
    """
    held, many = found.held, len(CATEGORIES)
    rows = np.flatnonzero(held.group == group)
    change = np.zeros((len(rows) + 2, many), np.int64)
    np.add.at(change, (np.arange(1, len(rows) + 1), found.of_event[rows]), held.change[rows])
    taken = held.lost[held.group[held.lost] == group]  # which end where their address is taken
    at = np.searchsorted(rows, held.pairs.next[taken]) + 1
    np.add.at(change, (at, found.of_event[taken]), -held.size[taken])
    before = rows[held.pairs.before[rows] | held.events.is_held[rows]]
    base = sums(found.of_event[before], held.size[before], many)
    base[found.untold] += held.base[group] - base.sum()
    change[0] = base
    return rows, np.cumsum(change, axis=0)


def _of_group(found: Categories, group: int) -> pd.DataFrame:
    held, many = found.held, len(CATEGORIES)
    rows, level = levels(found, group)
    shown = np.concatenate(([held.joined.chosen is None], held.counted[rows], [False]))
    at = int(peaks(held, held.used)[group])
    place = int(np.searchsorted(rows, at)) + 1 if at != NONE else 0
    if shown[0] and held.base[group] >= held.used[at]:
        place = 0
    made = rows[held.is_made[rows] & held.counted[rows]]
    of = found.of_event[made]
    return pd.DataFrame(
        {
            "category": texts(CATEGORIES),
            **said.places(held, np.full(many, group)),
            "allocations": counts(of, many),
            "allocated_bytes": sums(of, held.size[made], many),
            "at_peak_bytes": level[place],
            "share": ratio(level[place], np.full(many, level[place].sum())),
            "peak_bytes": level[shown].max(axis=0, initial=0),
            "end_bytes": level[-1],
        }
    )
