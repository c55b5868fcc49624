"""Forests: what is around, under and between the nodes of trees, however deep they are.

A forest is a column ``parent``: the row of the node around each node, NONE for a root. Nothing here
goes level by level: the distance to a known ancestor doubles in each round, so that a stack of a
hundred thousand ranges takes seventeen rounds. Most nodes of a report are leaves; they take no part
in the rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from bridge.importers.arrays import factorize, lookup, positions, scatter
from bridge.join.arrays import NONE, Flags, Ints, order_by, run_edges, running_maximum, stable_order

Values = TypeVar("Values", Ints, Flags, NDArray[np.float64])


def levels(parent: Ints) -> Ints:
    """Return the number of nodes around each node; 0 is outermost."""
    return sums_above(parent, np.ones(len(parent), np.int64)) - 1


def sums_above(parent: Ints, values: Ints) -> Ints:
    """Return the value of each node plus those of all nodes around it."""
    inner, above, around = _inner(parent)
    total = values[inner]
    for rows, ancestors in _rounds(above):
        total[rows] += total[ancestors]
    result: Ints = values + lookup(total, around, 0)
    return result


def folded(parent: Ints, values: Values, combine: np.ufunc = np.add) -> Values:
    """Return the value of each node combined with those of all nodes under it, such as their sum."""
    inner, above, around = _inner(parent)
    result: Values = values.copy()
    is_leaf = np.ones(len(parent), bool)
    is_leaf[inner] = False
    leaves = np.flatnonzero(is_leaf & (around != NONE))
    combine.at(result, parent[leaves], values[leaves])
    part = result[inner]
    for rows, ancestors in _rounds(above):
        combine.at(part, ancestors, part[rows])
    result[inner] = part
    return result


def nearest(parent: Ints, wanted: Flags) -> Ints:
    """Return the nearest wanted node, the node itself or one around it, or NONE."""
    if not wanted.any():
        return np.full(len(parent), NONE)
    inner, above, around = _inner(parent)
    jump = np.append(np.where(wanted[inner], np.arange(len(inner)), above), NONE)
    is_done = np.append(wanted[inner], True)
    pending = np.flatnonzero(~is_done[jump])
    while len(pending):
        jump[pending] = jump[jump[pending]]
        pending = pending[~is_done[jump[pending]]]
    of_inner = lookup(inner, jump)
    return np.where(wanted, np.arange(len(parent)), of_inner[around])


def outermost_above(parent: Ints, wanted: Flags) -> Ints:
    """Return the outermost wanted node, the node itself or one around it, or NONE."""
    inside = lookup(nearest(parent, wanted), parent)
    return nearest(parent, wanted & (inside == NONE))


def depth_first(parent: Ints) -> tuple[Ints, Ints]:
    """Return the position of each node in depth-first order, and the number of nodes from it down.

    Siblings are in order of rows. What is under a node has the positions that follow its own.
    """
    size = folded(parent, np.ones(len(parent), np.int64))
    order = stable_order(parent)
    before = np.cumsum(size[order]) - size[order]
    edges = run_edges(parent[order])
    offset = np.empty(len(parent), np.int64)
    offset[order] = before - np.repeat(before[edges[:-1]], np.diff(edges))
    return sums_above(parent, offset + (parent != NONE)), size


def is_repeated(parent: Ints, key: Ints) -> Flags:
    """Return whether each node lies inside another node of the same key."""
    place, size = depth_first(parent)
    order = order_by(key, place)
    key, place, end = key[order], place[order], (place + size)[order]
    inside = np.zeros(len(parent), bool)
    reached = running_maximum(key, place, end)
    inside[order[1:]] = (key[1:] == key[:-1]) & (reached[:-1] > place[1:])
    return inside


def common(parent: Ints, first: Ints, second: Ints) -> Ints:
    """Return the innermost node around, or equal to, both nodes of each pair, or NONE."""
    place, size = depth_first(parent)

    def is_around(node: Ints, other: Ints) -> Flags:
        result: Flags = (place[node] <= place[other]) & (place[other] < (place + size)[node])
        return result

    node = first.copy()
    apart = np.flatnonzero(~is_around(node, second))
    for ancestor in reversed(ancestors(parent)):
        above = ancestor[node[apart]]
        stays = (above == NONE) | is_around(above, second[apart])
        node[apart] = np.where(stays, node[apart], above)
    node[apart] = parent[node[apart]]
    return node


def ancestors(parent: Ints) -> list[Ints]:
    """Return the nodes 1, 2, 4 … levels above each node, NONE where there are fewer."""
    result = [parent]
    while (result[-1] != NONE).any():
        result.append(lookup(result[-1], result[-1]))
    return result


class Closure(NamedTuple):
    """Distinct pairs of a node and a key, as a forest of their own: all that given pairs are or are under.

    Attributes:
        node: the node of each pair.
        key: the key of each pair.
        parent: the pair of the same key around each pair, or NONE.
        given: the pair of each given node and key.

    """

    node: Ints
    key: Ints
    parent: Ints
    given: Ints


def closure(parent: Ints, node: Ints, key: Ints) -> Closure:
    """Return the pairs of some nodes and keys, and those of all nodes around these with the same key."""
    keys, code = np.unique(key, return_inverse=True)
    count = max(len(keys), 1)  # a pair is one number
    own = node * count + code.reshape(-1)
    pairs = np.unique(own)
    for ancestor in ancestors(parent):
        above = ancestor[pairs // count]
        reached = (above * count + pairs % count)[above != NONE]
        both = np.sort(
            np.concatenate((pairs, reached)), kind="stable"
        )  # runs that are sorted already
        pairs = both[run_edges(both)[:-1]]
    around = parent[pairs // count]
    above = np.searchsorted(pairs, around * count + pairs % count)
    above[around == NONE] = NONE
    pair_node, pair_key = np.divmod(pairs, count)
    return Closure(pair_node, keys[pair_key], above, np.searchsorted(pairs, own))


def distinct_paths(parent: Ints, name: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the distinct paths of names from the roots to the nodes, as a forest of their own.

    Returns the parent of each path and its last name, and the path of each node. Outer paths come
    first, then those of earlier nodes.
    """
    number, count = path_codes(parent, name)
    first = scatter(np.arange(len(number))[::-1], number[::-1], count)
    order = stable_order(levels(parent)[first])
    rank = np.empty(count, np.int64)
    rank[order] = np.arange(count)
    first, of_node = first[order], rank[number]
    return lookup(of_node, parent[first]), name[first], of_node


def path_codes(parent: Ints, name: Ints) -> tuple[Ints, int]:
    """Return a code of the path of names to each node, in order of their first nodes, and how many there are."""
    inner, above, around = _inner(parent)
    code, size = _numbered(name[inner])
    # After each round, nodes have the same code whose last one, two, four … names are the same.
    for rows, ancestors in _rounds(above):
        numbers, distinct = _numbered(code[rows] * size + code[ancestors])
        code[rows] = numbers + size
        size += distinct
    names = int(name.max(initial=0)) + 1
    return _numbered((lookup(code, around) + 1) * names + name)


def _numbered(values: Ints) -> tuple[Ints, int]:
    """Return a number for each distinct value, in order of their first rows, and how many there are."""
    code, distinct = factorize(values)
    return code, len(distinct)


def _inner(parent: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the nodes that have others under them, and for these and for all nodes the one above.

    The nodes above are positions among the first, or NONE.
    """
    is_inner = np.zeros(len(parent) + 1, bool)
    is_inner[parent] = True  # the last entry is that of roots
    inner = np.flatnonzero(is_inner[:-1])
    position = positions(inner, len(parent) + 1)
    around = position[parent]
    return inner, around[inner], around


def _rounds(parent: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield the nodes that have an ancestor 1, 2, 4 … levels above them, and that ancestor."""
    ancestor = parent.copy()
    rows = np.flatnonzero(ancestor != NONE)
    while len(rows):
        yield rows, ancestor[rows]
        ancestor[rows] = ancestor[ancestor[rows]]
        rows = rows[ancestor[rows] != NONE]
