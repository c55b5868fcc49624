"""Build the call tree of a capture: steps, modules, ops and kernels, with their times.

The module also sums values over the tree of ranges, and writes stacks as text for flame graphs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.core import no_timeline
from bridge.analyze.core.groups import counts, sums
from bridge.importers.arrays import factorize, lookup, positions
from bridge.importers.frames import pick
from bridge.importers.records import record
from bridge.importers.texts import unique_names
from bridge.join.arrays import NONE, Flags, Ints, order_by, run_edges
from bridge.join.attributed import AttributedCapture
from bridge.join.attribution import ATTRIBUTED, REASONS
from bridge.join.forest import depth_first, distinct_paths, folded, is_repeated, levels
from bridge.join.nesting import Nesting, inherited
from bridge.join.paths import CUT, capped

# -- Sums over the tree of ranges


def subtree_sums(nesting: Nesting, values: Ints) -> Ints:
    """Return the value of each node plus those of all nodes under it."""
    return folded(nesting.parent, values)


def subtree_extremes(nesting: Nesting, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Return the minimum of ``low`` and the maximum of ``high`` over each node and all under it."""
    parent = nesting.parent
    return folded(parent, low, np.minimum), folded(parent, high, np.maximum)


def outermost(nesting: Nesting, op: Ints, is_listed: Flags) -> Flags:
    """Return which of the listed nodes lie inside no other listed node of the same op."""
    return is_listed & ~is_repeated(nesting.parent, np.where(is_listed, op, NONE))


def stacks(nesting: Nesting, node: Ints) -> tuple[Ints, Ints]:
    """Return (row, node) for every node on the stack of each row, including the row's own node."""
    none = np.empty(0, np.int64)
    rows, nodes = zip((none, none), *stack_levels(nesting, node), strict=True)
    return np.concatenate(rows), np.concatenate(nodes)


def stack_levels(nesting: Nesting, node: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield (row, node) of `stacks` level by level, from each row's own node upwards."""
    rows = np.flatnonzero(node != NONE)
    nodes = pick(node, rows)
    while len(rows):
        yield rows, nodes
        nodes = nesting.parent[nodes]
        has_node = nodes != NONE
        rows, nodes = rows[has_node], nodes[has_node]


# -- Paths, and a tree to which paths are added


@record
class Paths:
    """Distinct paths: row i is the name ``names[code[i]]`` under the path ``parent[i]``, or NONE.

    A parent is an earlier row.
    """

    parent: Ints
    code: Ints
    names: list[str]

    @classmethod
    def of(cls, names: Iterable[str]) -> Paths:
        """Return one path of a single name for each name."""
        names = list(names)
        return cls(np.full(len(names), NONE), np.arange(len(names)), names)

    def by_depth(self) -> list[Ints]:
        """Return, for each depth from the outermost on, the ancestor of each path at that depth.

        It is NONE where the path is shorter.
        """
        depth, begin = levels(self.parent), np.arange(len(self.parent))
        result = []
        for level in range(int(depth.max(initial=NONE)), NONE, -1):
            result.append(where_or_none(begin, depth >= level))
            begin = np.where(depth >= level, self.parent[begin], begin)
        return result[::-1]


class TreeBuilder:
    """A tree of frames to which paths are added; equal paths under the same frame share a frame."""

    def __init__(self) -> None:
        self.size = 0
        self._names: list[str] = []
        self._columns: list[tuple[Ints, Ints, Ints]] = []

    def add(self, frame: Ints, path: Ints, paths: Paths, level: int) -> Ints:
        """Add a path under each frame, and return the innermost frame of each row.

        ``frame`` is NONE where the path begins at the root; ``path`` is a row of ``paths``, or
        NONE.
        """
        result = frame.copy()
        for ancestors in paths.by_depth():
            ancestor = lookup(ancestors, path)
            rows = np.flatnonzero(ancestor != NONE)
            (parent, end), key = pairs(result[rows], ancestor[rows])
            self._columns.append(
                (parent, paths.code[end] + len(self._names), np.full(len(end), level))
            )
            result[rows] = key + self.size
            self.size += len(end)
        self._names += paths.names
        return result

    def columns(self) -> tuple[Ints, Ints, Ints, list[str]]:
        """Return the parent, name code and level of each frame, and the names."""
        parent, code, level = (
            np.concatenate([np.empty(0, np.int64), *columns])
            for columns in zip(*self._columns, strict=True)
        )
        code, used = factorize(code)
        names = [self._names[name] for name in used.tolist()]
        code, names = unique_names(code.astype(np.int64), names)
        return parent, code, level, names


def filtered_paths(
    nesting: Nesting, name: Ints, names: list[str], is_excluded: Flags
) -> tuple[Paths, Ints]:
    """Return the distinct paths of nodes without the excluded nodes, and the path of each node.

    The path is NONE where nothing is left.
    """
    included = np.flatnonzero(~is_excluded)
    position = positions(included, len(nesting) + 1)
    visible = inherited(nesting, position[:-1])
    outer = lookup(visible, nesting.parent[included])
    above, last, path = distinct_paths(outer, name[included])
    parent, of_path, place = capped(above)
    code = np.append(last, len(names))[of_path]  # the last entry is for the levels that are cut
    return Paths(parent, code, [*names, CUT]), lookup(place[path], visible)


def pairs(first: Ints, second: Ints) -> tuple[tuple[Ints, Ints], Ints]:
    """Return the distinct pairs of two columns, and the row of each pair among them.

    Values are -1 or larger. The pairs are returned as two columns.
    """
    width = int(second.max(initial=NONE)) + 2
    key, distinct = factorize((first + 1) * width + second + 1)
    firsts, seconds = np.divmod(distinct, width)
    return (firsts - 1, seconds - 1), key.astype(np.int64)


def where_or_none(values: Ints, mask: Flags) -> Ints:
    """Return the values where the mask is true, NONE elsewhere."""
    return np.where(mask, values, NONE)


# -- The call tree


LEVELS = ("step", "module", "op", "kernel", "reason")
STEP, MODULE, OP, KERNEL, REASON = range(len(LEVELS))
WEIGHTS = ("gpu", "cpu", "calls")
STEP_NAME = "step"  # frame of work that is in a step only, where steps are not separate frames


@record
class CallTree:
    """Distinct stacks, one row per frame, parents before children.

    ``parent`` is a row, NONE for a root. ``code`` is a position in ``names``, ``level`` in
    `LEVELS`. ``gpu_self_ns`` and ``cpu_self_ns`` are times in ns of the frame itself: GPU time is
    on leaves (on ops where the tree has no kernels), CPU time on ranges. ``count`` is the number of
    calls, for kernels and reasons the number of activities.
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
        """Number of frames above each frame."""
        return levels(self.parent)

    @cached_property
    def place(self) -> Ints:
        """Position of each frame in depth-first order; children are in order of rows."""
        return depth_first(self.parent)[0]

    def weight(self, kind: str) -> Ints:
        """Return the weight of each frame itself, without its children.

        ``kind`` is one of `WEIGHTS`: GPU or CPU time in ns, or the number of calls.
        """
        calls = np.where(self.level < KERNEL, self.count, 0)
        return dict(zip(WEIGHTS, (self.gpu_self_ns, self.cpu_self_ns, calls), strict=True))[kind]

    def total(self, values: Ints) -> Ints:
        """Return the value of each frame plus those of all frames under it."""
        return folded(self.parent, values)


@record
class Stacked:
    """A call tree, and the frame of each activity and range that it sums.

    ``work`` are the frames of the ``activities`` (rows), ``ranges`` those of the ``nodes`` that
    have CPU time of their own (``cpu_self_ns``) or are the first of their call (``is_call``).
    ``step`` is a code into ``step_numbers`` of each activity, then of each node; NONE in no step,
    and in all rows if steps are not kept apart.
    """

    tree: CallTree
    activities: Ints
    work: Ints
    nodes: Ints
    ranges: Ints
    cpu_self_ns: Ints
    is_call: Flags
    step: Ints
    step_numbers: Ints


def calltree(
    attributed: AttributedCapture, *, steps: bool = True, kernels: bool = True
) -> CallTree:
    """Return the call tree of the activities and ranges that are counted.

    A stack consists of the step in which the work was launched (only with ``steps``), its modules
    (for backward work those of the forward range, if they are marked as modules), the ops that are
    neither, and the kernel or copy (only with ``kernels``). Work without an op is listed under its
    reason. CPU time and calls are on the frames of ranges, in the step that was open when the range
    began; a call is where its first range is.
    """
    return stacked(attributed, steps=steps, kernels=kernels).tree


def stacked(attributed: AttributedCapture, *, steps: bool = True, kernels: bool = True) -> Stacked:
    """Return the call tree, and the frame of each activity and range in it."""
    rows, nodes = np.flatnonzero(attributed.counted), np.flatnonzero(attributed.listed)
    cpu_self = self_times(attributed.attribution.nesting)[nodes]
    first = _first_of_call(attributed, nodes)
    cpu_self *= no_timeline.has_timeline(attributed.capture)  # else no host times were recorded
    relevant = np.flatnonzero((cpu_self != 0) | first)  # without pieces that other ranges cover
    nodes, cpu_self, first = nodes[relevant], cpu_self[relevant], first[relevant]
    tree = TreeBuilder()
    step, numbers = np.full(len(rows) + len(nodes), NONE), np.empty(0, np.int64)
    if steps:
        step, numbers = _steps(attributed, rows, nodes)
    frame = _stacks(attributed, tree, rows, nodes, step=step, numbers=numbers)
    work, ranges = frame[: len(rows)], frame[len(rows) :]
    reason = attributed.attribution.reason[rows].astype(np.int64)
    work = tree.add(work, where_or_none(reason, reason != ATTRIBUTED), Paths.of(REASONS), REASON)
    if kernels:
        work = tree.add(work, *_kernels(attributed, rows), KERNEL)
    counted_work = work if kernels else work[reason != ATTRIBUTED]
    parent, code, level, names = tree.columns()
    summed = CallTree(
        parent=parent,
        code=code,
        names=names,
        level=level,
        gpu_self_ns=sums(work, attributed.duration[rows], tree.size),
        cpu_self_ns=sums(ranges, cpu_self, tree.size),
        count=counts(np.concatenate((ranges[first], counted_work)), tree.size),
    )
    return Stacked(
        tree=summed,
        activities=rows,
        work=work,
        nodes=nodes,
        ranges=ranges,
        cpu_self_ns=cpu_self,
        is_call=first,
        step=step,
        step_numbers=numbers,
    )


def self_times(nesting: Nesting) -> Ints:
    """Return the time of each node in ns without that of its children on the same stack."""
    self_time = nesting.end - nesting.start
    children = np.flatnonzero(nesting.parent != NONE)
    # An adopted node has a parent on another thread and takes none of its time.
    children = children[nesting.stack[children] == nesting.stack[nesting.parent[children]]]
    length = (nesting.end - nesting.start)[children]
    np.subtract.at(self_time, nesting.parent[children], length)
    return self_time


# -- The stack of each activity and node


def _stacks(
    attributed: AttributedCapture,
    tree: TreeBuilder,
    rows: Ints,
    nodes: Ints,
    *,
    step: Ints,
    numbers: Ints,
) -> Ints:
    """Add the stacks of activities and nodes to the tree; return their innermost frames or NONE."""
    modules, ops, *paths = _paths(attributed, nodes)
    columns_of_paths, pair = pairs(*paths)
    node = attributed.attribution.node[rows]
    position_of = np.append(where_or_none(node + len(nodes), node != NONE), np.arange(len(nodes)))
    # There are few distinct stacks, however many activities: only those are added frame by frame.
    keys, stack = pairs(step, pair[position_of])
    module, op = (column[keys[1]] for column in columns_of_paths)
    numbered = Paths.of(f"{STEP_NAME} {number}" for number in numbers.tolist())
    frame = tree.add(np.full(len(module), NONE), keys[0], numbered, STEP)
    frame = tree.add(frame, module, modules, MODULE)
    frame = tree.add(frame, op, ops, OP)[stack]
    is_bare = (frame == NONE) & (position_of != NONE)
    return tree.add(frame, np.where(is_bare, 0, NONE), Paths.of([STEP_NAME]), STEP)


def _paths(attributed: AttributedCapture, nodes: Ints) -> tuple[Paths, Paths, Ints, Ints]:
    """Return the paths of modules and of ops, and two columns with a path of each.

    The columns hold these nodes, then all nodes, then NONE. For all nodes the paths are those of
    the work in them; for these nodes they are those of the range itself, which end with its own
    frame: the path of a module has no ops, that of a step has no modules.
    """
    nesting, nearest = attributed.hierarchy, attributed.modules.nearest
    is_step = _is_of_ranges(nesting, _step_ranges(attributed))
    is_module = _is_of_ranges(nesting, attributed.modules.nesting.range) & ~is_step
    modules, module = _modules(attributed)
    name, names = attributed.hierarchy_names
    ops, op = filtered_paths(nesting, name, list(names), is_step | is_module)
    module = np.append(module, NONE)
    of_work, nearest_path = module[attributed.module_of_work], module[nearest]
    of_range = where_or_none(np.where(is_module, nearest_path, of_work), ~is_step)
    op_of_range = where_or_none(op, ~(is_step | is_module))
    return (
        modules,
        ops,
        np.concatenate((of_range[nodes], of_work, [NONE])),
        np.concatenate((op_of_range[nodes], op, [NONE])),
    )


def _steps(attributed: AttributedCapture, rows: Ints, nodes: Ints) -> tuple[Ints, Ints]:
    """Return the step of activities, then of nodes, as a code or NONE, and the steps' numbers."""
    of_range = attributed.attribution.nesting.range[nodes]
    report, process, start = (
        attributed.capture.ranges.report[of_range],
        attributed.capture.ranges.process[of_range],
        attributed.capture.ranges.start[of_range],
    )
    # Steps with the same number in several processes share a frame.
    code, numbers = factorize(attributed.steps.number)
    step = np.concatenate(
        (attributed.activity_step[rows], attributed.steps.at(report, process, start))
    )
    return lookup(code, step), numbers


def _modules(attributed: AttributedCapture) -> tuple[Paths, Ints]:
    """Return the paths of modules without steps, and the path of each node of modules."""
    modules = attributed.modules
    is_step = _is_of_ranges(modules.nesting, _step_ranges(attributed))
    return filtered_paths(modules.nesting, modules.name, modules.names, is_step)


def _step_ranges(attributed: AttributedCapture) -> Ints:
    """Return all ranges that have the name of a step range.

    Threads other than the one that defines the steps have such ranges, too.
    """
    code = attributed.capture.ranges.name.codes
    return np.flatnonzero(np.isin(code, np.unique(code[attributed.steps.range])))


def _is_of_ranges(nesting: Nesting, ranges: Ints) -> Flags:
    """Return whether each node is a node of one of these ranges."""
    size = max(int(rows.max(initial=NONE)) for rows in (ranges, nesting.range)) + 1
    values = np.zeros(size, bool)
    values[ranges] = True
    are: Flags = values[nesting.range]
    return are


def _kernels(attributed: AttributedCapture, rows: Ints) -> tuple[Ints, Paths]:
    """Return the name of each activity as a row of paths, and these paths."""
    named = attributed.activity_name
    return named.codes[rows], Paths.of(named.texts)


def _first_of_call(attributed: AttributedCapture, nodes: Ints) -> Flags:
    """Return whether each of these nodes is the first in time of its call."""
    nesting = attributed.attribution.nesting
    call = attributed.call[nesting.range[nodes]]
    order = order_by(call, nesting.start[nodes], nesting.range[nodes])
    first = np.zeros(len(nodes), bool)
    first[order[run_edges(call[order])[:-1]]] = True
    return first


# -- Stacks as text, for flame graphs


UNNAMED = "(unnamed)"  # tools drop a frame with an empty name
ENDS_A_LINE = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")


@record
class SampledStacks:
    """The frames of a tree in depth-first order.

    ``stacks`` are texts of codes into ``names``, separated by commas. ``weights`` are int64 per
    frame by the names of `WEIGHTS`, and ``totals`` their sums.
    """

    names: list[str]
    stacks: NDArray[np.object_]
    weights: dict[str, Ints]
    totals: dict[str, int]


def folded_stacks(tree: CallTree, weight: str) -> tuple[NDArray[np.object_], Ints]:
    """Return the distinct stacks with a weight of their own as sorted texts, and their weights.

    Semicolons in names become commas, line breaks become blanks. Stacks with the same text are
    added up.
    """
    names = [ENDS_A_LINE.sub(" ", name).replace(";", ",").strip() for name in tree.names]
    weights = tree.weight(weight)
    stacks = _stack_texts(tree, [name or UNNAMED for name in names], ";")[weights != 0]
    lines, code = np.unique(stacks, return_inverse=True)
    values = np.zeros(len(lines), np.int64)
    np.add.at(values, code, weights[weights != 0])
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


@record
class Boxes:
    """The frames of a flame graph, parents before children, and all of them in one box at first.

    ``start`` and ``share`` are parts of the whole width, ``weight`` is that of the frame and all
    under it. Narrow frames are left out. ``depth`` is 0 for the first box, ``level`` a row of
    `LEVELS`, NONE for the first.
    """

    names: list[str]
    level: Ints
    depth: Ints
    start: NDArray[np.float64]
    share: NDArray[np.float64]
    weight: Ints


def boxes(tree: CallTree, weight: str, min_share: float) -> Boxes:
    """Return the boxes of a flame graph; a frame's own weight is left of the frames above it."""
    order = np.argsort(tree.place)
    own = tree.weight(weight)[order]
    start, total = np.cumsum(own) - own, tree.total(tree.weight(weight))[order]
    whole = int(own.sum())
    rows = np.flatnonzero(total > max(min_share * whole, 0))
    names = [tree.names[code] or UNNAMED for code in tree.code[order][rows].tolist()]
    return Boxes(
        names=["all", *names],
        level=np.append(NONE, tree.level[order][rows]),
        depth=np.append(0, tree.depth[order][rows] + 1),
        start=np.append(0, start[rows] / max(whole, 1)),
        share=np.append(1.0, total[rows] / max(whole, 1)),
        weight=np.append(whole, total[rows]),
    )


def _stack_texts(tree: CallTree, names: list[str], between: str) -> NDArray[np.object_]:
    """Return the names from the root to each frame as one text."""
    names_of_frames = np.array(names, dtype=object)[tree.code]
    stacks = names_of_frames.copy()
    for depth in range(1, int(tree.depth.max(initial=0)) + 1):
        rows = np.flatnonzero(tree.depth == depth)
        stacks[rows] = stacks[tree.parent[rows]] + between + names_of_frames[rows]
    return stacks
