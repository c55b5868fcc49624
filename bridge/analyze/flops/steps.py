"""What each step computes, and how much of what its GPUs could compute in its wall time: model FLOPs utilisation."""

from __future__ import annotations

import numpy as np

from bridge.analyze.calltree import subtree_sums
from bridge.analyze.flops.costs import Costs
from bridge.analyze.flops.throughput import NS, TERA, Limits, Reached
from bridge.analyze.groups import Floats, counts, texts
from bridge.join.arrays import NONE, Ints, number
from bridge.join.attributed import Attributed
from bridge.knowledge.hardware import DTYPES
from importers import frames

Columns = dict[str, np.ndarray]


def of_steps(joined: Attributed, wall_ns: Ints, costs: Costs) -> Columns:
    """Return columns of all steps, in their order: ``flop``, ``uncounted``, ``tflop_per_s``, ``mfu``, ``peak_tflops``, ``peak_dtype``.

    A call counts in the step that it began in. -1 and '' where something is not known.
    """
    steps = joined.iterations
    reached = _each_call(joined, costs)
    node_step = _step_of_nodes(joined)
    own = reached.has(reached.known.flops)
    flop = np.where(reached.tree.outermost(own), reached.values(reached.known.flops), 0.0)
    left = np.where(reached.tree.covered(own), 0, reached.left(own))
    there = node_step != NONE
    total = np.zeros(len(steps))
    np.add.at(total, node_step[there], flop[there])
    known = counts(node_step[there & own], len(steps)) > 0
    uncounted = counts(node_step[there & (left > 0)], len(steps))
    known &= (total > 0) | (uncounted == 0)
    dtype = _most_used(reached, flop) if not costs.dtype else costs.dtype
    peak = _peaks(joined, costs, dtype)
    rate = np.where(known & (wall_ns > 0), total * (NS / TERA) / np.maximum(wall_ns, 1), NONE)
    reckoned = (rate >= 0) & (peak > 0)
    return {
        "flop": np.where(known, total, NONE),
        "mfu": np.divide(rate, peak, out=np.full(len(steps), -1.0), where=reckoned),
        "tflop_per_s": rate,
        "peak_tflops": peak,
        "uncounted": uncounted,
        "peak_dtype": texts(dtype if one > 0 else "" for one in peak.tolist()),
    }


def _each_call(joined: Attributed, costs: Costs) -> Reached:
    """Return every call as a group of its own."""
    nesting, call = joined.attribution.nesting, joined.call
    many = int(call.max(initial=NONE)) + 1
    node, has = joined.node, joined.node != NONE
    from_work: Ints = np.zeros(len(nesting), np.int64)
    np.add.at(from_work, node[has], joined.duration[has])
    nodes = (call[nesting.range], np.arange(many), joined.listed, subtree_sums(nesting, from_work))
    return Reached(joined, many, *nodes, costs)


def _step_of_nodes(joined: Attributed) -> Ints:
    nesting, ranges = joined.attribution.nesting, joined.report.ranges
    of, process = (frames.ints(ranges, c)[nesting.range] for c in ("report", "process"))
    return joined.iterations.at(of, process, nesting.start)


def _most_used(reached: Reached, flop: Floats) -> str:
    """Return the dtype in which most is computed, '' where no call says one."""
    dtype = reached.known.dtype[reached.joined.attribution.nesting.range]
    said = dtype != NONE
    total = np.zeros(len(DTYPES))
    np.add.at(total, dtype[said], flop[said])
    return DTYPES[int(total.argmax())] if total.any() else ""


def _peaks(joined: Attributed, costs: Costs, dtype: str) -> Floats:
    """Return what the GPUs that each step used can do together, in TFLOP/s; -1 where not known."""
    steps, step = joined.iterations, joined.activity_iteration
    limits = Limits.of(joined, costs)
    peak = np.full(len(steps), -1.0)
    if not (dtype or costs.peak_tflops):
        return peak
    rows = np.flatnonzero((step != NONE) & joined.counted)
    device = frames.ints(joined.report.activities, "device")[rows]
    _, firsts = number(step[rows], device)
    used = counts(step[rows[firsts]], len(steps))
    homes = zip(steps.report.tolist(), steps.process.tolist(), strict=True)
    each = [limits.by_process.get(home) for home in homes]
    own = np.array([(one.of(dtype or DTYPES[0]) or 0.0) if one else 0.0 for one in each])
    found: Floats = np.where((own > 0) & (used > 0), own * used, peak)
    return found
