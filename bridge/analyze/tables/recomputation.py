"""What was computed again to save memory: activation checkpointing of PyTorch, MegEngine's DTR.

An op is recomputed if it has a sequence number of autograd of its own, or is a call of a module,
and runs within backward work: in a backward pass autograd records no other op with a number. What
it calls is recomputed too, and belongs to the outermost one. Ops of a double backward pass
(``create_graph=True``) cannot be told apart, and count.
"""

from __future__ import annotations

import numpy as np

from bridge.analyze.core.groups import ratio, sums, texts
from bridge.analyze.core.table import Table
from bridge.importers import frames
from bridge.importers.arrays import factorize, lookup, positions
from bridge.importers.range_texts import SEQ, numbers
from bridge.join.arrays import NONE, Flags, Ints, order_by
from bridge.join.attributed import AttributedCapture
from bridge.join.nesting import inherited

KINDS = RECOMPUTED, EVICTED = ("recomputation", "eviction")
MODULE = "module:"  # prefix of ranges of forward calls of modules
# MegEngine's dynamic tensor rematerialization: what computes a tensor again, what releases it.
REGENERATES, EVICTS = frozenset(["ReGen"]), frozenset(["AutoEvict", "RecFree"])


def by_recompute(attributed: AttributedCapture) -> Table:
    """Return one row per op and kind.

    ``calls`` counts the outermost recomputed calls. ``cpu_ns`` is the time of these ranges on the
    host, ``gpu_ns`` that of the activities that they and the ranges in them launched, ``share`` the
    part of the time of all activities.
    """
    recomputed, evicted = _roots(attributed)
    tables = [
        _rows(attributed, mask, kind)
        for kind, mask in zip(KINDS, (recomputed, evicted), strict=True)
    ]
    table = Table.concat(tables)
    order = order_by(-table["gpu_ns"], -table["cpu_ns"])
    return table[order]


def _roots(attributed: AttributedCapture) -> tuple[Flags, Flags]:
    """Return the outermost nodes that compute again, and those that evict."""
    capture, nesting = attributed.capture, attributed.attribution.nesting
    name = capture.ranges.name[nesting.range]
    is_module = name.matching(lambda text: text.startswith(MODULE))
    regenerates, evicts = name.among(*REGENERATES), name.among(*EVICTS)
    parent = nesting.parent
    within_backward = lookup(attributed.directions.backward, parent, False)
    seq = numbers(capture.texts, SEQ)[capture.ranges.text][nesting.range]
    again = within_backward & ~_named_backward(attributed) & ((seq != NONE) | is_module)
    again |= regenerates
    return again & ~_inside(attributed, again), evicts & ~_inside(attributed, evicts)


def _named_backward(attributed: AttributedCapture) -> Flags:
    """Return the nodes that are backward by their own names, and not only by those around them."""
    from bridge.join.grammar import parse

    names = attributed.capture.ranges.name[attributed.attribution.nesting.range]
    return names.matching(lambda name: parse(name).backward)


def _inside(attributed: AttributedCapture, mask: Flags) -> Flags:
    """Return the nodes around which there is a node of the mask."""
    nesting = attributed.attribution.nesting
    below = inherited(nesting, np.where(mask, 1, NONE)) == 1
    result: Flags = lookup(below, nesting.parent, False)
    return result


def _rows(attributed: AttributedCapture, roots: Flags, kind: str) -> Table:
    """Return the rows of one kind, by the op of the outermost node."""
    nesting, ranges = attributed.attribution.nesting, attributed.capture.ranges
    root = inherited(nesting, np.where(roots, np.arange(len(roots)), NONE))
    listed = np.flatnonzero(roots & attributed.counted_ranges[nesting.range])
    op = attributed.node_op
    group, distinct = factorize(op[listed])
    of_op = positions(distinct, len(attributed.ops) + 1)
    length = np.maximum(ranges.end - ranges.start, 0)
    owner = lookup(root, attributed.node)
    of_activity = np.where(owner == NONE, NONE, of_op[lookup(op, owner)])
    rows = np.flatnonzero(of_activity != NONE)
    size = len(distinct)
    gpu = sums(of_activity[rows], attributed.duration[rows], size)
    return Table(
        {
            "op": texts([*attributed.ops, ""])[distinct],
            "kind": kind,
            "calls": np.bincount(group, minlength=size).astype(np.int64),
            "cpu_ns": sums(group, length[nesting.range[listed]], size),
            "kernels": _kernels(attributed, of_activity, size),
            "gpu_ns": gpu,
            "share": ratio(gpu, np.full(size, attributed.whole_ns)),
        }
    )


def _kernels(attributed: AttributedCapture, group: Ints, size: int) -> Ints:
    is_kernel = attributed.capture.activities.kind.among(frames.KERNEL)
    rows = np.flatnonzero((group != NONE) & is_kernel)
    return np.bincount(group[rows], minlength=size).astype(np.int64)
