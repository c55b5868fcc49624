"""Whose process the work on a device is: that of the host which called for it, by the correlation id.

A trace tells of a device, not of a process: one file is one rank, and most have one process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from importers import frames
from importers.frames import MISSING
from importers.kineto.events import Events
from importers.kineto.numbers import integers
from importers.texts import Ints

ON_DEVICE = ("kernels", "copies", "fills", "syncs", "records")


def owners(by: Mapping[str, Events], launches: pd.DataFrame, hosts: Ints) -> dict[str, Ints]:
    """Return the process of each event on a device, by sort; -1 where several may be meant."""
    if len(hosts) == 1:
        return {sort: np.full(len(by[sort]), hosts[0]) for sort in ON_DEVICE}
    callers = _callers(launches)
    found = {sort: callers.get(by[sort].ints("correlation")) for sort in ON_DEVICE}
    homes = _homes([_pids(by[sort]) for sort in ON_DEVICE], list(found.values()))
    return {
        sort: np.where(own == MISSING, homes.get(_pids(by[sort])), own)
        for sort, own in found.items()
    }


class _Known:
    """A value per key, -1 for a key of several values and for others."""

    def __init__(self, keys: Ints, values: Ints) -> None:
        pairs = np.unique(np.stack((keys, values)), axis=1)
        single = np.ones(pairs.shape[1], bool)
        same = pairs[0, 1:] == pairs[0, :-1]
        single[1:] &= ~same
        single[:-1] &= ~same
        self.keys, self.values = pairs[:, single]

    def get(self, keys: Ints) -> Ints:
        if not len(self.keys):
            return np.full(len(keys), MISSING)
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[place] == keys, self.values[place], MISSING)


def _callers(launches: pd.DataFrame) -> _Known:
    ids, process = (frames.ints(launches, c) for c in ("correlation", "process"))
    calls = np.flatnonzero(ids > 0)
    return _Known(ids[calls], process[calls])


def _homes(pids: Sequence[Ints], process: Sequence[Ints]) -> _Known:
    """Return the process that all other work of the same device (a pid in the trace) is of."""
    every, own = np.concatenate(pids), np.concatenate(process)
    known = np.flatnonzero(own != MISSING)
    return _Known(every[known], own[known])


def _pids(events: Events) -> Ints:
    return integers([pid for pid, _ in events.where])
