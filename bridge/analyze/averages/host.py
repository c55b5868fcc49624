"""What ran on the host as PyTorch's profiler sees it: ops and API calls on one stack per thread.

The invariant: what lies in what is decided once, for self times, for totals and for whom a call counts. A call that does
nothing but call the same op again (an overload, a wrapper) is one call with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from bridge.analyze.groups import sums
from bridge.analyze.tree import once
from bridge.join.attributed import Attributed
from bridge.join.nesting import Nesting
from bridge.join.order import NONE, Flags, Ints, number
from importers import frames

LONGEST = 1 << 61  # ns that can be doubled
# PyTorch leaves these out of its lists: they say something of a tensor or belong to the profiler.
HIDDEN = frozenset(
    "[memory] [OutOfMemory] profiler::_record_function_enter profiler::_record_function_enter_new"
    " profiler::_record_function_exit aten::is_leaf aten::output_nr aten::_version".split()
)


@dataclass(frozen=True)
class Host:
    """Items: the ranges that are ops, then all API calls. ``row`` is each one's row in its frame.

    ``name`` is a code into ``names``, ``into`` the item that each counts as, ``parent`` the one around
    it, or NONE.
    """

    row: Ints
    ranges: int
    start: Ints
    end: Ints
    name: Ints
    names: list[str]
    parent: Ints
    into: Ints
    nesting: Nesting
    scale: int

    @classmethod
    def of(cls, joined: Attributed) -> Host:
        """Nest the host's work of a report."""
        rows, name, names = _named(joined)
        parts = (joined.report.ranges, joined.report.launches)
        of, thread, start, end = (
            np.concatenate([frames.ints(part, c)[row] for part, row in zip(parts, rows, strict=True)])
            for c in ("report", "thread", "start", "end")
        )  # fmt: skip
        end = np.maximum(start, end)
        stack, _ = number(of, thread)
        nesting, scale = _nested(stack, start, end)
        parent = _parents(nesting, start == end)
        into = _into(parent, name)
        item = np.concatenate(rows)
        return cls(item, len(rows[0]), start, end, name, names, parent, into, nesting, scale)

    @property
    def is_call(self) -> Flags:
        """Which items count as calls: all but those that count as another."""
        found: Flags = self.into == np.arange(len(self.into))
        return found

    def self_times(self) -> Ints:
        """Return the time of each item that nothing in it took, in ns."""
        nesting = self.nesting
        length = (nesting.end - nesting.start) // self.scale
        inner, own = np.flatnonzero(nesting.parent != NONE), length.copy()
        np.subtract.at(own, nesting.parent[inner], length[inner])
        return sums(nesting.range, own, len(self.into))

    def totals(self, group: Ints, groups: int) -> Ints:
        """Return the time of each group of items in ns, what lies in another of the same group not again."""
        nesting = self.nesting
        of_node = group[nesting.range]
        outer = once(nesting, of_node, of_node != NONE)
        length = (nesting.end - nesting.start) // self.scale
        return sums(of_node[outer], length[outer], groups)


def _named(joined: Attributed) -> tuple[tuple[Ints, Ints], Ints, list[str]]:
    """Return the rows of ranges and of calls that are listed, their names as codes, and the names."""
    ranges, launches = joined.report.ranges, joined.report.launches
    own, op = ranges["name"], joined.op
    rows = np.flatnonzero(op != NONE)
    pair, first = number(op[rows], frames.codes(own)[rows])
    recorded = [*own.cat.categories, ""]
    called = [
        _key(joined.ops[op[row]], recorded[code])
        for row, code in zip(rows[first], frames.codes(own)[rows][first], strict=True)
    ]
    hidden = np.array([name in HIDDEN for name in called], bool)[pair]
    api = list(launches["name"].cat.categories)
    codes, names = pd.factorize(np.array([*called, *api, ""], object))
    host, calls = codes[: len(called)], np.append(codes[len(called) :], NONE)
    name = np.concatenate((host[pair[~hidden]], calls[frames.codes(launches["name"])]))
    return (rows[~hidden], np.arange(len(launches))), name.astype(np.int64), list(names)


def _key(op: str, recorded: str) -> str:
    """Return the key of an op: steps of the profiler are all one."""
    return "ProfilerStep*" if op == "ProfilerStep" and recorded.startswith("ProfilerStep#") else op


def _nested(stack: Ints, start: Ints, end: Ints) -> tuple[Nesting, int]:
    """Nest items, those of no length as well: in doubled time, in which they last 1."""
    zero = int(start.min(initial=0))
    scale = 2 if int(end.max(initial=0)) - zero < LONGEST else 1
    instant = (start == end) & (scale > 1)
    return Nesting.of(stack, (start - zero) * scale, (end - zero) * scale + instant), scale


def _parents(nesting: Nesting, instant: Flags) -> Ints:
    """Return the item around each item, of those that have a length; NONE for outermost ones."""
    above = nesting.parent.copy()
    left = np.flatnonzero(above != NONE)
    while len(left):
        left = left[instant[nesting.range[above[left]]]]
        above[left] = nesting.parent[above[left]]
        left = left[above[left] != NONE]
    node = nesting.first_nodes(len(instant))
    around = np.append(above, NONE)[node]
    return np.append(nesting.range, NONE)[np.where(node == NONE, NONE, around)]


def _into(parent: Ints, name: Ints) -> Ints:
    """Return the item that each counts as: where one does nothing but call its like, that one."""
    into = np.arange(len(parent))
    inner = np.flatnonzero(parent != NONE)
    children = np.bincount(parent[inner], minlength=len(parent))
    alone = inner[(children[parent[inner]] == 1) & (name[inner] == name[parent[inner]])]
    into[alone] = parent[alone]
    while (into != into[into]).any():
        into = into[into]
    return into
