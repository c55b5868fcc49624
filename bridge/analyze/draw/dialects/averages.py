"""Averages per op, API call, kernel and copy, as PyTorch's `key_averages` computes them.

The self times of the host add up to the time in which anything was open on each thread; the self
times of devices (in the rows of devices) add up to the time of all activities.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from bridge.analyze.core.call_details import call_stacks, input_shapes, overloads
from bridge.analyze.core.calltree import outermost as once
from bridge.analyze.core.calltree import subtree_sums
from bridge.analyze.core.groups import Floats, counts, highest, lowest, sums, texts
from bridge.analyze.core.table import Table
from bridge.analyze.draw.dialects.average_rows import Averages
from bridge.analyze.draw.dialects.torch import activity_names
from bridge.importers import frames
from bridge.importers.arrays import factorize, lookup, scatter
from bridge.importers.frames import Names
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by
from bridge.join.attributed import AttributedCapture
from bridge.join.nesting import Nesting, inherited

# -- The stack of Python functions around each op


CATEGORY = "python_function"  # of ranges that are Python functions
# PyTorch's functions between a program and the backward pass; PyTorch leaves them out of stacks.
SKIPPED_FUNCTIONS = (
    ("autograd/__init__", "_make_grads"),
    ("autograd/__init__", "backward"),
    ("torch/tensor", "backward"),
)


def stacks(attributed: AttributedCapture, rows: Ints, levels: int) -> tuple[Ints, list[str]]:
    """Return a code per row and the distinct stacks of Python functions around the ranges.

    A stack is a text of at most ``levels`` function names, innermost first, a line each.
    """
    ranges = attributed.capture.ranges
    functions = np.flatnonzero(_listed(ranges) & is_python(ranges))
    if levels <= 0:
        return np.zeros(len(rows), np.int64), [""]
    if not len(functions):
        return _recorded_stacks(attributed, rows, levels)
    start, end = ranges.start, ranges.end
    stack, _ = number_groups(ranges.report, ranges.thread)
    nesting = Nesting.of(stack[functions], start[functions], end[functions], functions)
    forward_rows = _forward(attributed, rows)
    own = nesting.first_nodes(len(ranges))[forward_rows]  # the stack of a function is around it
    around = nesting.innermost(stack[forward_rows], start[forward_rows])
    node = np.where(own == NONE, around, nesting.parent[own])
    names = [*ranges.name.texts, ""]
    name_codes = np.append(ranges.name.codes[nesting.range], NONE)
    code, texts = np.zeros(len(rows), np.int64), [""]
    for _ in range(levels):
        code, texts = _extended(code, texts, name_codes[node], names)
        node = lookup(nesting.parent, node)
    return code, texts


def _recorded_stacks(
    attributed: AttributedCapture, rows: Ints, levels: int
) -> tuple[Ints, list[str]]:
    """Return the stacks that annotations recorded, cut to so many frames."""
    code, distinct = call_stacks(attributed)
    cut = ["\n".join(text.splitlines()[:levels]) for text in distinct]
    codes, names = factorize(np.array([*cut, ""], object))
    return codes[code[_forward(attributed, rows)]].astype(np.int64), list(names)


def _extended(code: Ints, texts: list[str], name: Ints, names: list[str]) -> tuple[Ints, list[str]]:
    """Return the stacks extended by one more name; a row without a further name keeps its stack."""
    extended, first = number_groups(code, name)
    pairs = zip(code[first].tolist(), name[first].tolist(), strict=True)
    return extended, [f"{texts[stack]}\n{names[function]}".strip("\n") for stack, function in pairs]


def is_python(ranges: frames.Ranges) -> Flags:
    """Return which ranges are Python functions, of a trace with stacks."""
    return ranges.category.among(CATEGORY)


def _listed(ranges: frames.Ranges) -> Flags:
    """Return which ranges have the name of a function that a stack lists."""
    return ranges.name.matching(_is_listed)


def _is_listed(name: str) -> bool:
    return not any(file in name and function in name for file, function in SKIPPED_FUNCTIONS)


def _forward(attributed: AttributedCapture, rows: Ints) -> Ints:
    """Return for each range the forward range that it belongs to, or the range itself."""
    nodes = attributed.attribution.nesting.first_nodes(len(attributed.capture.ranges))[rows]
    forward = lookup(attributed.directions.forward, nodes)
    return np.where((nodes == NONE) | (forward == NONE), rows, forward)


# -- Ops and API calls on the host, on one stack per thread


MAX_DOUBLED = 1 << 61  # ns: the longest time that can be doubled
# PyTorch leaves these out of its lists: queries of tensors, and events of the profiler itself.
HIDDEN = frozenset(
    "[memory] [OutOfMemory] profiler::_record_function_enter profiler::_record_function_enter_new"
    " profiler::_record_function_exit aten::is_leaf aten::output_nr aten::_version".split()
)


@record
class Host:
    """Items on the host: the ranges that are ops or Python functions, then all API calls.

    Attributes:
        row: the row of each item in its frame.
        ranges: the number of items that are ranges.
        start, end: times of each item in ns.
        name: the name of each item as a code into ``names``.
        names: the distinct names.
        parent: the item around each item, or NONE.
        into: the item that each item is counted as.
        nesting: how the items nest.
        scale: the factor by which the times of ``nesting`` are multiplied.

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
    def of(cls, attributed: AttributedCapture) -> Host:
        """Nest the items of a report, one stack per thread."""
        rows, name, names = _host_names(attributed)
        parts = (attributed.capture.ranges, attributed.capture.launches)

        def column(name: str) -> Ints:
            columns = (part[name] for part in parts)
            return np.concatenate([c[row] for c, row in zip(columns, rows, strict=True)])

        report, thread, start, end = map(column, ("report", "thread", "start", "end"))
        end = np.maximum(start, end)
        stack, _ = number_groups(report, thread)
        nesting, scale = _nested(stack, start, end)
        parent = _parents(nesting, start == end)
        into = _counted_as(parent, name)
        item = np.concatenate(rows)
        return cls(
            row=item,
            ranges=len(rows[0]),
            start=start,
            end=end,
            name=name,
            names=names,
            parent=parent,
            into=into,
            nesting=nesting,
            scale=scale,
        )

    @property
    def is_call(self) -> Flags:
        """Which items count as calls: those that are not counted as another item."""
        result: Flags = self.into == np.arange(len(self.into))
        return result

    def self_times(self) -> Ints:
        """Return the time of each item without the items inside it, in ns."""
        nesting = self.nesting
        length = (nesting.end - nesting.start) // self.scale
        inner, self_time = np.flatnonzero(nesting.parent != NONE), length.copy()
        np.subtract.at(self_time, nesting.parent[inner], length[inner])
        return sums(nesting.range, self_time, len(self.into))

    def totals(self, group: Ints, groups: int) -> Ints:
        """Return the time of each group in ns; an item inside another of its group is not added."""
        nesting = self.nesting
        node_group = group[nesting.range]
        outer = once(nesting, node_group, node_group != NONE)
        length = (nesting.end - nesting.start) // self.scale
        return sums(node_group[outer], length[outer], groups)


def _host_names(attributed: AttributedCapture) -> tuple[tuple[Ints, Ints], Ints, list[str]]:
    """Return the rows of listed ranges and of calls, their names as codes, and the names.

    Python functions are listed as PyTorch lists them, whether they are ops or not.
    """
    ranges, launches = attributed.capture.ranges, attributed.capture.launches
    range_names, op = ranges.name, attributed.op
    rows = np.flatnonzero((op != NONE) | is_python(ranges))
    pair, first = number_groups(op[rows], range_names.codes[rows])
    recorded = [*range_names.texts, ""]
    op_names = [
        recorded[code] if op[row] == NONE else _op_key(attributed.ops[op[row]], recorded[code])
        for row, code in zip(rows[first], range_names.codes[rows][first], strict=True)
    ]
    hidden = np.array([name in HIDDEN for name in op_names], bool)[pair]
    names = Names.of([*op_names, *launches.name.texts])
    of_op, of_call = np.split(names.codes, [len(op_names)])
    name = np.concatenate((of_op[pair[~hidden]], lookup(of_call, launches.name.codes)))
    return (rows[~hidden], np.arange(len(launches))), name, names.texts


def _op_key(op: str, recorded: str) -> str:
    """Return the key of an op; all steps of the profiler have one key."""
    return "ProfilerStep*" if op == "ProfilerStep" and recorded.startswith("ProfilerStep#") else op


def _nested(stack: Ints, start: Ints, end: Ints) -> tuple[Nesting, int]:
    """Nest items; times are doubled, so that items of no length nest too, with length 1."""
    zero = int(start.min(initial=0))
    scale = 2 if int(end.max(initial=0)) - zero < MAX_DOUBLED else 1
    instant = (start == end) & (scale > 1)
    return Nesting.of(stack, (start - zero) * scale, (end - zero) * scale + instant), scale


def _parents(nesting: Nesting, instant: Flags) -> Ints:
    """Return the innermost item of positive length around each item; NONE for outermost items."""
    above = nesting.parent.copy()
    left = np.flatnonzero(above != NONE)
    while len(left):
        left = left[instant[nesting.range[above[left]]]]
        above[left] = nesting.parent[above[left]]
        left = left[above[left] != NONE]
    node = nesting.first_nodes(len(instant))
    around = lookup(above, node)
    return lookup(nesting.range, np.where(node == NONE, NONE, around))


def _counted_as(parent: Ints, name: Ints) -> Ints:
    """Return the item that each item is counted as.

    An item that is the only child of an item of the same name is counted as that item.
    """
    into = np.arange(len(parent))
    inner = np.flatnonzero(parent != NONE)
    children = np.bincount(parent[inner], minlength=len(parent))
    alone = inner[(children[parent[inner]] == 1) & (name[inner] == name[parent[inner]])]
    into[alone] = parent[alone]
    while (into != into[into]).any():
        into = into[into]
    return into


# -- Items grouped by their keys


ANNOTATION = "user_annotation"  # category of ranges that the program named itself
CPU, CUDA = DEVICES = ("cpu", "cuda")


@record
class Keys:
    """The keys of all items of the host and all activities.

    ``name``, ``shape``, ``stack`` and ``overload`` are codes into ``names``, ``shapes``, ``stacks`` and
    ``overloads``;
    ``device`` and ``annotation`` are flags (0 or 1).
    """

    device: Ints
    name: Ints
    annotation: Ints
    shape: Ints
    stack: Ints
    overload: Ints
    names: list[str]
    shapes: list[str]
    stacks: list[str]
    overloads: list[str]

    def groups(self) -> tuple[Ints, Ints]:
        """Return a number per distinct key for each row, and the first row of each key."""
        group = self.device * 2 + self.annotation
        for column, values in (
            (self.name, self.names),
            (self.shape, self.shapes),
            (self.stack, self.stacks),
            (self.overload, self.overloads),
        ):
            group = factorize(group * len(values) + column)[0]
        group = group.astype(np.int64)
        first = np.zeros(int(group.max(initial=NONE)) + 1, np.int64)
        first[group[::-1]] = np.arange(len(group))[::-1]
        return group, first


def averages(
    attributed: AttributedCapture,
    *,
    by_shape: bool = False,
    levels: int = 0,
    by_overload: bool = False,
) -> Averages:
    """Return one row per name and device.

    With ``by_shape``, rows also differ by input shapes; with ``levels``, by that many innermost
    frames of recorded call stacks; with ``by_overload``, by the overload of the op.
    """
    host = Host.of(attributed)
    keys = _keys(attributed, host, by_shape=by_shape, levels=levels, by_overload=by_overload)
    group, first = keys.groups()
    items = len(host.row)
    host_group, device_group = group[:items][host.into], group[items:]
    table = _labels(keys, first)
    table |= _host_times(attributed, host, host_group, len(first))
    table |= _device_times(
        attributed, host, host_group=host_group, device_group=device_group, groups=len(first)
    )
    table["flops"] = _flops(attributed, host, host_group, len(first))
    table["count"] += counts(device_group, len(first))
    table["is_top"] = (table["is_top"] > 0) | (table["device_type"] == CUDA)
    order = _first_begun(attributed, host, np.concatenate((host_group, device_group)))
    # A group without calls holds only items that are counted as others.
    used = order[table["count"][order] > 0]
    frame = Table(table)[used]
    values = {text: json.loads(text) for text in keys.shapes if text}
    return Averages(frame, CUDA if len(attributed.capture.activities) else None, values)


def _keys(
    attributed: AttributedCapture, host: Host, *, by_shape: bool, levels: int, by_overload: bool
) -> Keys:
    """Return the keys of all items of the host, followed by those of all activities."""
    work = activity_names(attributed.capture.activities)
    items, activities = len(host.row), len(work.codes)
    codes, names = factorize(np.array([*host.names, *work.names, ""], object))
    host_codes, device_codes = (
        codes[: len(host.names)],
        np.append(codes[len(host.names) : -1], NONE),
    )
    rows = host.row[: host.ranges]
    nothing = (np.zeros(len(attributed.op), np.int64), [""])
    shape, shapes = _shapes(attributed) if by_shape else nothing
    overload, overload_names = overloads(attributed) if by_overload else nothing
    stack, stack_texts = stacks(attributed, rows, levels)
    zeros = np.zeros(items + activities - len(rows), np.int64)
    is_annotation = attributed.capture.ranges.category.among(ANNOTATION).astype(np.int64)
    return Keys(
        device=np.repeat(np.arange(2), (items, activities)),
        name=np.concatenate((host_codes[host.name], device_codes[work.codes])).astype(np.int64),
        annotation=np.concatenate((is_annotation[rows], zeros)),
        shape=np.concatenate((shape[rows], zeros + _empty_text(shapes))),
        stack=np.concatenate((stack, zeros + _empty_text(stack_texts))),
        overload=np.concatenate((overload[rows], zeros + _empty_text(overload_names))),
        names=list(names),
        shapes=shapes,
        stacks=stack_texts,
        overloads=overload_names,
    )


def _empty_text(distinct: list[str]) -> int:
    """Return the index of the empty text, which is appended if it is missing."""
    if "" not in distinct:
        distinct.append("")
    return distinct.index("")


def _shapes(attributed: AttributedCapture) -> tuple[Ints, list[str]]:
    """Return a code per range and the distinct shapes as JSON; lists of tensors are ``[]``."""
    code, distinct = input_shapes(attributed)
    codes, names = factorize(np.array([*map(_without_lists, distinct)], object))
    return codes[code].astype(np.int64), list(names)


def _without_lists(text: str) -> str:
    try:
        result = json.loads(text) if text else []
    except (ValueError, RecursionError):  # not as PyTorch writes it
        result = [text]
    entries: list[Any] = result if isinstance(result, list) else [result]
    lists = [
        isinstance(entry, list) and any(isinstance(inner, list) for inner in entry)
        for entry in entries
    ]
    return json.dumps(
        [[] if is_list else entry for entry, is_list in zip(entries, lists, strict=True)]
    )


def _labels(keys: Keys, first: Ints) -> dict[str, Any]:
    return {
        "key": texts(keys.names)[keys.name[first]],
        "device_type": texts(DEVICES)[keys.device[first]],
        "is_user_annotation": keys.annotation[first].astype(bool),
        "input_shapes": texts(keys.shapes)[keys.shape[first]],
        "stack": texts(keys.stacks)[keys.stack[first]],
        "overload_name": texts(keys.overloads)[keys.overload[first]],
    }


def _host_times(
    attributed: AttributedCapture, host: Host, group: Ints, groups: int
) -> dict[str, Ints]:
    calls = _calls(attributed, host)
    top = host.parent[calls] == NONE
    return {
        "count": counts(group[calls], groups),
        "self_cpu_ns": sums(group, host.self_times(), groups),
        "cpu_total_ns": host.totals(group, groups),
        "is_top": highest(group[calls], top.astype(np.int64), groups, empty=0),
    }


def _calls(attributed: AttributedCapture, host: Host) -> Ints:
    """Return the items that count as calls; for a call in slices, its first slice."""
    rows = host.row[: host.ranges]
    again = np.zeros(len(host.row), bool)
    again[: host.ranges] = True
    again[np.unique(attributed.call[rows], return_index=True)[1]] = False
    again[: host.ranges] &= attributed.op[rows] != NONE
    return np.flatnonzero(host.is_call & ~again)


def _device_times(
    attributed: AttributedCapture, host: Host, host_group: Ints, device_group: Ints, groups: int
) -> dict[str, Ints]:
    """Return the device times of each group.

    The self time of an op is that of the activities it launched itself; the total time is that of
    all activities launched in it.
    """
    nesting, owner = attributed.attribution.nesting, attributed.attribution.node
    range_group = scatter(host_group[: host.ranges], host.row[: host.ranges], len(attributed.op))
    group = inherited(nesting, range_group[nesting.range])
    has_op = owner != NONE
    node_time = sums(owner[has_op], attributed.duration[has_op], len(nesting))
    in_group = group != NONE
    outer = once(nesting, group, in_group)
    total = subtree_sums(nesting, node_time)
    work = sums(device_group, attributed.duration, groups)
    of_range = sums(nesting.range, node_time, len(attributed.op))
    return {
        "self_device_ns": work + sums(group[in_group], node_time[in_group], groups),
        "device_total_ns": work
        + sums(group[outer], total[outer], groups)
        + _python_totals(attributed, host, time=of_range, group=host_group, groups=groups),
    }


def _python_totals(
    attributed: AttributedCapture, host: Host, time: Ints, group: Ints, groups: int
) -> Ints:
    """Return the device times in Python functions that are no ops; ``time`` is that of each range itself."""
    nesting, rows = host.nesting, host.row[: host.ranges]
    function = np.zeros(len(host.row), bool)
    function[: host.ranges] = attributed.op[rows] == NONE
    if not function.any():
        return np.zeros(groups, np.int64)
    item_time = np.zeros(len(host.row), np.int64)
    item_time[: host.ranges] = time[rows]
    is_first = np.zeros(len(nesting), bool)  # an item of several nodes has its time once
    is_first[np.unique(nesting.range, return_index=True)[1]] = True
    total = subtree_sums(nesting, np.where(is_first, item_time[nesting.range], 0))
    outer = once(nesting, group[nesting.range], function[nesting.range])
    return sums(group[nesting.range][outer], total[outer], groups)


def _flops(attributed: AttributedCapture, host: Host, group: Ints, groups: int) -> Floats:
    """Return the recorded FLOPs of the calls of each group."""
    column = attributed.capture.ranges.json
    values = [_recorded_flops(text) for text in column.texts]
    items = np.flatnonzero(host.is_call[: host.ranges])
    flops = np.array([*values, 0], np.float64)[column.codes[host.row[items]]]
    total = np.zeros(groups)
    np.add.at(total, group[items], flops)
    return total


def _recorded_flops(text: str) -> float:
    if '"flops"' not in text:
        return 0
    try:
        result = json.loads(text)
    except (ValueError, RecursionError):
        return 0
    count = result.get("flops") if isinstance(result, dict) else 0
    return count if isinstance(count, int | float) and count > 0 else 0


def _first_begun(attributed: AttributedCapture, host: Host, group: Ints) -> Ints:
    """Return the groups in the order in which their first items began, outer groups first."""
    start = np.concatenate((host.start, attributed.capture.activities.start))
    end = np.concatenate((host.end, attributed.end))
    groups = int(group.max(initial=NONE)) + 1
    first_start = lowest(group, start, groups)
    is_first = np.flatnonzero(start == first_start[group])
    return order_by(first_start, -highest(group[is_first], end[is_first], groups))
