"""Where a node of a CUDA graph was captured: the call that made it, or the node it was cloned from.

A replay launches all nodes with one API call; which op a node belongs to was settled when the graph was
captured. Instantiating or cloning a graph makes new nodes that name the node they are copies of.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bridge.join.order import NONE, Ints, stable
from importers.frames import shared

MOST_COPIES = 64  # copies of copies followed; a cycle, which no driver writes, ends there


@dataclass(frozen=True)
class NodeEvents:
    """Creations of graph nodes; ``original`` is the node copied, NONE for one made by a call."""

    report: Ints
    process: Ints
    node: Ints
    original: Ints
    time: Ints


def creation_of(report: Ints, process: Ints, node: Ints, events: NodeEvents) -> Ints:
    """Return the row of the event that first made each activity's node, or NONE.

    Of several creations with one number the earliest counts. Numbers mean something only within
    their process. NONE stands for an activity of no graph, and for a node made before the capture.
    """
    asked, made, copied = shared(
        (report, process, node),
        (events.report, events.process, events.node),
        (events.report, events.process, events.original),
    )
    count = int(max(k.max(initial=NONE) for k in (asked, made, copied))) + 1
    latest_first = stable(events.time)[::-1]
    copies = latest_first[events.original[latest_first] != NONE]
    firsts = latest_first[events.original[latest_first] == NONE]
    original, first = np.full(count + 1, NONE), np.full(count + 1, NONE)
    original[made[copies]] = copied[copies]  # written latest first, so that the earliest stays
    first[made[firsts]] = firsts
    at = np.where(node == NONE, count, asked)  # the last entry is nobody's
    for _ in range(MOST_COPIES):
        further = (first[at] == NONE) & (original[at] != NONE)
        if not further.any():
            break
        at = np.where(further, original[at], at)
    return first[at]
