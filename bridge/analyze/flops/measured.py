"""What the kernels of calls were measured to compute and to move, before what is recorded or computed of the calls.

The invariant: a call has a measured figure only if every kernel under it has one, so that calls around each other
never disagree. Only matches of the very call or of its path count: the same kernel elsewhere has other work to do.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bridge.analyze.flops.asked import Costs
from bridge.analyze.flops.calls import Known
from bridge.analyze.flops.tree import Tree
from bridge.analyze.groups import Floats
from bridge.analyze.metrics.counted import Counted
from bridge.analyze.metrics.measured import SURE
from bridge.join.attributed import Attributed
from bridge.join.order import NONE, Flags, Ints
from bridge.knowledge.formulas.conventions import OURS
from importers import frames

MEASURED = "measured"
SURE_ENOUGH = ("call", "path")


def kernels_of(joined: Attributed) -> Ints:
    """Return the measured kernel that each activity surely is, or NONE."""
    metrics, none = joined.report.metrics, np.full(len(joined.report.activities), NONE)
    if not len(metrics.of):
        return none
    if not len(metrics.sure):
        return metrics.of
    sure = metrics.sure <= max(SURE.index(word) for word in SURE_ENOUGH)
    return np.where(sure, metrics.of, NONE)


def best(joined: Attributed, costs: Costs) -> Known:
    """Return what calls cost: as measured, else as recorded, else by formula; as others count without the first two."""
    known = Known.of(joined, costs.convention, costs.dtype)
    return with_measured(joined, known) if costs.convention == OURS else known


def with_measured(joined: Attributed, known: Known) -> Known:
    """Return what calls cost, as measured where all their kernels were."""
    if not len(joined.report.metrics):
        return known
    counted, kernel = Counted(joined.report.metrics), kernels_of(joined)
    flops, dtype = (np.append(column, none)[kernel] for column, none in (
        (counted.flops, np.nan), (counted.dtype, NONE)
    ))  # fmt: skip
    moved = np.append(counted.bytes_of("DRAM"), np.nan)[kernel]
    total, told = _of_calls(joined, flops)
    size, sized = _of_calls(joined, moved)
    text = len(known.formulas)
    return replace(
        known,
        flops=np.where(told, total, known.flops),
        bytes=np.where(sized, np.rint(size), known.bytes),
        formula=np.where(told, text, known.formula),
        dtype=np.where(told & (total > 0), _most(joined, dtype, flops), known.dtype),
        formulas=[*known.formulas, MEASURED],
    )


def _of_calls(joined: Attributed, of_kernel: Floats) -> tuple[Floats, Flags]:
    """Return per range the sum over all kernels of its call, and whether each of them has a figure."""
    works = frames.is_kind(joined.report.activities, frames.KERNEL, frames.GRAPH)
    there = ~np.isnan(of_kernel)
    kernels = _summed(joined, works.astype(np.float64))
    known = _summed(joined, (works & there).astype(np.float64))
    total = _summed(joined, np.where(works & there, of_kernel, 0.0))
    return total, (kernels > 0) & (kernels == known)


def _summed(joined: Attributed, values: Floats) -> Floats:
    """Sum something of activities over all that is under each range, or any slice of its call."""
    node, nesting = joined.attribution.node, joined.attribution.nesting
    own = np.zeros(len(nesting))
    has = node != NONE
    np.add.at(own, node[has], values[has])
    under = Tree(nesting).handed_up(own, np.zeros(len(nesting), bool))
    call = joined.call[nesting.range]
    of_call = np.zeros(int(joined.call.max(initial=NONE)) + 2)
    listed = call != NONE
    np.add.at(of_call, call[listed], under[listed])
    of_call[NONE] = 0.0
    found: Floats = of_call[joined.call]
    return found


def _most(joined: Attributed, dtype: Ints, flops: Floats) -> Ints:
    """Return per range the dtype in which most is computed under its call."""
    used = np.unique(dtype[dtype != NONE])
    if not len(used):
        return np.full(len(joined.report.ranges), NONE)
    sums = [_summed(joined, np.where(dtype == one, np.nan_to_num(flops), 0.0)) for one in used]
    found: Ints = used[np.argmax(sums, axis=0)]
    return found
