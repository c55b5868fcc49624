"""What happened on the devices, as columns: a row per entry of the traces, those of a device in its order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from importers.errors import NotAReport
from importers.frames import MISSING
from importers.kineto.numbers import LATEST, integers
from importers.texts import Ints

ACTIONS = (
    "alloc free_requested free_completed segment_alloc segment_free segment_map segment_unmap oom snapshot"
).split()
ALLOC, REQUESTED, FREED, GROWN, SHRUNK, MAPPED, UNMAPPED, OOM, _ = range(len(ACTIONS))
MOST = 50_000_000  # entries
NS = 1_000  # in a µs, which times are in; and between entries without any


@dataclass(frozen=True)
class Events:
    """Entries of the traces; ``time`` in ns, no two of a device alike; ``action`` a place in `ACTIONS`.

    ``frames`` are the lists of frames as they are there; ``timed`` tells whether times were recorded, and
    ``broken`` how many entries make no sense.
    """

    device: Ints
    time: Ints
    action: Ints
    address: Ints
    bytes: Ints
    free: Ints
    frames: list[Any]
    timed: bool = True
    broken: int = 0

    @classmethod
    def of(cls, name: str, traces: Sequence[Any]) -> Events:
        """Read the traces, one per device."""
        lists = [trace if isinstance(trace, list) else [] for trace in traces]
        if sum(map(len, lists)) > MOST:
            raise NotAReport(f"{name}: over {MOST} entries; record fewer of them (max_entries)")
        entries = [entry if type(entry) is dict else {} for entry in chain.from_iterable(lists)]
        device = np.repeat(np.arange(len(lists)), [len(one) for one in lists])
        action = _actions([entry.get("action") for entry in entries])
        address, size, free, micros = (
            integers([entry.get(key) for entry in entries])
            for key in ("addr", "size", "device_free", "time_us")
        )
        timed = bool((micros[action != MISSING] != MISSING).all()) and len(micros) > 0
        whole = (action != MISSING) & ((address >= 0) | (action == OOM)) & (size >= 0)
        whole &= (micros >= 0) & (micros < LATEST // NS) if timed else True
        rows = np.flatnonzero(whole)
        time = _times(device[rows], micros[rows] * NS if timed else np.arange(len(rows)) * NS)
        stacks = [entries[row].get("frames") for row in rows.tolist()]
        return cls(
            device=device[rows],
            time=time,
            action=action[rows],
            address=address[rows],
            bytes=size[rows],
            free=free[rows],
            frames=stacks,
            timed=timed,
            broken=len(entries) - len(rows),
        )

    def __len__(self) -> int:
        return len(self.time)

    def take(self, rows: Ints | NDArray[np.bool_]) -> Events:
        """Return some of them, without their frames."""
        names = ("device", "time", "action", "address", "bytes", "free")
        return replace(self, frames=[], **{name: getattr(self, name)[rows] for name in names})


def _actions(said: Sequence[Any]) -> Ints:
    place: dict[Any, int] = {name: code for code, name in enumerate(ACTIONS)}
    return np.array([place.get(s, MISSING) if type(s) is str else MISSING for s in said], np.int64)


def _times(device: Ints, time: Ints) -> Ints:
    """Move entries of one time, or of a clock that went back, by a nanosecond each, so that their order is that of time."""
    found = time.copy()
    for one in np.unique(device).tolist():  # a turn per device
        rows = np.flatnonzero(device == one)
        place = np.arange(len(rows))
        found[rows] = np.maximum.accumulate(time[rows] - place) + place
    return found
