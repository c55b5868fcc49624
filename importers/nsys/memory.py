"""Allocations and releases of an export as the frame `memory`."""

from __future__ import annotations

import numpy as np
import pandas as pd

from importers import frames
from importers.columns import Columns, ints_of, texts_of
from importers.frames import MISSING
from importers.nsys.devices import only_process
from importers.nsys.waits import calls
from importers.texts import Ints, unique_names

UNKNOWN = frames.MEMORY_KINDS.index("unknown")


def memory(columns: Columns, launches: pd.DataFrame) -> pd.DataFrame:
    """Return a row per allocation and release; what is neither is left out.

    Some exports give no time (0) to any of them: then it is that of the call.
    """
    ints = {name: ints_of(columns, name) for name in columns if name != "name"}
    rows = np.flatnonzero(np.isin(ints["operation"], frames.OPERATIONS))
    ints = {name: frames.pick(column, rows) for name, column in ints.items()}
    process = only_process(ints["process"], frames.ints(launches, "process"))
    call = calls((process, ints["correlation"]), launches)
    kind = ints["kind"]
    known = np.where((kind >= 0) & (kind < UNKNOWN), kind, UNKNOWN)
    texts = texts_of(columns, "name").take(rows)
    code, distinct = pd.factorize(np.array([*texts.decode(), ""], object))
    own: dict[str, Ints | pd.Categorical] = {
        "time": _times(ints["time"], call, launches),
        "thread": _at(frames.ints(launches, "thread"), call),
        "process": process,
        "kind": frames.names(known, frames.MEMORY_KINDS),
        "name": frames.names(*unique_names(code[:-1].astype(np.int64), list(distinct))),
    }
    return frames.frame("memory", {**ints, **own})


def _times(time: Ints, call: Ints, launches: pd.DataFrame) -> Ints:
    """Return the times; of those without one that of the call."""
    called = _at(frames.ints(launches, "start"), call)
    return np.where((time <= 0) & (called != MISSING), called, time)


def _at(column: Ints, rows: Ints) -> Ints:
    return np.append(column, MISSING)[rows]
