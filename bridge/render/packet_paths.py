"""Paths up a tree, each distinct one written once, from the root's name down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bridge.analyze.timeline import Chain
from bridge.render.packets import MISSING, Ints, Part
from bridge.render.rows import Names

SEPARATOR = np.frombuffer(b"/", np.uint8)[None]


@dataclass(frozen=True)
class Paths:
    """Distinct paths, parents before children: the row of each one's parent, and the code of its last name.

    ``of_node`` is the path of each node of the chain they were made of, and MISSING at its end, which
    is where a missing node leads; only nodes that were asked for have one.
    """

    parent: Ints
    name: Ints
    of_node: Ints

    @classmethod
    def of(cls, chain: Chain, rows: Ints) -> Paths:
        """Return the paths of some rows."""
        of_node = np.full(len(chain.parent) + 1, MISSING)
        many = len(chain.name.names)
        found = [np.empty(0, np.int64)]
        count = 0
        for nodes in _levels(chain, rows):
            keys = (of_node[chain.parent[nodes]] + 1) * many + chain.name.codes[nodes]
            distinct, code = np.unique(keys, return_inverse=True)
            of_node[nodes] = code + count
            found.append(distinct)
            count += len(distinct)
        parent, name = np.divmod(np.concatenate(found), max(many, 1))
        return cls(parent - 1, name, of_node)


@dataclass(frozen=True)
class PathText:
    """A path per row, the names from the root down with a slash between them; ``name`` is that of each path."""

    parent: Ints
    name: Names

    def parts(self, rows: Ints) -> list[Part]:
        """Return the paths' bytes for some rows."""
        return list(self._upwards(rows))[::-1]

    def _upwards(self, rows: Ints) -> Iterator[Part]:
        there = np.ones(len(rows), bool)
        while there.any():
            size = self.name.size[self.name.codes[rows]]
            yield Part(self.name.at(rows), size).only(there)
            rows = np.where(there, self.parent[rows], MISSING)
            there = rows != MISSING
            yield Part(SEPARATOR).only(there)


def _levels(chain: Chain, rows: Ints) -> list[Ints]:
    """Return the nodes that are on the paths of these rows, from the roots down."""
    nodes = _reached(chain, rows)
    level = np.zeros(len(nodes), np.int64)
    below, above = np.arange(len(nodes)), chain.parent[nodes]
    while len(below):
        below, above = below[above != MISSING], above[above != MISSING]
        level[below] += 1
        above = chain.parent[above]
    order = np.argsort(level, kind="stable")
    return np.split(nodes[order], np.cumsum(np.bincount(level))[:-1])


def _reached(chain: Chain, rows: Ints) -> Ints:
    """Return the nodes of these rows and all above them, in order."""
    reached = np.zeros(len(chain.parent), bool)
    nodes = chain.node[rows]
    while len(nodes):
        nodes = nodes[nodes != MISSING]
        nodes = nodes[~reached[nodes]]
        reached[nodes] = True
        nodes = chain.parent[nodes]
    return np.flatnonzero(reached)
