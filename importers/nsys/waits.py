"""Synchronisations and event records of an export as the frame `waits`."""

from __future__ import annotations

import numpy as np
import pandas as pd

from importers import frames
from importers.columns import Columns, ints_of
from importers.nsys.devices import ended, only_process
from importers.nsys.names import distinct
from importers.texts import Ints

UNKNOWN, EVENT_RECORD = (frames.WAIT_KINDS.index(kind) for kind in ("unknown", "event_record"))


def waits(read: dict[str, Columns], launches: pd.DataFrame) -> pd.DataFrame:
    """Return synchronisations, then event records, which have the times of their calls."""
    callers = frames.ints(launches, "process")
    parts = [_placed(read[name], callers) for name in ("syncs", "events")]
    found = [_syncs(parts[0]), _events(parts[1], launches)]
    return frames.concat([f for f in found if len(f)] or found[:1])


def _placed(columns: Columns, callers: Ints) -> dict[str, Ints]:
    ints = {name: ints_of(columns, name) for name in columns}
    return ints | {"process": only_process(ints["process"], callers)}


def _syncs(columns: dict[str, Ints]) -> pd.DataFrame:
    kind = columns["kind"]
    known = np.where((kind >= 0) & (kind < EVENT_RECORD), kind, UNKNOWN)
    return _frame(ended(columns), known)


def _events(columns: dict[str, Ints], launches: pd.DataFrame) -> pd.DataFrame:
    row = calls((columns["process"], columns["correlation"]), launches)
    times = {c: np.append(frames.ints(launches, c), frames.MISSING)[row] for c in ("start", "end")}
    return _frame(columns | times, np.full(len(row), EVENT_RECORD))


def _frame(columns: dict[str, Ints], kinds: Ints) -> pd.DataFrame:
    return frames.frame("waits", {**columns, "kind": frames.names(kinds, frames.WAIT_KINDS)})


def calls(keys: tuple[Ints, Ints], launches: pd.DataFrame) -> Ints:
    """Return the row of each key's call, the earliest of several, or -1; ids from 1 on are calls."""
    asked = len(keys[0])
    if not asked:
        return np.empty(0, np.int64)
    rows = np.flatnonzero(np.isin(frames.ints(launches, "correlation"), keys[1]))
    rows = rows[np.argsort(frames.ints(launches, "start")[rows], kind="stable")]
    theirs = (frames.ints(launches, c)[rows] for c in ("process", "correlation"))
    codes, firsts = distinct(tuple(np.concatenate(pair) for pair in zip(keys, theirs, strict=True)))
    first = np.full(len(firsts), len(rows))
    np.minimum.at(first, codes[asked:], np.arange(len(rows)))
    found = np.append(rows, frames.MISSING)[first[codes[:asked]]]
    return np.where(keys[1] > 0, found, frames.MISSING)
