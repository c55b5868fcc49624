"""What rows of memory are called: the op, the kind of memory, the process, the step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.groups import texts
from bridge.analyze.memory.held import Held
from bridge.join.order import NONE, Ints
from importers import frames

NO_OP = "(no op)"
BEFORE = "(before the capture)"
PID_BITS = 24
NAMES = NDArray[np.object_]


def ops(held: Held, rows: Ints) -> NAMES:
    """Return the op that called for each event, `NO_OP` for none."""
    return texts([*held.joined.ops, NO_OP])[op_of(held, rows)]


def op_of(held: Held, rows: Ints) -> Ints:
    """Return the code of that op, NONE for none."""
    found: Ints = np.append(held.joined.node_op, NONE)[held.events.node[rows]]
    return found


def places(held: Held, group: Ints) -> dict[str, Ints | NAMES]:
    """Return the columns that tell groups apart: pid, device, memory, and the report if there are several."""
    table, row = held.joined.report.memory, held.events.row[held.events.groups[group]]
    found: dict[str, Ints | NAMES] = {
        "pid": frames.ints(table, "process")[row] >> PID_BITS & 0xFFFFFF,
        "device": frames.ints(table, "device")[row],
        "memory": kinds(held, group),
    }
    if len(held.joined.report.source) > 1:
        found["report"] = frames.ints(table, "report")[row]
    return found


def kinds(held: Held, group: Ints) -> NAMES:
    """Return the kind of memory of each group, as device, pinned, managed."""
    names: NAMES = texts(frames.MEMORY_KINDS)[kind_of(held, group)]
    return names


def kind_of(held: Held, group: Ints) -> Ints:
    """Return the place of each group's kind in `frames.MEMORY_KINDS`."""
    table, row = held.joined.report.memory, held.events.row[held.events.groups[group]]
    return frames.codes(table["kind"])[row]


def steps(held: Held, rows: Ints) -> Ints:
    """Return the number of each event's step, NONE outside of all."""
    numbers: Ints = np.append(held.joined.iterations.number, NONE)[held.events.step[rows]]
    return numbers


def since_start(held: Held, rows: Ints) -> Ints:
    """Return when each event was, in ns since the first event of the report."""
    return held.events.time[rows] - held.joined.report.began
