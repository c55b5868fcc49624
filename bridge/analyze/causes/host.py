"""What the threads of the host were in, as a timeline: coarse, to part idle time, or to name what kept them."""

from __future__ import annotations

import numpy as np

from bridge.analyze.causes.calls import IN_COMPILER, IN_LOADER, IN_OP, WAITS, ends, kinds
from bridge.analyze.causes.places import Cover
from bridge.analyze.causes.timeline import Timeline
from bridge.analyze.roles import compiles, loads_data
from bridge.join.attributed import Attributed
from bridge.join.intervals import unions
from bridge.join.order import NONE, Ints
from importers import frames

WORKING, WAITING = 1, 2  # of the coarse timeline: on the way to a launch, or kept from it
KEEPING = (*WAITS, IN_COMPILER, IN_LOADER)


def coarse(joined: Attributed) -> Timeline:
    """Tell only whether a thread worked towards a launch, was kept from it, or had nothing open."""
    nesting = joined.attribution.nesting
    stack, start, end, kind = _nodes(joined)
    outermost = (nesting.parent == NONE) | (nesting.stack[nesting.parent] != nesting.stack)
    needed = outermost | (kind != IN_OP)
    nodes = tuple(c[needed] for c in (stack, start, end, kind))
    stack, start, end, kind = (
        np.concatenate(pair) for pair in zip(nodes, _calls(joined), strict=True)
    )
    keeping = np.isin(kind, KEEPING)
    working = unions(stack, start, end)
    waiting = unions(*(c[keeping] for c in (stack, start, end)))
    meaning = np.repeat([WORKING, WAITING], [len(working[0]), len(waiting[0])])
    stack, start, end = (np.concatenate(pair) for pair in zip(working, waiting, strict=True))
    return Timeline.of(stack, start, end, meaning)


def fine(joined: Attributed, windows: Cover) -> Timeline:
    """Tell what a thread was in (see `calls`) within some windows; every op begins and ends a piece."""
    rows = []
    for columns in (_nodes(joined), _calls(joined)):
        within = windows.meets(*columns[:3])
        rows.append(tuple(c[within] for c in columns))
    return Timeline.of(*(np.concatenate(pair) for pair in zip(*rows, strict=True)))


def _nodes(joined: Attributed) -> tuple[Ints, Ints, Ints, Ints]:
    """Return stack, start, end and kind of each range that is an op."""
    nesting = joined.attribution.nesting
    op = joined.node_op
    kind = np.where(
        loads_data(joined)[op], IN_LOADER, np.where(compiles(joined)[op], IN_COMPILER, IN_OP)
    )
    return nesting.stack, nesting.start, nesting.end, kind


def _calls(joined: Attributed) -> tuple[Ints, Ints, Ints, Ints]:
    """Return stack, start, end and kind of each API call."""
    start = frames.ints(joined.report.launches, "start")
    return joined.attribution.stack, start, ends(joined), kinds(joined)
