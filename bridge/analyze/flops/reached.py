"""What groups of ranges compute and move, in how much time on the GPU, and how near that is to what the GPUs can do.

The invariant: a rate is of the time of the very calls whose FLOPs or bytes are counted: the sum over the work
under them, on whatever streams it ran. What is not known of any call is -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bridge.analyze.flops.asked import Costs
from bridge.analyze.flops.calls import MOST_BYTES, NO_FORMULA, RECORDED, TOO_LITTLE, Known
from bridge.analyze.flops.measured import MEASURED, best
from bridge.analyze.flops.peaks import Limits
from bridge.analyze.flops.tree import Tree, of_nodes
from bridge.analyze.groups import Floats, texts
from bridge.join.attributed import Attributed
from bridge.join.order import NONE, Flags, Ints, number

FLOPS = ("flop", "flop_once", "counted_ns", "tflop_per_s", "uncounted")
BYTES = ("moved_bytes", "gb_per_s")
INTENSITY = ("intensity",)
PEAK = ("peak_share", "bandwidth_share")
FORMULA = ("formula",)
UNKNOWN = (NO_FORMULA, TOO_LITTLE)
OF_ITS_OPS = "of its ops"
SEVERAL = 3  # formulas that are named; of more as many, and dots
TERA, GIGA, NS = 1e12, 1e9, 1e9
Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Rated:
    """Per group: a sum, whether it is known, the time of the work of the calls that are in it, how many others there are."""

    total: Floats
    there: Flags
    spent: Ints
    uncounted: Ints

    def per(self, amount: Ints | Floats, unit: float = 1.0) -> Floats:
        """Return how much there is of it per amount, -1 where that is not known."""
        known = self.there & (amount > 0)
        found: Floats = np.divide(
            self.total * unit, amount, out=np.full(len(amount), -1.0), where=known
        )
        return found


@dataclass(frozen=True)
class Reached:
    """Groups of ranges: the group of each node and of each call, which nodes count for it, and the time under each."""

    joined: Attributed
    count: int
    of_node: Ints
    of_call: Ints
    outer: Flags
    node_ns: Ints
    costs: Costs

    @cached_property
    def known(self) -> Known:
        """What each range says of its cost."""
        return best(self.joined, self.costs)

    @cached_property
    def tree(self) -> Tree:
        """The tree of ranges."""
        return Tree(self.joined.attribution.nesting)

    @cached_property
    def first(self) -> Ints:
        """The node at which each call counts, of several the first in time; NONE for one without."""
        nesting, call = self.joined.attribution.nesting, self.joined.call
        nodes = np.flatnonzero(call[nesting.range] != NONE)
        nodes = nodes[np.argsort(nesting.start[nodes], kind="stable")[::-1]]
        found = np.full(len(self.of_call), NONE)
        found[call[nesting.range[nodes]]] = nodes
        return found

    def computed(self) -> Columns:
        """Return the columns `FLOPS`."""
        found = self._rated(self.known.flops)
        outermost = self.tree.outermost(self.has(self.known.flops))
        once = np.where(outermost, self.values(self.known.flops), 0.0)
        listed = np.flatnonzero(self.of_node != NONE)
        alone = _sums(self.of_node[listed], once[listed], self.count)
        return {
            "flop": np.where(found.there, found.total, NONE),
            "flop_once": np.where(found.there, alone, NONE),
            "counted_ns": found.spent,
            "tflop_per_s": found.per(found.spent, NS / TERA),
            "uncounted": found.uncounted,
        }

    def moved(self) -> Columns:
        """Return the columns `BYTES`."""
        found = self._rated(self.known.bytes)
        told = found.there & (found.total < MOST_BYTES)
        return {
            "moved_bytes": np.where(told, found.total, NONE).astype(np.int64),
            "gb_per_s": found.per(found.spent, NS / GIGA),
        }

    def intensity(self) -> Columns:
        """Return FLOPs per byte, of the calls that say both."""
        both = (self.known.flops >= 0) & (self.known.bytes >= 0)
        flops, moved = (
            self._rated(np.where(both, one, NONE)) for one in (self.known.flops, self.known.bytes)
        )
        return {"intensity": flops.per(moved.total)}

    def shares(self) -> Columns:
        """Return the columns `PEAK`: the least time that the GPUs could take, as a share of the time taken."""
        limits = Limits.of(self.joined, self.costs)
        tflops = limits.tflops(self.joined, self.known.dtype)
        gb_per_s = limits.gb_per_s(self.joined)
        compute = _least(self.known.flops, tflops * (TERA / NS))
        memory = _least(self.known.bytes, gb_per_s * (GIGA / NS))
        rated = zip(PEAK, map(self._rated, (compute, memory)), strict=True)
        return {column: found.per(found.spent) for column, found in rated}

    def formulas(self) -> Columns:
        """Return how each group's calls are counted, or why they are not."""
        own = self.has(self.known.flops)
        total = self.tree.totals(own, self.values(self.known.flops))
        calls = np.flatnonzero((self.of_call != NONE) & (self.first != NONE))
        node, group = self.first[calls], self.of_call[calls]
        names = [*self.known.formulas, OF_ITS_OPS]
        code = self.by_call(self.known.formula)[calls]
        code = np.where(~own[node] & (total[node] > 0), len(names) - 1, code)
        _, rows = number(group, code)
        said: list[list[str]] = [[] for _ in range(self.count)]
        for row in rows.tolist():  # a turn per group and formula
            said[group[row]].append(names[code[row]])
        return {"formula": texts(map(_named, said))}

    def _rated(self, of_range: Floats) -> Rated:
        """Add up what calls say of themselves, and the time of the work of those that do."""
        own = self.has(of_range)
        return self._rated_of(of_range, own) if own.any() else self.nothing

    @cached_property
    def nothing(self) -> Rated:
        """What there is where no call says anything, whatever is asked."""
        nodes = np.zeros(len(self.node_ns), bool)
        return self._rated_of(np.full(len(self.joined.op), float(NONE)), nodes)

    def _rated_of(self, of_range: Floats, own: Flags) -> Rated:
        listed = np.flatnonzero(self.outer)
        group = self.of_node[listed]

        def summed(of_node: Floats) -> Floats:
            return _sums(group, of_node[listed], self.count)

        total = summed(self.tree.totals(own, self.values(of_range)))
        time = self.tree.totals(own, self.node_ns.astype(np.float64))
        spent = summed(time).round().astype(np.int64)
        left = summed(self.tree.handed_up(self.left(own), own)).astype(np.int64)
        there = np.zeros(self.count, bool)
        there[group[self.tree.has(own)[listed]]] = True
        # That what is known in it computes nothing says nothing of an op of which something is not known.
        return Rated(total, there & ((total > 0) | (left == 0)), spent, left)

    def left(self, own: Flags) -> Floats:
        """Return 1 for each call that is not known and has work of its own; without any work in the report, no call in it."""
        nesting, call = self.joined.attribution.nesting, self.joined.call
        bare = self.joined.listed & ~own
        if len(self.joined.report.activities):
            bare &= self.works
        else:
            bare[nesting.parent[nesting.parent != NONE]] = False
        there = np.zeros(len(self.first) + 1, bool)
        there[call[nesting.range[bare]]] = True
        nodes = self.first[there[:-1]]
        found = np.zeros(len(nesting))
        found[nodes[nodes != NONE]] = 1
        return found

    @cached_property
    def works(self) -> Flags:
        """The nodes with work of their own."""
        node = self.joined.node
        found = np.zeros(len(self.joined.attribution.nesting), bool)
        found[node[node != NONE]] = True
        return found

    def has(self, of_range: Floats) -> Flags:
        """Tell of each node whether its call says a value."""
        call = self.joined.call[self.joined.attribution.nesting.range]
        known: Flags = np.append(self.by_call(of_range) >= 0, False)[call]
        return known & self.joined.listed

    def values(self, of_range: Floats) -> Floats:
        """Return per node what its call says, at the first of the call's nodes alone."""
        return of_nodes(self.joined.attribution.nesting, self.first, of_range)

    def by_call(self, of_range: np.ndarray) -> np.ndarray:
        """Return what the range says at which each call counts."""
        nesting = self.joined.attribution.nesting
        rows = np.append(nesting.range, NONE)[self.first]
        missing = np.array([NONE], of_range.dtype)
        found: np.ndarray = np.concatenate((of_range, missing))[rows]
        return found


def _least(amount: Floats, per_ns: Floats) -> Floats:
    """Return the least time in ns for an amount, -1 where it or the limit is not known."""
    found = np.divide(amount, per_ns, out=np.full(len(amount), np.nan), where=per_ns > 0)
    return np.where((amount >= 0) & np.isfinite(found), found, NONE)


def _sums(group: Ints, values: Floats, groups: int) -> Floats:
    """Return each group's sum: FLOPs of a long run are beyond 64 bits, and exact up to 2**53."""
    total = np.zeros(groups)
    np.add.at(total, group, values)
    return total


def _named(said: Sequence[str]) -> str:
    """Return the formulas of a group, those that count first; of many some."""
    order = sorted(
        set(said), key=lambda text: (text in UNKNOWN, text != MEASURED, text != RECORDED, text)
    )
    return ", ".join(order[:SEVERAL]) + (", …" if len(order) > SEVERAL else "") or NO_FORMULA
