"""Nesting of push/pop ranges, computed on whole columns: parents, levels and modules.

The ranges open at an instant are the innermost one and its chain of parents. NVTX forbids ranges
that cross within a domain, but not between two domains. Ranges that cross are cut into pieces that
nest, so that the chain at any instant is exactly the set of ranges with start <= instant < end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import count, pairwise

import numpy as np

from bridge.importers.arrays import lookup, positions, scatter
from bridge.importers.capture import Capture
from bridge.importers.records import record
from bridge.importers.texts import Texts, unique_names
from bridge.join.arrays import (
    NONE,
    Flags,
    Ints,
    blocks,
    number_groups,
    order_by,
    run_edges,
    stable_order,
    taken,
    unless_outer_first,
)
from bridge.join.forest import ancestors, levels, nearest
from bridge.join.grammar import parse
from bridge.join.paths import paths

# -- The nesting


MAX_ROUNDS = 1_000  # of cutting; a range of a real program crosses only a few others
MAX_PIECES = 4, 100_000  # limit: factor per range, plus a constant
FEW_LEVELS = 8  # that are climbed one by one, before the tables of far ancestors are made


class TangledError(ValueError):
    """Ranges cross each other so often that their pieces would not fit in memory.

    Has a message for the user.
    """


@record
class Nesting:
    """Nodes, one per range or piece of a range, sorted by stack, then start, outer before inner.

    ``range`` is the row of each node's range, ``parent`` a node or NONE. A parent comes before its
    children. ``crossed`` holds the rows of the ranges that were cut.
    """

    stack: Ints
    start: Ints
    end: Ints
    range: Ints
    parent: Ints
    crossed: Ints

    @classmethod
    def of(cls, stack: Ints, start: Ints, end: Ints, rows: Ints | None = None) -> Nesting:
        """Nest ranges; ``rows`` are their row numbers, ``stack`` is a number for each (thread, …).

        Ranges of no length get no node. Of two ranges with the same start the longer one is outer.
        Of two with the same interval the earlier row is outer, which is the order of their pushes.
        Raises TangledError if ranges cross too often.
        """
        if not (end > start).all():
            lasting = np.flatnonzero(end > start)
            stack, start, end = (taken(c, lasting) for c in (stack, start, end))
            rows = lasting if rows is None else rows[lasting]
        order = unless_outer_first(stack, start, end)
        if order is not None:
            stack, start, end = (taken(c, order) for c in (stack, start, end))
            rows = order if rows is None else rows[order]
        rows = np.arange(len(start)) if rows is None else rows
        return cls._nested(stack, start, end, rows)

    @classmethod
    def _nested(cls, stack: Ints, start: Ints, end: Ints, rows: Ints) -> Nesting:
        crossed: list[Ints] = []
        rank = np.arange(len(rows), dtype=np.int32)
        limit = MAX_PIECES[0] * len(rows) + MAX_PIECES[1]
        while len(crossed) < MAX_ROUNDS and len(rows) <= limit:
            parent = parents(stack, start, end)
            crossing = np.flatnonzero((parent != NONE) & (end > end[parent]))
            # A piece that follows a cut lies in ranges that started after its own: these are cut first.
            crossing = crossing[rank[parent[crossing]] < rank[crossing]]
            if not len(crossing):
                cut = np.unique(np.concatenate([*crossed, np.empty(0, np.int64)]))
                return cls(
                    stack=stack, start=start, end=end, range=rows, parent=parent, crossed=cut
                )
            crossed.append(rows[crossing])
            # ``rank`` keeps the piece after the cut inside the ranges that started before the
            # range.
            cut_time, old_end = end[parent[crossing]], end[crossing]
            end = end.copy()  # it may be that of the ranges
            end[crossing] = cut_time
            stack, rows = (np.append(c, c[crossing]) for c in (stack, rows))
            rank = np.append(rank, rank[crossing])
            start, end = np.append(start, cut_time), np.append(end, old_end)
            order = order_by(stack, start, rank)
            stack, start, end, rows = (c[order] for c in (stack, start, end, rows))
            rank = rank[order]
        raise TangledError(
            "ranges of one thread cross each other by the thousand; is the export damaged?"
        )

    def __len__(self) -> int:
        return len(self.start)

    def innermost(self, stack: Ints, instant: Ints) -> Ints:
        """Return the innermost node open at each (stack, instant), or NONE."""
        result = np.empty(len(instant), np.int64)
        for rows in blocks(len(instant)):  # in pieces that stay in the cache
            result[rows] = self._last_started(stack[rows], instant[rows])
            self._leave_ended(result[rows], instant[rows])
        return result

    def _leave_ended(self, nodes: Ints, instant: Ints) -> None:
        """Replace each node that has ended at its instant by the innermost one around it that has not."""
        self._leave(nodes, lambda rows, node: self.end[node] <= instant[rows])

    def _leave(self, nodes: Ints, is_left: Callable[[Ints, Ints], Flags]) -> None:
        """Replace each node that is left by the innermost one around it that is not, or NONE.

        ``is_left`` is asked for places in ``nodes`` and a node for each. Around a node that is not
        left, none of the same stack is.
        """
        pending = np.flatnonzero(nodes != NONE)
        for number in count():
            pending = pending[is_left(pending, nodes[pending])]
            if not len(pending):
                return
            if number >= FEW_LEVELS:
                self._rise(nodes, pending, is_left)
            nodes[pending] = self.parent[nodes[pending]]
            pending = pending[nodes[pending] != NONE]

    def _rise(self, nodes: Ints, rows: Ints, is_left: Callable[[Ints, Ints], Flags]) -> None:
        """Replace the nodes in some rows, which are left, by the outermost one of the stack that is."""
        for ancestor in reversed(self._ancestors):
            above = ancestor[nodes[rows]]
            open_rows = np.flatnonzero(above != NONE)
            open_rows = open_rows[is_left(rows[open_rows], above[open_rows])]
            nodes[rows[open_rows]] = above[open_rows]

    @cached_property
    def own_parent(self) -> Ints:
        """The parent of each node on its own stack, NONE where that is a node of another thread."""
        is_own = (self.parent != NONE) & (self.stack == lookup(self.stack, self.parent))
        return np.where(is_own, self.parent, NONE)

    @cached_property
    def _ancestors(self) -> list[Ints]:
        """The nodes 1, 2, 4 … levels above each node on its stack, NONE where there are fewer."""
        return ancestors(self.own_parent)

    def innermost_of(self, nodes: tuple[int, int], instant: Ints) -> Ints:
        """Return the innermost node open at each instant on the stack of these nodes, or NONE.

        ``nodes`` are the first node of the stack and the first one after it.
        """
        first, last = nodes
        place = first - 1 + np.searchsorted(self.start[first:last], instant, side="right")
        result = np.where(place >= first, place, NONE)
        self._leave_ended(result, instant)
        return result

    def enclosing(self, stack: Ints, start: Ints, end: Ints) -> Ints:
        """Return the innermost node of a stack that contains each interval, or NONE.

        A node equal to the interval does not count, or two equal nodes could contain each other.
        """

        def is_left(rows: Ints, candidate: Ints) -> Flags:
            is_equal = (self.start[candidate] == start[rows]) & (self.end[candidate] == end[rows])
            result: Flags = (self.end[candidate] < end[rows]) | is_equal
            return result

        node = self.innermost(stack, start)
        self._leave(node, is_left)
        return node

    def first_nodes(self, ranges: int) -> Ints:
        """Return the first node of each of ``ranges`` ranges, or NONE."""
        return scatter(np.arange(len(self))[::-1], self.range[::-1], ranges)

    @cached_property
    def level(self) -> Ints:
        """The depth of each node; 0 is outermost."""
        return levels(self.parent)

    def _last_started(self, stack: Ints, instant: Ints) -> Ints:
        """Return the last node of the stack with start <= instant, or NONE."""
        result = np.full(len(instant), NONE)
        order = stable_order(stack)
        row_edges = run_edges(stack[order])
        for first, last in pairwise(row_edges):  # one iteration per stack
            rows = order[first:last]
            a, b = self._nodes_of_stacks.get(int(stack[rows[0]]), (0, 0))
            place = a - 1 + np.searchsorted(self.start[a:b], instant[rows], side="right")
            result[rows] = np.where(place >= a, place, NONE)
        return result

    @cached_property
    def _nodes_of_stacks(self) -> dict[int, tuple[int, int]]:
        """The first node of each stack, and the first one after it."""
        return {int(self.stack[a]): (a, b) for a, b in pairwise(run_edges(self.stack).tolist())}


def parents(stack: Ints, start: Ints, end: Ints) -> Ints:
    """Return the last earlier node that is still open when each node starts, or NONE.

    The first candidate is the node before. A candidate that has ended is replaced by its own
    candidate: all nodes between the two have ended too. Distances double, so a few rounds suffice.
    """
    candidate = np.arange(-1, len(start) - 1)
    candidate[run_edges(stack)[:-1]] = NONE

    def has_ended(rows: slice | Ints) -> Flags:
        before = candidate[rows]
        result: Flags = (before != NONE) & (end[before] <= start[rows])
        return result

    parts = [block.start + np.flatnonzero(has_ended(block)) for block in blocks(len(start))]
    pending = np.concatenate([np.empty(0, np.int64), *parts])
    while len(pending):
        candidate[pending] = candidate[candidate[pending]]
        pending = pending[has_ended(pending)]
    return candidate


def inherited(nesting: Nesting, own: Ints) -> Ints:
    """Return each node's own value, or the value of the nearest enclosing node that has one."""
    result: Ints = lookup(own, nearest(nesting.parent, own != NONE))
    return result


# -- Modules: the ranges that stand for modules of the model


MODULE_CATEGORY = "module"  # NVTX category of a range that stands for a module
API_CATEGORY = "api"  # of a call of PyTorch's Python API


LIBRARY_KINDS = ("operator", "communication")  # kinds of ranges that libraries write, not users


@record
class Modules:
    """The ranges that stand for modules, as a nesting of their own.

    ``nearest`` is the node of the nearest enclosing module of each node of all ranges, or NONE.
    ``path`` is a code into ``paths`` per module node. ``marked`` says which of them are marked as
    modules; others only take the place of modules. ``name`` is a code into ``names`` per module node.
    """

    nesting: Nesting
    nearest: Ints
    path: Ints
    paths: Sequence[str]
    marked: Flags
    name: Ints
    names: list[str]

    @classmethod
    def of_report(cls, capture: Capture, nesting: Nesting, op: Ints, ops: Sequence[str]) -> Modules:
        """Find the module ranges of a report; ``op`` is a code into ``ops`` per node.

        Module ranges are those named ``nn.Module: X``, ``module:X`` or ``layer:X``, and those of
        the category "module". In a report without any, all ranges count as modules that are neither
        operators of a framework nor communication.
        """
        marked = _is_marked(capture)[nesting.range]
        nodes = np.flatnonzero(_is_module(capture, nesting, marked))
        module_node = positions(nodes, len(nesting))
        nearest = inherited(nesting, module_node)
        parent = nesting.parent[nodes]
        modules = replace(
            nesting,
            **{c: getattr(nesting, c)[nodes] for c in ("stack", "start", "end", "range")},
            parent=lookup(nearest, parent),
        )
        name, names = unique_names(op[nodes], [_module_name(name) for name in ops])
        path, texts = paths(modules.parent, name, names, dotted=True)
        return cls(
            nesting=modules,
            nearest=nearest,
            path=path,
            paths=texts,
            marked=marked[nodes],
            name=name,
            names=names,
        )


def _is_marked(capture: Capture) -> Flags:
    """Return which ranges are modules by their name or category."""
    name, category = capture.ranges.name, capture.ranges.category
    named = name.matching(lambda text: parse(text).kind == "module")
    return named | category.among(MODULE_CATEGORY)


def _is_module(capture: Capture, nesting: Nesting, named: Flags) -> Flags:
    ranges = capture.ranges
    is_candidate = ranges.name.matching(lambda name: parse(name).kind not in LIBRARY_KINDS)
    is_candidate &= ~_is_pytorch_operator(capture, ranges.name.codes)
    is_candidate &= ~ranges.category.among(API_CATEGORY)  # calls of a library's API
    report_of = ranges.report[nesting.range]
    has_modules = np.bincount(report_of[named], minlength=int(report_of.max(initial=0)) + 1) > 0
    return np.where(has_modules[report_of], named, is_candidate[nesting.range])


def _is_pytorch_operator(capture: Capture, name: Ints) -> Flags:
    """Return which ranges share their name with one that has PyTorch's per-call text."""
    ranges = capture.ranges
    sizes = capture.texts.sizes[ranges.text]
    longer = sizes > Texts.of(ranges.name.texts).sizes[name]
    key, _ = number_groups(ranges.report, name)
    return np.isin(key, np.unique(key[longer]))


def _module_name(op: str) -> str:
    label = parse(op)
    return str(dict(label.arguments).get("module", op)) if label.kind == "module" else op
