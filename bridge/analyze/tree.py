"""Sums up and down the tree of ranges: subtree totals, and every op above an activity once."""

from __future__ import annotations

import numpy as np

from bridge.join.nesting import Nesting
from bridge.join.order import NONE, Flags, Ints


def subtree_sums(nesting: Nesting, own: Ints) -> Ints:
    """Return each node's own value plus those of everything under it."""
    total = own.copy()
    for nodes in _deepest_first(nesting):
        np.add.at(total, nesting.parent[nodes], total[nodes])
    return total


def subtree_extremes(nesting: Nesting, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Return the least ``low`` and greatest ``high`` of each node and everything under it."""
    low, high = low.copy(), high.copy()
    for nodes in _deepest_first(nesting):
        np.minimum.at(low, nesting.parent[nodes], low[nodes])
        np.maximum.at(high, nesting.parent[nodes], high[nodes])
    return low, high


def repeated(nesting: Nesting, op: Ints) -> Flags:
    """Return which nodes lie inside another of the same op: recursion, to be counted once."""
    found = np.zeros(len(nesting), bool)
    above = nesting.parent.copy()
    left = np.flatnonzero(above != NONE)
    while len(left):
        found[left] |= op[above[left]] == op[left]
        above[left] = nesting.parent[above[left]]
        left = left[above[left] != NONE]
    return found


def once(nesting: Nesting, op: Ints, listed: Flags) -> Flags:
    """Return which of the listed nodes lie inside no other listed one of the same op."""
    return listed & ~repeated(nesting, np.where(listed, op, NONE))


def stacks(nesting: Nesting, node: Ints) -> tuple[Ints, Ints]:
    """Return (row, node) for every node on the stack of each row, the row's own node included."""
    rows, nodes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    left = np.flatnonzero(node != NONE)
    at = node[left]
    while len(left):
        rows.append(left)
        nodes.append(at)
        at = nesting.parent[at]
        left, at = left[at != NONE], at[at != NONE]
    return np.concatenate(rows), np.concatenate(nodes)


def _deepest_first(nesting: Nesting) -> list[Ints]:
    """The nodes of each level but the top one, deepest level first."""
    level = nesting.levels()
    return [np.flatnonzero(level == depth) for depth in range(int(level.max(initial=0)), 0, -1)]
