"""All work as one tree of stacks: step, then modules, then ops, then kernels; equal stacks are one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bridge.analyze.groups import counts, sums
from bridge.analyze.metrics import no_timeline
from bridge.join.arrays import NONE, Flags, Ints, by, runs, stable
from bridge.join.attributed import Attributed
from bridge.join.attribution import ATTRIBUTED, REASONS
from bridge.join.autograd import inherited
from bridge.join.nesting import SEPARATOR, Nesting
from importers import frames
from importers.texts import unique_names

# -- Sums up and down the tree of ranges: subtree totals, and every op above an activity once


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


# -- A tree of frames that paths are added to, all at once: equal paths under one frame are one


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


# -- All work as one tree of stacks: step, then modules, then ops, then kernels; equal stacks are one


LEVELS = ("step", "module", "op", "kernel", "reason")
STEP, MODULE, OP, KERNEL, REASON = range(len(LEVELS))
WEIGHTS = ("gpu", "cpu", "calls")
A_STEP = "step"  # of what is in a step and in nothing else, where steps are not told apart


@dataclass(frozen=True)
class CallTree:
    """Distinct stacks, a row per frame: parents before children; ``parent`` is a row, NONE of a root.

    ``code`` goes into ``names``, ``level`` into `LEVELS`. Times in ns are the frame's own: ``gpu_self_ns``
    is on leaves (on ops where there are no kernels), ``cpu_self_ns`` on ranges. ``count`` is of calls, on
    kernels and reasons of activities.
    """

    parent: Ints
    code: Ints
    names: list[str]
    level: Ints
    gpu_self_ns: Ints
    cpu_self_ns: Ints
    count: Ints

    def __len__(self) -> int:
        return len(self.parent)

    @cached_property
    def depth(self) -> Ints:
        """How many frames are above each."""
        return depths(self.parent)

    @cached_property
    def place(self) -> Ints:
        """The place of each when every frame is followed by what is under it, in order of row."""
        size, place = self.total(np.ones(len(self), np.int64)), np.zeros(len(self), np.int64)
        order = stable(self.parent)
        before = np.cumsum(size[order]) - size[order]
        edges = runs(self.parent[order])
        firsts = np.repeat(edges[:-1], np.diff(edges))
        place[order] = before - before[firsts]  # among those of the same parent
        for depth in range(1, int(self.depth.max(initial=0)) + 1):
            rows = np.flatnonzero(self.depth == depth)
            place[rows] += place[self.parent[rows]] + 1
        return place

    def weight(self, kind: str) -> Ints:
        """Return what each frame itself weighs, of `WEIGHTS`: time in ns, or its number of calls."""
        calls = np.where(self.level < KERNEL, self.count, 0)
        return dict(zip(WEIGHTS, (self.gpu_self_ns, self.cpu_self_ns, calls), strict=True))[kind]

    def total(self, values: Ints) -> Ints:
        """Return each frame's value plus those of everything under it."""
        total = values.copy()
        for depth in range(int(self.depth.max(initial=0)), 0, -1):
            rows = np.flatnonzero(self.depth == depth)
            np.add.at(total, self.parent[rows], total[rows])
        return total


def calltree(joined: Attributed, *, steps: bool = True, kernels: bool = True) -> CallTree:
    """Return the tree of what is counted.

    A stack is the step that the work was launched in (none without ``steps``), the modules that it
    belongs to (backward work: those of its forward range), the ops around it that are neither, and what
    ran (not without ``kernels``). Work without an op is under its reason. CPU time and calls are on ranges'
    own frames, in the step that was open when the range began; a call is where its first range is.
    """
    rows, nodes = np.flatnonzero(joined.counted), np.flatnonzero(joined.listed)
    own, first = own_time(joined.attribution.nesting)[nodes], _first_of_call(joined, nodes)
    own *= no_timeline.has_timeline(joined.report)  # else nothing is known of the host
    telling = np.flatnonzero((own != 0) | first)  # not a piece that is all in others
    nodes, own, first = nodes[telling], own[telling], first[telling]
    tree = Growing()
    place = _stacks(joined, tree, rows, nodes, steps=steps)
    work, ranges = place[: len(rows)], place[len(rows) :]
    reason = joined.attribution.reason[rows]
    work = tree.grown(work, or_none(reason, reason != ATTRIBUTED), Paths.of(REASONS), REASON)
    if kernels:
        work = tree.grown(work, *_kernels(joined, rows), KERNEL)
    listed = work if kernels else work[reason != ATTRIBUTED]
    parent, code, level, names = tree.columns()
    return CallTree(
        parent=parent,
        code=code,
        names=names,
        level=level,
        gpu_self_ns=sums(work, joined.duration[rows], tree.size),
        cpu_self_ns=sums(ranges, own, tree.size),
        count=counts(np.concatenate((ranges[first], listed)), tree.size),
    )


def own_time(nesting: Nesting) -> Ints:
    """Return the time of each node in ns without that of the nodes directly in it on its stack."""
    own = nesting.end - nesting.start
    inner = np.flatnonzero(nesting.parent != NONE)
    # What was adopted has a parent on another thread, and takes none of its time.
    inner = inner[nesting.stack[inner] == nesting.stack[nesting.parent[inner]]]
    length = (nesting.end - nesting.start)[inner]
    np.subtract.at(own, nesting.parent[inner], length)
    return own


# -- where in the tree


def _stacks(joined: Attributed, tree: Growing, rows: Ints, nodes: Ints, *, steps: bool) -> Ints:
    """Put the stacks of activities and of nodes into the tree; return the innermost frame of each, or NONE."""
    modules, ops, *paths = _paths(joined, nodes)
    both, pair = pairs(*paths)
    node = joined.attribution.node[rows]
    asked = np.append(or_none(node + len(nodes), node != NONE), np.arange(len(nodes)))
    step, numbers = _steps(joined, rows, nodes) if steps else (np.full(len(asked), NONE), [])
    # Distinct stacks are few, whatever there is of work: only those are looked at frame by frame.
    keys, stack = pairs(step, pair[asked])
    module, op = (column[keys[1]] for column in both)
    place = tree.grown(np.full(len(module), NONE), keys[0], Paths.of(numbers), STEP)
    place = tree.grown(place, module, modules, MODULE)
    place = tree.grown(place, op, ops, OP)[stack]
    bare = (place == NONE) & (asked != NONE)
    return tree.grown(place, np.where(bare, 0, NONE), Paths.of([A_STEP]), STEP)


def _paths(joined: Attributed, nodes: Ints) -> tuple[Paths, Paths, Ints, Ints]:
    """Return the paths of modules and of ops, and a row of each for these nodes, all nodes, and no node.

    For all nodes those of the work in them; for these nodes those of a range itself, which end with its own
    frame: a module's has no ops around it, a step's no modules.
    """
    nesting, around = joined.attribution.nesting, joined.modules.of
    is_step = _are(nesting, _step_ranges(joined))
    is_module = _are(nesting, joined.modules.nesting.range) & ~is_step
    modules, module = _modules(joined)
    ops, op = paths_without(nesting, joined.node_op, list(joined.ops), is_step | is_module)
    module = np.append(module, NONE)
    of_work, around_it = module[around[joined.belongs]], module[around]
    of_range = or_none(np.where(is_module, around_it, of_work), ~is_step)
    op_of_range = or_none(op, ~(is_step | is_module))
    return (
        modules,
        ops,
        np.concatenate((of_range[nodes], of_work, [NONE])),
        np.concatenate((op_of_range[nodes], op, [NONE])),
    )


def _steps(joined: Attributed, rows: Ints, nodes: Ints) -> tuple[Ints, list[str]]:
    """Return the step of activities, then of nodes, as a code (or NONE) into the steps' names."""
    of_range = joined.attribution.nesting.range[nodes]
    report, process, start = (
        frames.ints(joined.report.ranges, c)[of_range] for c in ("report", "process", "start")
    )
    # Steps of several processes that have one number are one.
    code, numbers = pd.factorize(joined.steps.number)
    step = np.concatenate((joined.activity_step[rows], joined.steps.at(report, process, start)))
    return np.append(code, NONE)[step], [f"{A_STEP} {number}" for number in numbers.tolist()]


def _modules(joined: Attributed) -> tuple[Paths, Ints]:
    """Return the paths of modules without steps, and the path of each node of modules."""
    modules = joined.modules
    path, parent = modules.path, modules.nesting.parent
    (inner, outer), name = pairs(path, np.append(path, NONE)[parent])
    names = [
        modules.paths[i].removeprefix(modules.paths[o] + SEPARATOR)
        if o != NONE
        else modules.paths[i]
        for i, o in zip(inner.tolist(), outer.tolist(), strict=True)
    ]
    name, names = unique_names(name, names)
    return paths_without(modules.nesting, name, names, _are(modules.nesting, _step_ranges(joined)))


def _step_ranges(joined: Attributed) -> Ints:
    """Return all ranges that are called what a step is: threads beside the one that tells have them too."""
    code = frames.codes(joined.report.ranges["name"])
    return np.flatnonzero(np.isin(code, np.unique(code[joined.steps.range])))


def _are(nesting: Nesting, ranges: Ints) -> Flags:
    """Tell which nodes are of one of these ranges."""
    size = max(int(of.max(initial=NONE)) for of in (ranges, nesting.range)) + 1
    found = np.zeros(size, bool)
    found[ranges] = True
    are: Flags = found[nesting.range]
    return are


def _kernels(joined: Attributed, rows: Ints) -> tuple[Ints, Paths]:
    """Return the name of each activity: of kernel, copy, fill or graph."""
    named = joined.report.activities["name"]
    return frames.codes(named)[rows], Paths.of(named.cat.categories)


def _first_of_call(joined: Attributed, nodes: Ints) -> Flags:
    """Tell which of these nodes are the first in time of a call."""
    nesting = joined.attribution.nesting
    call = joined.call[nesting.range[nodes]]
    order = by(call, nesting.start[nodes], nesting.range[nodes])
    first = np.zeros(len(nodes), bool)
    first[order[runs(call[order])[:-1]]] = True
    return first


# -- Stacks as flame graphs draw them: one text for the names on the way to each frame


UNNAMED = "(unnamed)"  # an empty frame would be lost
ENDS_A_LINE = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")


@dataclass(frozen=True)
class SampledStacks:
    """The frames of a tree, each followed by what is under it: ``stacks`` are codes of ``names`` with commas between.

    ``weights`` are int64 per frame, by the names of `WEIGHTS`, and ``totals`` their sums.
    """

    names: list[str]
    stacks: NDArray[np.object_]
    weights: dict[str, Ints]
    totals: dict[str, int]


def folded_stacks(tree: CallTree, weight: str) -> tuple[NDArray[np.object_], Ints]:
    """Return the distinct stacks that have a weight of their own, sorted, as texts, and those weights.

    Names get a comma for each semicolon and a blank for what may end a line; stacks whose names are then the
    same are one.
    """
    names = [ENDS_A_LINE.sub(" ", name).replace(";", ",").strip() for name in tree.names]
    own = tree.weight(weight)
    stacks = _stack_texts(tree, [name or UNNAMED for name in names], ";")[own != 0]
    code, lines = pd.factorize(stacks, sort=True)
    values = np.zeros(len(lines), np.int64)
    np.add.at(values, code, own[own != 0])
    return lines, values


def sampled_stacks(tree: CallTree) -> SampledStacks:
    """Return every frame with all its weights, parents before children."""
    order = np.argsort(tree.place)
    weights = {kind: tree.weight(kind)[order] for kind in WEIGHTS}
    return SampledStacks(
        [name or UNNAMED for name in tree.names],
        _stack_texts(tree, [str(code) for code in range(len(tree.names))], ",")[order],
        weights,
        {kind: int(values.sum()) for kind, values in weights.items()},
    )


def _stack_texts(tree: CallTree, names: list[str], between: str) -> NDArray[np.object_]:
    """Return the names on the way to each frame, its own last, in one text."""
    own = np.array(names, dtype=object)[tree.code]
    stacks = own.copy()
    for depth in range(1, int(tree.depth.max(initial=0)) + 1):
        rows = np.flatnonzero(tree.depth == depth)
        stacks[rows] = stacks[tree.parent[rows]] + between + own[rows]
    return stacks
