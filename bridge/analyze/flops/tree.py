"""Sums over the tree of ranges in which what a call says of itself counts before what is in it.

The invariant: a call's figure is its own where it is known, else the sum of those of the calls in it. So nothing counts
twice: of `aten::linear` and the `aten::addmm` in it, which compute the same, the outer one stands for both.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from bridge.analyze.groups import Floats
from bridge.join.nesting import Nesting
from bridge.join.order import NONE, Flags, Ints


class Tree:
    """A nesting whose levels are found once."""

    def __init__(self, nesting: Nesting) -> None:
        self.nesting = nesting

    @cached_property
    def levels(self) -> list[Ints]:
        """The nodes of each level but the top one, deepest first."""
        level = self.nesting.levels()
        deepest = int(level.max(initial=0))
        return [np.flatnonzero(level == depth) for depth in range(deepest, 0, -1)]

    def totals(self, known: Flags, value: Floats) -> Floats:
        """Return each node's own value where it is known, else the sum of its children's."""
        return self.handed_up(np.where(known, value, 0.0), known)

    def handed_up(self, value: Floats, known: Flags) -> Floats:
        """Return each node's own value and what its children hand up, which known ones do not take."""
        total = value.copy()
        for nodes in self.levels:
            parent = self.nesting.parent[nodes]
            up = np.flatnonzero(~known[parent])
            np.add.at(total, parent[up], total[nodes[up]])
        return total

    def has(self, known: Flags) -> Flags:
        """Tell which nodes have a known one in them, or are one."""
        found = known.copy()
        for nodes in self.levels:
            found[self.nesting.parent[nodes[found[nodes]]]] = True
        return found

    def covered(self, known: Flags) -> Flags:
        """Tell which nodes are known, or lie in one that is."""
        found = known.copy()
        for nodes in self.levels[::-1]:
            found[nodes] |= found[self.nesting.parent[nodes]]
        return found

    def outermost(self, known: Flags) -> Flags:
        """Tell which known nodes lie in no other known one."""
        around = np.append(self.covered(known), False)[self.nesting.parent]
        outer: Flags = known & ~around
        return outer


def of_nodes(nesting: Nesting, first: Ints, of_range: Floats) -> Floats:
    """Return a value of ranges per node: of several nodes of a range, or slices of a call, at the first alone."""
    value = np.zeros(len(nesting))
    there = first[first != NONE]
    value[there] = of_range[nesting.range[there]]
    return value
