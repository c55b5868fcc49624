"""The trace: a row per allocation and release, and where what is reserved changed without one, with what was held after it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bridge.analyze.groups import texts
from bridge.analyze.memory import said
from bridge.analyze.memory.held import Held
from importers import frames

EVENTS = ("allocate", "release", "held before", "reserve")


def by_event(held: Held) -> pd.DataFrame:
    """Return one row per event of the time looked at, in order of time, numbered among all from 0."""
    events, table = held.events, held.joined.report.memory
    rows = np.flatnonzero(held.counted)
    return pd.DataFrame(
        {
            "trace": rows,
            "time_ns": said.since_start(held, rows),
            **said.places(held, held.group[rows]),
            "event": texts(EVENTS)[frames.ints(table, "operation")[events.row[rows]]],
            "op": said.ops(held, rows),
            "step": said.steps(held, rows),
            "bytes": held.size[rows],
            "address": frames.ints(table, "address")[events.row[rows]],
            "used_bytes": held.used[rows],
            "reserved_bytes": held.reserved[rows],
        }
    )
