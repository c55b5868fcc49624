"""The tree of stacks, cut down to what a page can show; what is cut off is summed up where it was."""

from __future__ import annotations

from typing import Any

import numpy as np

from bridge.analyze.calltree import LEVELS, STEP, CallTree, calltree
from bridge.analyze.groups import counts, sums
from bridge.analyze.overview.axis import largest
from bridge.analyze.overview.names import Names
from bridge.join.attributed import Attributed
from bridge.join.order import NONE, Flags, Ints, by

MOST = 3_000
MOST_STEPS = (
    64  # of more, each would be too thin to be told from the next: they are laid over each other
)
LEAST = 1_000  # frames below a thousandth of all are summed up
OTHER = "other"


def icicle(joined: Attributed, names: Names) -> dict[str, Any] | None:
    """Return the frames as columns, parents before children, children by size.

    ``value`` is what a frame and everything under it takes: time on the GPU, without any of that on
    the CPU (``unit`` says which); ``steps_merged`` counts steps that are not told apart. Level "other" stands for the frames under ``parent`` that are too small: the sum
    of a frame's own value and its children's is exact.
    """
    steps = 0 < len(joined.steps) <= MOST_STEPS
    tree = calltree(joined, steps=steps)
    unit = "gpu" if int(tree.gpu_self_ns.sum()) else "cpu"
    own = tree.gpu_self_ns if unit == "gpu" else tree.cpu_self_ns
    total = tree.total(np.maximum(own, 0))
    if not len(tree) or not total.max():
        return None
    merged = 0 if steps else len(joined.steps)
    return {
        "unit": unit,
        "steps_merged": merged,
        **_columns(tree, total, _kept(tree, total), names),
    }


def _kept(tree: CallTree, total: Ints) -> Flags:
    """Choose the largest frames: a parent is as large as its child and comes before it, so it is there too."""
    whole = int(total[tree.parent == NONE].sum())
    return largest(total, MOST) & (total * LEAST >= whole) & (total > 0)


def _columns(tree: CallTree, total: Ints, kept: Flags, names: Names) -> dict[str, Any]:
    cut = np.flatnonzero(~kept & np.append(kept, True)[tree.parent] & (total > 0))
    above, some = np.unique(tree.parent[cut], return_inverse=True)
    rest, size = sums(some, total[cut], len(above)), counts(some, len(above))
    rows = np.flatnonzero(kept)
    parent = np.concatenate((tree.parent[rows], above))
    value = np.concatenate((total[rows], rest))
    order = _drawn(tree, rows, above, value)
    place = np.full(len(tree), NONE)
    place[rows] = np.argsort(order)[: len(rows)]
    levels = [*(LEVELS[code] for code in tree.level[rows].tolist()), *[OTHER] * len(above)]
    named = names.of_codes(tree.code[rows], tree.names) + names.of(
        f"{n} smaller" for n in size.tolist()
    )
    return {
        "parent": np.where(parent == NONE, NONE, place[parent])[order].tolist(),
        "name": np.array(named, np.int64)[order].tolist(),
        "level": [levels[at] for at in order.tolist()],
        "value": value[order].tolist(),
        "count": np.concatenate((tree.count[rows], size))[order].tolist(),
    }


def _drawn(tree: CallTree, rows: Ints, above: Ints, value: Ints) -> Ints:
    """Return the order by depth: steps as they ran, all else by size, what is summed up last."""
    depth = np.concatenate((tree.depth[rows], np.append(tree.depth, NONE)[above] + 1))
    is_rest = np.arange(len(value)) >= len(rows)
    is_step = np.append(tree.level[rows], np.full(len(above), NONE)) == STEP
    return by(depth, is_rest.astype(np.int64), np.where(is_step, np.arange(len(value)), -value))
