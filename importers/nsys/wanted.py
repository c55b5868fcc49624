"""What annotations of an export are, and which of them matter to every window of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from importers.nsys import schema
from importers.nsys.table import FLAG
from importers.texts import Ints

FOREVER = np.iinfo(np.int64).max

Flags = NDArray[np.bool_]
Instants = tuple[Ints, Ints]  # (thread, time), sorted by both


def in_order(thread: Ints, time: Ints) -> Instants:
    """Sort instants."""
    order = np.lexsort((time, thread))
    return thread[order], time[order]


@dataclass(frozen=True)
class Wanted:
    """Of annotations: which are ranges, which of them phases, which are marks, and which every window has."""

    ranges: Flags
    phases: Flags
    marks: Flags
    always: Flags


def wanted(instants: Instants, columns: Mapping[str, Ints]) -> Wanted:
    """Tell what annotations are; ``end`` is FOREVER for none."""
    types = columns["type"] & (FLAG - 1)
    phases, marks = np.isin(types, schema.START_END), np.isin(types, schema.MARK)
    stacked = np.isin(types, schema.PUSH_POP)
    declared = np.isin(types, (schema.DOMAIN_NAME, schema.CATEGORY_NAME))
    holding = stacked & _holds(instants, columns)
    return Wanted(stacked | phases, phases, marks, phases | declared | holding)


def _holds(instants: Instants, columns: Mapping[str, Ints]) -> Flags:
    """Tell which ranges were open at any of some (thread, time), sorted by both."""
    holds = np.zeros(len(columns["start"]), bool)
    if not len(instants[0]):
        return holds
    for thread in np.unique(columns["thread"]).tolist():  # a turn per thread
        a, b = np.searchsorted(instants[0], (thread, thread + 1))
        rows, times = np.flatnonzero(columns["thread"] == thread), instants[1][a:b]
        first = np.searchsorted(times, columns["start"][rows], side="left")
        holds[rows] = np.append(times, FOREVER)[first] < columns["end"][rows]
    return holds
