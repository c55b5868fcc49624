"""Nesting of push/pop ranges, computed on whole columns.

The ranges open at an instant, outermost first, are the chain of parents from the innermost one. Ranges
that cross, which NVTX forbids within a domain but not between two, are cut into pieces that nest, so
that the chain at any instant still is exactly the set of ranges with start <= instant < end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from bridge.join.arrays import NONE, Ints, by, outer_first, runs, stable
from importers.texts import unique_names

# -- Paths of ops: ``step/forward/attn`` for each node of a nesting


SEPARATOR = "/"


def paths(
    nesting: Nesting, op: Ints, names: Sequence[str], *, dotted: bool = False
) -> tuple[Ints, list[str]]:
    """Return the path of each node as a code, and the distinct paths; ``op`` is a code per node.

    With ``dotted``, a name that goes on where the path around it ends, as ``encoder.0`` does in
    ``encoder``, is a path already.
    """
    code = np.full(len(nesting), NONE)
    found: list[str] = []
    level = nesting.levels()
    for depth in range(int(level.max(initial=-1)) + 1):
        nodes = np.flatnonzero(level == depth)
        above = np.where(depth > 0, code[nesting.parent[nodes]], NONE)
        keys, distinct = pd.factorize((above + 1) * len(names) + op[nodes])
        code[nodes] = keys + len(found)
        parents, ops = np.divmod(distinct, len(names))
        found += [
            _under(found[parent - 1], names[o], dotted=dotted) if parent else names[o]
            for parent, o in zip(parents.tolist(), ops.tolist(), strict=True)
        ]
    return unique_names(code, found)  # names hold slashes too: several ways may lead to one path


def _under(path: str, name: str, *, dotted: bool) -> str:
    return name if dotted and name.startswith(f"{path}.") else path + SEPARATOR + name


# -- Nesting of push/pop ranges, computed on whole columns


ROUNDS = 1_000  # of cutting; a range of a real program crosses a few others
PIECES = 4, 100_000  # per range, and besides


class TangledError(ValueError):
    """Ranges that cross each other so often that their pieces would fill the memory; says so in words for the user."""


@dataclass(frozen=True)
class Nesting:
    """Nodes, one per range (or piece of one), sorted by stack, then start, outer before inner.

    ``range`` is the row each node stands for, ``parent`` a node or NONE; a parent comes before its
    children. ``crossed`` says which ranges had to be cut.
    """

    stack: Ints
    start: Ints
    end: Ints
    range: Ints
    parent: Ints
    crossed: Ints

    @classmethod
    def of(cls, stack: Ints, start: Ints, end: Ints, rows: Ints | None = None) -> Nesting:
        """Nest ranges; ``rows`` are their row numbers, ``stack`` a number for each (thread, …).

        Ranges of no length are never open and get no node. Of two with the same start the longer is
        outer; of two with the same interval the earlier row, which is the order of their pushes.
        Raises TangledError.
        """
        rows = np.arange(len(start)) if rows is None else rows
        open_ever = end > start
        if not open_ever.all():
            stack, start, end, rows = (c[open_ever] for c in (stack, start, end, rows))
        order = outer_first(stack, start, end)
        return cls._nested(stack[order], start[order], end[order], rows[order])

    @classmethod
    def _nested(cls, stack: Ints, start: Ints, end: Ints, rows: Ints) -> Nesting:
        crossed: list[Ints] = []
        rank = np.arange(len(rows))
        most = PIECES[0] * len(rows) + PIECES[1]
        while len(crossed) < ROUNDS and len(rows) <= most:
            parent = parents(stack, start, end)
            crossing = np.flatnonzero((parent != NONE) & (end > end[parent]))
            if not len(crossing):
                cut = np.unique(np.concatenate([*crossed, np.empty(0, np.int64)]))
                return cls(stack, start, end, rows, parent, cut)
            crossed.append(rows[crossing])
            # The piece after the cut stays inside whatever started before the range itself did.
            at, rest = end[parent[crossing]], end[crossing]
            end[crossing] = at
            stack, rows, rank = (np.append(c, c[crossing]) for c in (stack, rows, rank))
            start, end = np.append(start, at), np.append(end, rest)
            order = by(stack, start, rank)
            stack, start, end, rows, rank = (c[order] for c in (stack, start, end, rows, rank))
        raise TangledError(
            "ranges of one thread cross each other by the thousand; is the export damaged?"
        )

    def __len__(self) -> int:
        return len(self.start)

    def innermost(self, stack: Ints, instant: Ints) -> Ints:
        """Return the innermost node open at each (stack, instant), or NONE."""
        found = self._last_started(stack, instant)
        left = np.flatnonzero(found != NONE)
        while len(left):
            left = left[self.end[found[left]] <= instant[left]]
            found[left] = self.parent[found[left]]
            left = left[found[left] != NONE]
        return found

    def first_nodes(self, ranges: int) -> Ints:
        """Return the node of each of so many ranges, of one cut in pieces the first; NONE without."""
        found = np.full(ranges, NONE)
        found[self.range[::-1]] = np.arange(len(self))[::-1]
        return found

    def levels(self) -> Ints:
        """Return the depth of each node, 0 being outermost."""
        depth = np.zeros(len(self), np.int64)
        above = self.parent.copy()
        left = np.flatnonzero(above != NONE)
        while len(left):
            depth[left] += 1
            above[left] = self.parent[above[left]]
            left = left[above[left] != NONE]
        return depth

    def _last_started(self, stack: Ints, instant: Ints) -> Ints:
        """Return the last node of the stack with start <= instant, or NONE."""
        found = np.full(len(instant), NONE)
        order = stable(stack)
        edges = runs(stack[order])
        ours = runs(self.stack)
        slices = {int(self.stack[a]): (a, b) for a, b in pairwise(ours)}
        for first, last in pairwise(edges):  # one turn per thread
            asked = order[first:last]
            a, b = slices.get(int(stack[asked[0]]), (0, 0))
            place = a - 1 + np.searchsorted(self.start[a:b], instant[asked], side="right")
            found[asked] = np.where(place >= a, place, NONE)
        return found


def parents(stack: Ints, start: Ints, end: Ints) -> Ints:
    """Return the last earlier node that is still open when each one starts.

    Everyone first looks at the neighbour before; whoever finds it ended looks on from where that
    one looks. What lies between has ended too, so nothing is passed over, and looks double in
    length: a handful of rounds, not one per node.
    """
    looks = np.arange(-1, len(start) - 1)
    looks[runs(stack)[:-1]] = NONE
    left = np.flatnonzero(looks != NONE)
    while len(left):
        left = left[end[looks[left]] <= start[left]]
        looks[left] = looks[looks[left]]
        left = left[looks[left] != NONE]
    return looks
