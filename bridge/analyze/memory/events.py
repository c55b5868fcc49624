"""The allocations and releases of a report in order of time, each with the op that called for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from bridge.join.attributed import KEY, Attributed
from bridge.join.order import NONE, Flags, Ints, number, stable
from importers import frames
from importers.frames import shared


@dataclass(frozen=True)
class Events:
    """Columns of the frame `memory`, in order of time, ties as recorded.

    ``key`` numbers addresses (of a report, process and device), ``group`` where memory is: ``groups`` holds
    a row of these columns for each (report, process, device, kind). ``node`` is the innermost range that
    was open, ``step`` the step of `Attributed.iterations`; NONE for none. What ``is_held`` was allocated
    before the capture and is told of at its beginning; ``is_level`` tells only what is reserved.
    """

    row: Ints
    time: Ints
    is_release: Flags
    is_held: Flags
    is_level: Flags
    bytes: Ints
    key: Ints
    group: Ints
    groups: Ints
    node: Ints
    step: Ints

    @classmethod
    def of(cls, joined: Attributed) -> Events:
        """Take them from a report."""
        table = joined.report.memory
        time = frames.ints(table, "time")
        row = stable(time) if len(time) else np.empty(0, np.int64)
        report, process, device, address = (
            frames.ints(table, c)[row] for c in ("report", "process", "device", "address")
        )
        operation = frames.ints(table, "operation")[row]
        is_level = operation == frames.RESERVED
        apart = np.where(is_level, np.arange(len(row)), NONE)  # nothing ends them
        key, _ = number(report, process, device, address, apart)
        group, groups = number(report, process, device, frames.codes(table["kind"])[row])
        node, called = _called(joined)
        return cls(
            row=row,
            time=time[row],
            is_release=operation == frames.RELEASE,
            is_held=operation == frames.HELD,
            is_level=is_level,
            bytes=np.maximum(frames.ints(table, "bytes")[row], 0),
            key=key,
            group=group,
            groups=groups,
            node=node[row],
            step=joined.iterations.at(report, process, called[row]),
        )

    def __len__(self) -> int:
        return len(self.row)


def _called(joined: Attributed) -> tuple[Ints, Ints]:
    """Return of each row of `memory` the node that it belongs to, and when it was called for.

    That is the API call with its correlation id; without one, what was open on its thread then.
    """
    table = joined.report.memory
    call = joined.calls_of(*(frames.ints(table, c) for c in KEY))
    time = frames.ints(table, "time")
    node = np.append(joined.launch_node, NONE)[call]
    alone = np.flatnonzero((call == NONE) & (frames.ints(table, "thread") != NONE))
    node[alone] = open_on(joined, table, alone, time[alone])
    began = np.append(frames.ints(joined.report.launches, "start"), NONE)[call]
    return node, np.where(call == NONE, time, began)


def open_on(joined: Attributed, table: pd.DataFrame, rows: Ints, time: Ints) -> Ints:
    """Return the innermost node that was open at a time on the thread of each of these rows of a frame."""
    if not len(rows):
        return rows
    nesting, ranges = joined.attribution.nesting, joined.report.ranges
    ours, theirs = shared(
        [frames.ints(table, c)[rows] for c in ("report", "thread")],
        [frames.ints(ranges, c)[nesting.range] for c in ("report", "thread")],
    )
    stack = np.full(max(int(ours.max(initial=0)), int(theirs.max(initial=0))) + 1, NONE)
    stack[theirs] = nesting.stack
    return nesting.innermost(stack[ours], time)
