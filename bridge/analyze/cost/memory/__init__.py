"""Analyse memory: allocations and releases per op, usage over time, and what was never released."""

from __future__ import annotations

import numpy as np

from bridge.analyze.core.groups import texts
from bridge.analyze.core.table import Table
from bridge.analyze.cost.memory.categories import by_category
from bridge.analyze.cost.memory.groups import alive_at_peak, summary
from bridge.analyze.cost.memory.ops import by_allocation, by_op, by_scope, by_step
from bridge.analyze.cost.memory.usage import MemoryUsage

__all__ = [
    "MemoryUsage",
    "alive_at_peak",
    "by_allocation",
    "by_category",
    "by_event",
    "by_op",
    "by_scope",
    "by_step",
    "summary",
]


# -- The trace


EVENTS = ("allocate", "release", "held before", "reserve")


def by_event(usage: MemoryUsage) -> Table:
    """Return one row per selected event, in order of time, numbered among all events from 0."""
    events, table = usage.events, usage.attributed.capture.memory
    rows = np.flatnonzero(usage.counted)
    return Table(
        {
            "trace": rows,
            "time_ns": usage.since_start(rows),
            **usage.places(usage.group[rows]),
            "event": texts(EVENTS)[table.operation[events.row[rows]]],
            "op": usage.op_names(rows),
            "step": usage.steps(rows),
            "bytes": usage.size[rows],
            "address": table.address[events.row[rows]],
            "used_bytes": usage.used[rows],
            "reserved_bytes": usage.reserved[rows],
        }
    )
