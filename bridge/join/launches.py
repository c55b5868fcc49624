"""From an activity to the API call that issued it, by (process, correlation id).

Correlation ids restart in every process: the id alone leads to another process's call.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd

from bridge.join.order import NONE, Ints, by, runs, stable

DENSE = 8  # a table indexed by id may be this many times longer than there are ids


def launch_of(process: Ints, correlation: Ints, of: tuple[Ints, Ints, Ints]) -> Ints:
    """Return the row of each activity's call, or NONE.

    ``of`` holds process, correlation id and start of the calls. Of several calls with one key the
    earliest counts, which is the outermost; ids of 0 and below stand for no call.
    """
    theirs, ids, starts = of
    both, distinct = pd.factorize(np.concatenate((process, theirs)))
    ours, calls = both[: len(process)], both[len(process) :]
    if not len(ids) or not len(correlation):
        return np.full(len(process), NONE)
    low, high = int(ids.min()), int(ids.max())
    if (high - low + 1) * len(distinct) > DENSE * len(ids) + 1_000_000:
        return _by_search(ours, correlation, (calls, ids, starts))
    # Ids are nearly consecutive, so a table of them beats sorting; the earliest call is written last.
    table = np.full((high - low + 1) * len(distinct), NONE)
    latest_first = stable(starts)[::-1]
    known = latest_first[ids[latest_first] > 0]
    table[calls[known] * (high - low + 1) + ids[known] - low] = known
    inside = (correlation > 0) & (correlation >= low) & (correlation <= high)
    place = np.where(inside, ours * (high - low + 1) + correlation - low, 0)
    return np.where(inside, table[place], NONE)


def _by_search(process: Ints, correlation: Ints, of: tuple[Ints, Ints, Ints]) -> Ints:
    """The same by sorting, for ids that lie far apart: one binary search per activity."""
    found = np.full(len(process), NONE)
    order = by(*of)
    edges = runs(of[0][order])
    asked = stable(process)
    ours = runs(process[asked])
    of_process = {int(process[asked[a]]): asked[a:b] for a, b in pairwise(ours)}
    for first, last in pairwise(edges):  # one turn per process
        calls = order[first:last]
        rows = of_process.get(int(of[0][calls[0]]), np.empty(0, np.int64))
        ids = of[1][calls]
        place = np.minimum(np.searchsorted(ids, correlation[rows]), len(ids) - 1)
        hit = (ids[place] == correlation[rows]) & (correlation[rows] > 0)
        found[rows] = np.where(hit, calls[place], NONE)
    return found
