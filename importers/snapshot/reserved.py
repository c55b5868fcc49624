"""What the allocator had reserved of each device: what its segments come to at the end, and how they grew and shrank."""

from __future__ import annotations

import numpy as np

from importers.frames import MISSING
from importers.snapshot import events as actions
from importers.snapshot.blocks import Blocks
from importers.snapshot.events import Events
from importers.texts import Ints

GREW = {actions.GROWN: 1, actions.MAPPED: 1, actions.SHRUNK: -1, actions.UNMAPPED: -1}


def first_levels(events: Events, blocks: Blocks) -> dict[int, int]:
    """Return what each device had before the trace: what it has at its end, less what came in between.

    -1 where a snapshot without segments cannot tell.
    """
    grown = _growth(events)
    found = {}
    for device in {*blocks.reserved, *np.unique(events.device).tolist()}:  # a turn per device
        change = grown[events.device == device]
        end, added = blocks.reserved.get(device, 0), int(change.sum())
        told = bool(blocks.reserved) or (bool(change.any()) and added <= 0)
        found[device] = max(0, end - added) if told else MISSING
    return found


def levels(events: Events, first: dict[int, int]) -> Ints:
    """Return what each entry's device had after it, -1 if that is not known."""
    grown, found = _growth(events), np.full(len(events), MISSING)
    for device in np.unique(events.device).tolist():  # a turn per device
        rows = events.device == device
        if first[device] != MISSING:
            found[rows] = first[device] + np.cumsum(grown[rows])
    return found


def alone(events: Events, first: dict[int, int]) -> np.ndarray:
    """Tell which entries change what is reserved without an allocation right after them that shows it."""
    changes = _growth(events)
    shown = np.zeros(len(events), bool)
    shown[:-1] = (events.action[1:] == actions.ALLOC) & (events.device[1:] == events.device[:-1])
    known = np.array([one for one in first if first[one] != MISSING], np.int64)
    found: np.ndarray = (changes != 0) & ~(shown & (changes > 0)) & np.isin(events.device, known)
    return found


def unseen(events: Events, first: dict[int, int], held: Ints) -> list[int]:
    """Return the devices whose level before the trace no row tells: there are none of blocks ``held`` on them."""
    changed = set(events.device[_growth(events) != 0].tolist()) - set(held.tolist())
    return sorted(device for device in changed if first[device] > 0)


def _growth(events: Events) -> Ints:
    sign = np.array([GREW.get(code, 0) for code in range(len(actions.ACTIONS))])
    return np.asarray(sign[events.action] * events.bytes)
