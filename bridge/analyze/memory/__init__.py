"""What of the memory each op allocated and released, what was held when, and what was never released."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bridge.analyze.groups import texts
from bridge.analyze.memory.categories import by_category
from bridge.analyze.memory.groups import alive_at_peak, summary
from bridge.analyze.memory.ops import by_allocation, by_op, by_scope, by_step
from bridge.analyze.memory.usage import Held
from importers import frames

__all__ = [
    "Held", "alive_at_peak", "by_allocation", "by_category", "by_event", "by_op", "by_scope", "by_step", "summary",
]  # fmt: skip


# -- The trace: a row per allocation and release, and where what is reserved changed without one, with what was held after it


EVENTS = ("allocate", "release", "held before", "reserve")


def by_event(held: Held) -> pd.DataFrame:
    """Return one row per event of the time looked at, in order of time, numbered among all from 0."""
    events, table = held.events, held.joined.report.memory
    rows = np.flatnonzero(held.counted)
    return pd.DataFrame(
        {
            "trace": rows,
            "time_ns": held.since_start(rows),
            **held.places(held.group[rows]),
            "event": texts(EVENTS)[frames.ints(table, "operation")[events.row[rows]]],
            "op": held.op_names(rows),
            "step": held.steps(rows),
            "bytes": held.size[rows],
            "address": frames.ints(table, "address")[events.row[rows]],
            "used_bytes": held.used[rows],
            "reserved_bytes": held.reserved[rows],
        }
    )
