"""What annotations take of the time of host code: the ranges of modules times what one cost, as the process measured.

A range takes half of that at each of its ends, as much before it as behind it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bridge.analyze.run.causes.host_timeline import count_before
from bridge.analyze.run.critical.host import node_times
from bridge.analyze.run.critical.work import Work
from bridge.importers import frames
from bridge.importers.capture import ANNOTATION_COSTS, Facts
from bridge.importers.frames import CALL_ID, CALL_ID_SHIFT
from bridge.join.arrays import Ints, Rows, number_groups, order_by

MODULE = "module"  # category of the ranges that processes measure
PARTS = 4  # of the cost of a range: two of its begin and two of its end


def annotation_costs(work: Work) -> Ints:
    """Return what each node cost in ns: ranges of modules by nsight-bridge, where it was measured; else 0."""
    attributed = work.attributed
    nesting, ranges = attributed.attribution.nesting, attributed.capture.ranges
    result = np.zeros(len(nesting), np.int64)
    facts = attributed.capture.facts
    if not any(one.metadata.get(ANNOTATION_COSTS) for one in facts):
        return result
    report, process = ranges.report[nesting.range], ranges.process[nesting.range]
    group, first = number_groups(report, process)
    pids = zip(report[first].tolist(), frames.pid(process[first]).tolist(), strict=True)
    of_process = np.array([_cost_in(facts[number], pid) for number, pid in pids], np.int64)
    payload = ranges.payload[nesting.range]
    measured = ranges.category[nesting.range].among(MODULE)
    measured &= payload >> CALL_ID_SHIFT == CALL_ID
    result[measured] = of_process[group[measured]]
    return result


def _cost_in(facts: Facts, pid: int) -> int:
    costs = facts.metadata.get(ANNOTATION_COSTS)
    cost = costs.get(str(pid)) if isinstance(costs, Mapping) else None
    return cost if type(cost) is int and cost > 0 else 0


def time_of_annotations(work: Work, cost: Ints, stack: Rows, time: Ints, delay: Ints) -> Ints:
    """Return the time in ns that annotations took of some host code: of the ``delay`` before each ``time`` on a stack.

    ``cost`` is that of each node.
    """
    nodes = np.flatnonzero(cost)
    stacks = np.tile(work.attributed.attribution.nesting.stack[nodes], 2)
    times = np.concatenate([edge[nodes] for edge in node_times(work)])
    order = order_by(stacks, times)
    spent = np.append(0, np.cumsum(np.tile(cost[nodes], 2)[order]))
    edges, threads = (stacks[order], times[order]), stack.astype(np.int64)
    first, last = (
        count_before(edges, threads, time - delay, "left"),
        count_before(edges, threads, time, "right"),
    )
    result: Ints = np.minimum((spent[last] - spent[first]) // PARTS, delay)
    return result
