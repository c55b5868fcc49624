"""When a thread waits while another thread works for it: PyTorch's autograd engine.

The thread that calls ``backward`` waits until the engine's thread has done its work. Reports do not
record this wait. It is known where the work of the engine counts for a range of the caller, see
`bridge.join.adoption` and `bridge.join.hierarchy`.
"""

from __future__ import annotations

import numpy as np

from bridge.analyze.core.groups import highest, lowest
from bridge.analyze.run.causes.host_timeline import count_before
from bridge.analyze.run.critical.work import Work
from bridge.importers.arrays import lookup, scatter
from bridge.importers.records import record
from bridge.join.arrays import Flags, Ints, number_groups, order_by
from bridge.join.attribution import BY_ADOPTION


@record
class Handovers:
    """From ``start`` to ``end`` the thread ``waiting`` does nothing but wait for ``working``.

    Threads are stacks of the nesting. Rows are sorted by working thread and start.
    """

    waiting: Ints
    working: Ints
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: Ints | Flags) -> Handovers:
        return Handovers(self.waiting[rows], self.working[rows], self.start[rows], self.end[rows])

    @classmethod
    def of(cls, work: Work, start: Ints, end: Ints) -> Handovers:
        """Return the handovers of a capture; ``start`` and ``end`` are those of nodes."""
        pieces = _pieces(work, start, end)
        if not len(pieces):
            return pieces
        time, depth, stack = _boundaries(work, start, end, np.unique(pieces.waiting))
        edges = (stack, time)
        gap = count_before(edges, pieces.waiting, pieces.start, "right")
        is_one = gap == count_before(edges, pieces.waiting, pieces.end, "left")
        is_free = lookup(depth, gap - 1, 0) == 0
        pieces, gap = pieces.take(is_one & is_free), gap[is_one & is_free]
        if not len(pieces):
            return pieces
        group, rows = number_groups(pieces.working, pieces.waiting, gap)
        whole = cls(
            pieces.waiting[rows],
            pieces.working[rows],
            lowest(group, pieces.start, len(rows)),
            highest(group, pieces.end, len(rows)),
        )
        whole = whole.take(whole.end > whole.start)
        return _apart(whole.take(order_by(whole.working, whole.start)))


def _apart(handovers: Handovers) -> Handovers:
    """Return those that begin after all earlier ones of their thread have ended."""
    working, start, end = handovers.working, handovers.start, handovers.end
    is_apart = np.ones(len(handovers), bool)
    is_apart[1:] = (working[1:] != working[:-1]) | (start[1:] > end[:-1])
    return handovers.take(is_apart)


def _pieces(work: Work, start: Ints, end: Ints) -> Handovers:
    """Return the work of threads for another one: outermost ranges, and API calls outside of ranges.

    A thread that works for another one waits for none.
    """
    attributed = work.attributed
    attribution, parent = attributed.attribution, attributed.parent
    nesting = attribution.nesting
    roots = np.flatnonzero(parent != nesting.parent)
    adopted = np.flatnonzero(attribution.rule == BY_ADOPTION)
    calls = np.unique(attribution.launch[adopted])
    node_of_call = scatter(
        attribution.node[adopted], attribution.launch[adopted], len(attribution.stack)
    )
    pieces = Handovers(
        np.concatenate((nesting.stack[parent[roots]], nesting.stack[node_of_call[calls]])),
        np.concatenate((nesting.stack[roots], attribution.stack[calls])),
        np.concatenate((start[roots], work.call_start[calls])),
        np.concatenate((end[roots], work.call_end[calls])),
    )
    return pieces.take(~np.isin(pieces.waiting, pieces.working))


def _boundaries(work: Work, start: Ints, end: Ints, stacks: Ints) -> tuple[Ints, Ints, Ints]:
    """Return when ranges and API calls of some threads begin and end, sorted by thread and time.

    With each time stands how many API calls are open after it, and the thread.
    """
    attribution = work.attributed.attribution
    nodes = np.flatnonzero(np.isin(attribution.nesting.stack, stacks))
    calls = np.flatnonzero(np.isin(attribution.stack, stacks))
    node_stack, call_stack = attribution.nesting.stack[nodes], attribution.stack[calls]
    stack = np.concatenate((node_stack, node_stack, call_stack, call_stack))
    time = np.concatenate((start[nodes], end[nodes], work.call_start[calls], work.call_end[calls]))
    change = np.repeat(np.array([0, 1, -1]), [2 * len(nodes), len(calls), len(calls)])
    order = order_by(stack, time)
    return time[order], np.cumsum(change[order]), stack[order]
