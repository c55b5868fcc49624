"""A row per allocation: how large, of which op, from when to when."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bridge.analyze.groups import texts
from bridge.analyze.memory import said
from bridge.analyze.memory.held import Held
from bridge.join.order import NONE, Ints, by
from importers import frames
from importers.frames import MISSING

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
            "op": np.where(first == NONE, texts([said.BEFORE]), said.ops(held, first)),
            **said.places(held, held.group[told]),
            "bytes": held.size[told],
            "address": frames.ints(table, "address")[row],
            "start_ns": start,
            "end_ns": stop,
            "lifetime_ns": np.where(unknown, MISSING, stop - start),
            "step": np.where(first == NONE, MISSING, said.steps(held, first)),
            "released_by": np.where(
                (end == NONE) | (state == STATES.index(TAKEN)), texts([""]), said.ops(held, end)
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
