"""A tree of frames that paths are added to, all at once: equal paths under one frame are one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bridge.join.autograd import inherited
from bridge.join.nesting import Nesting
from bridge.join.order import NONE, Flags, Ints
from importers.texts import unique_names


@dataclass(frozen=True)
class Paths:
    """Distinct paths: each a name (a code into ``names``) under another path, an earlier row (or NONE)."""

    parent: Ints
    code: Ints
    names: list[str]

    @classmethod
    def of(cls, names: Iterable[str]) -> Paths:
        """Return paths of one name each."""
        names = list(names)
        return cls(np.full(len(names), NONE), np.arange(len(names)), names)

    def by_depth(self) -> list[Ints]:
        """Return per depth, outermost first, the path of that depth which each path begins with, or NONE."""
        depth, begin = depths(self.parent), np.arange(len(self.parent))
        found = []
        for level in range(int(depth.max(initial=NONE)), NONE, -1):
            found.append(or_none(begin, depth >= level))
            begin = np.where(depth >= level, self.parent[begin], begin)
        return found[::-1]


class Growing:
    """A tree to which paths are added."""

    def __init__(self) -> None:
        self.size = 0
        self._names: list[str] = []
        self._columns: list[tuple[Ints, Ints, Ints]] = []

    def grown(self, place: Ints, path: Ints, of: Paths, level: int) -> Ints:
        """Add a path (or NONE) under each place, a frame (or NONE: as a root); return where each then is."""
        found = place.copy()
        for begin in of.by_depth():
            frame = np.append(begin, NONE)[path]
            rows = np.flatnonzero(frame != NONE)
            (above, end), key = pairs(found[rows], frame[rows])
            self._columns.append((above, of.code[end] + len(self._names), np.full(len(end), level)))
            found[rows] = key + self.size
            self.size += len(end)
        self._names += of.names
        return found

    def columns(self) -> tuple[Ints, Ints, Ints, list[str]]:
        """Return parent, code and level of each frame, and the names that the codes go into."""
        parent, code, level = (
            np.concatenate([np.empty(0, np.int64), *columns])
            for columns in zip(*self._columns, strict=True)
        )
        code, used = pd.factorize(code)
        names = [self._names[name] for name in used.tolist()]
        code, names = unique_names(code.astype(np.int64), names)
        return parent, code, level, names


def paths_without(
    nesting: Nesting, name: Ints, names: list[str], left_out: Flags
) -> tuple[Paths, Ints]:
    """Return the distinct paths of nodes, some nodes left out, and the path of each node, or NONE."""
    kept = np.flatnonzero(~left_out)
    place = np.full(len(nesting) + 1, NONE)
    place[kept] = np.arange(len(kept))
    of = inherited(nesting, place[:-1])
    outer = np.append(of, NONE)[nesting.parent[kept]]
    path, size, depth = np.full(len(kept) + 1, NONE), 0, depths(outer)
    columns = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    for level in range(int(depth.max(initial=NONE)) + 1):
        rows = np.flatnonzero(depth == level)
        distinct, key = pairs(path[outer[rows]], name[kept[rows]])
        path[rows] = key + size
        columns.append(distinct)
        size += len(distinct[0])
    parent, code = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Paths(parent, code, names), path[of]


def pairs(first: Ints, second: Ints) -> tuple[tuple[Ints, Ints], Ints]:
    """Return the distinct pairs of two columns, -1 and up, as two columns, and the row of each pair in them."""
    width = int(second.max(initial=NONE)) + 2
    key, distinct = pd.factorize((first + 1) * width + second + 1)
    firsts, seconds = np.divmod(distinct, width)
    return (firsts - 1, seconds - 1), key.astype(np.int64)


def depths(parent: Ints) -> Ints:
    """Return how many are above each."""
    depth, above = np.zeros(len(parent), np.int64), parent.copy()
    left = np.flatnonzero(above != NONE)
    while len(left):
        depth[left] += 1
        above[left] = parent[above[left]]
        left = left[above[left] != NONE]
    return depth


def or_none(values: Ints, wanted: Flags) -> Ints:
    """Return the values that are wanted, NONE for the others."""
    return np.where(wanted, values, NONE)
