"""Every op, API call, kernel and copy under its key, as PyTorch's `key_averages` has them; frames in, frames out.

The invariant: the self times of the host add up to the time in which anything was open on each thread, those of
devices (in the rows of devices) to the time of all activities.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bridge.analyze.calltree import once, subtree_sums
from bridge.analyze.dialects.torch import names_of
from bridge.analyze.groups import Floats, counts, highest, lowest, sums, texts
from bridge.analyze.tables.average_rows import Averages
from bridge.analyze.tables.input_shapes import shapes as said_shapes
from bridge.join.arrays import NONE, Flags, Ints, by, number
from bridge.join.attributed import Attributed
from bridge.join.autograd import inherited
from bridge.join.nesting import Nesting
from importers import frames

# -- The Python functions around each op, for those who group by them


CATEGORY = "python_function"  # of the ranges that are such
# PyTorch's own functions on the way to the backward pass, which it leaves out.
BETWEEN = (("autograd/__init__", "_make_grads"), ("autograd/__init__", "backward"), ("torch/tensor", "backward"))  # fmt: skip


def stacks(joined: Attributed, rows: Ints, levels: int) -> tuple[Ints, list[str]]:
    """Return a code for each of some ranges, and the distinct stacks: so many names, innermost first, a line each."""
    ranges = joined.report.ranges
    functions = np.flatnonzero(_functions(ranges))
    if not (len(functions) and levels > 0):
        return np.zeros(len(rows), np.int64), [""]
    start, end = (frames.ints(ranges, c) for c in ("start", "end"))
    stack, _ = number(*(frames.ints(ranges, c) for c in ("report", "thread")))
    nesting = Nesting.of(stack[functions], start[functions], end[functions], functions)
    asked = _forward(joined, rows)
    node = nesting.innermost(stack[asked], start[asked])
    names = [*ranges["name"].cat.categories, ""]
    own = np.append(frames.codes(ranges["name"])[nesting.range], NONE)
    code, texts = np.zeros(len(rows), np.int64), [""]
    for _ in range(levels):
        code, texts = _deeper(code, texts, own[node], names)
        node = np.append(nesting.parent, NONE)[node]
    return code, texts


def _deeper(code: Ints, texts: list[str], name: Ints, names: list[str]) -> tuple[Ints, list[str]]:
    """Return stacks that have one name more, where there is one."""
    deeper, first = number(code, name)
    pairs = zip(code[first].tolist(), name[first].tolist(), strict=True)
    return deeper, [f"{texts[one]}\n{names[more]}".strip("\n") for one, more in pairs]


def _functions(ranges: pd.DataFrame) -> Flags:
    """Tell which ranges are functions that a stack shows."""
    column, category = ranges["name"], ranges["category"]
    shown = np.array([*map(_shown, column.cat.categories), False])
    of_python = np.array([*(name == CATEGORY for name in category.cat.categories), False])
    found: Flags = shown[frames.codes(column)] & of_python[frames.codes(category)]
    return found


def _shown(name: str) -> bool:
    return not any(file in name and function in name for file, function in BETWEEN)


def _forward(joined: Attributed, rows: Ints) -> Ints:
    """Return for each range the one that it goes back to, else itself."""
    nodes = joined.attribution.nesting.first_nodes(len(joined.report.ranges))[rows]
    forward = np.append(joined.directions.forward, NONE)[nodes]
    return np.where((nodes == NONE) | (forward == NONE), rows, forward)


# -- What ran on the host as PyTorch's profiler sees it: ops and API calls on one stack per thread


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


# -- Every op, API call, kernel and copy under its key, as PyTorch's `key_averages` has them; frames in, frames out


ANNOTATION = "user_annotation"  # the category of ranges that a program names itself
CPU, CUDA = DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Keys:
    """What items are told apart by: codes into ``names``, ``shapes`` and ``stacks``, and two flags."""

    device: Ints
    name: Ints
    annotation: Ints
    shape: Ints
    stack: Ints
    names: list[str]
    shapes: list[str]
    stacks: list[str]

    def groups(self) -> tuple[Ints, Ints]:
        """Number the distinct keys; also returns the first row of each."""
        group = self.device * 2 + self.annotation
        for column, values in (
            (self.name, self.names), (self.shape, self.shapes), (self.stack, self.stacks)
        ):  # fmt: skip
            group = pd.factorize(group * len(values) + column)[0]
        group = group.astype(np.int64)
        first = np.zeros(int(group.max(initial=NONE)) + 1, np.int64)
        first[group[::-1]] = np.arange(len(group))[::-1]
        return group, first


def averages(joined: Attributed, *, by_shape: bool = False, levels: int = 0) -> Averages:
    """Return one row per key: by name, on demand by shapes and by so many innermost Python functions too."""
    host = Host.of(joined)
    keys = _keys(joined, host, by_shape=by_shape, levels=levels)
    group, first = keys.groups()
    items = len(host.row)
    of_host, of_device = group[:items][host.into], group[items:]
    table = _described(keys, first)
    table |= _host_times(joined, host, of_host, len(first))
    table |= _device_times(joined, host, of_host, of_device, len(first))
    table["flops"] = _flops(joined, host, of_host, len(first))
    table["count"] += counts(of_device, len(first))
    table["is_top"] = (table["is_top"] > 0) | (table["device_type"] == CUDA)
    order = _first_begun(joined, host, np.concatenate((of_host, of_device)))
    used = order[table["count"][order] > 0]  # others hold what counts as another's
    frame = pd.DataFrame(table).iloc[used].reset_index(drop=True)
    values = {text: json.loads(text) for text in keys.shapes if text}
    return Averages(frame, CUDA if len(joined.report.activities) else None, values)


def _keys(joined: Attributed, host: Host, *, by_shape: bool, levels: int) -> Keys:
    """Return the keys of all items of the host, then of all activities."""
    work = names_of(joined.report.activities)
    items, activities = len(host.row), len(work.codes)
    codes, names = pd.factorize(np.array([*host.names, *work.names, ""], object))
    own, theirs = codes[: len(host.names)], np.append(codes[len(host.names) : -1], NONE)
    rows = host.row[: host.ranges]
    shape, shapes = _shapes(joined) if by_shape else (np.zeros(len(joined.op), np.int64), [""])
    stack, found = stacks(joined, rows, levels)
    rest = np.zeros(items + activities - len(rows), np.int64)
    return Keys(
        device=np.repeat(np.arange(2), (items, activities)),
        name=np.concatenate((own[host.name], theirs[work.codes])).astype(np.int64),
        annotation=np.concatenate((_annotations(joined.report.ranges)[rows], rest)),
        shape=np.concatenate((shape[rows], rest + _place(shapes))),
        stack=np.concatenate((stack, rest + _place(found))),
        names=list(names),
        shapes=shapes,
        stacks=found,
    )


def _place(distinct: list[str]) -> int:
    """Return where the empty text is; it is put there if need be."""
    if "" not in distinct:
        distinct.append("")
    return distinct.index("")


def _annotations(ranges: pd.DataFrame) -> Ints:
    category = ranges["category"]
    found = np.array([*(name == ANNOTATION for name in category.cat.categories), False])
    return found[frames.codes(category)].astype(np.int64)


def _shapes(joined: Attributed) -> tuple[Ints, list[str]]:
    """Return a code per range and the distinct shapes as JSON; a list of tensors is ``[]``, as for PyTorch."""
    code, distinct = said_shapes(joined)
    own, known = pd.factorize(np.array([*map(_flat, distinct)], object))
    return own[code].astype(np.int64), list(known)


def _flat(text: str) -> str:
    try:
        found = json.loads(text) if text else []
    except (ValueError, RecursionError):  # not as PyTorch writes it
        found = [text]
    entries: list[Any] = found if isinstance(found, list) else [found]
    lists = [
        isinstance(one, list) and any(isinstance(inner, list) for inner in one) for one in entries
    ]
    return json.dumps([[] if nested else one for one, nested in zip(entries, lists, strict=True)])


def _described(keys: Keys, first: Ints) -> dict[str, Any]:
    return {
        "key": texts(keys.names)[keys.name[first]],
        "device_type": texts(DEVICES)[keys.device[first]],
        "is_user_annotation": keys.annotation[first].astype(bool),
        "input_shapes": texts(keys.shapes)[keys.shape[first]],
        "stack": texts(keys.stacks)[keys.stack[first]],
    }


def _host_times(joined: Attributed, host: Host, group: Ints, groups: int) -> dict[str, Ints]:
    calls = _calls(joined, host)
    top = host.parent[calls] == NONE
    return {
        "count": counts(group[calls], groups),
        "self_cpu_ns": sums(group, host.self_times(), groups),
        "cpu_total_ns": host.totals(group, groups),
        "is_top": highest(group[calls], top.astype(np.int64), groups, empty=0),
    }


def _calls(joined: Attributed, host: Host) -> Ints:
    """Return the items that count as calls; of one in slices the first."""
    call = joined.call[host.row[: host.ranges]]
    again = np.zeros(len(host.row), bool)
    again[: host.ranges] = pd.Series(call).duplicated().to_numpy()
    return np.flatnonzero(host.is_call & ~again)


def _device_times(
    joined: Attributed, host: Host, of_host: Ints, of_device: Ints, groups: int
) -> dict[str, Ints]:
    """Return the times of devices: of an op what it launched itself, and all that was launched in it."""
    nesting, owner = joined.attribution.nesting, joined.attribution.node
    listed = np.full(len(joined.op), NONE)
    listed[host.row[: host.ranges]] = of_host[: host.ranges]
    group = inherited(nesting, listed[nesting.range])
    has = owner != NONE
    of_node = sums(owner[has], joined.duration[has], len(nesting))
    own = group != NONE
    outer = once(nesting, group, own)
    total = subtree_sums(nesting, of_node)
    work = sums(of_device, joined.duration, groups)
    return {
        "self_device_ns": work + sums(group[own], of_node[own], groups),
        "device_total_ns": work + sums(group[outer], total[outer], groups),
    }


def _flops(joined: Attributed, host: Host, group: Ints, groups: int) -> Floats:
    """Return the FLOPs that recordings have of each group's calls."""
    column = joined.report.ranges["json"]
    said = [_said(text) for text in column.cat.categories]
    items = np.flatnonzero(host.is_call[: host.ranges])
    own = np.array([*said, 0], np.float64)[frames.codes(column)[host.row[items]]]
    total = np.zeros(groups)
    np.add.at(total, group[items], own)
    return total


def _said(text: str) -> float:
    if '"flops"' not in text:
        return 0
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return 0
    count = found.get("flops") if isinstance(found, dict) else 0
    return count if isinstance(count, int | float) and count > 0 else 0


def _first_begun(joined: Attributed, host: Host, group: Ints) -> Ints:
    """Return the groups in the order in which their first items began, outer ones first."""
    start = np.concatenate((host.start, frames.ints(joined.report.activities, "start")))
    end = np.concatenate((host.end, joined.end))
    groups = int(group.max(initial=NONE)) + 1
    began = lowest(group, start, groups)
    at_once = np.flatnonzero(start == began[group])
    return by(began, -highest(group[at_once], end[at_once], groups))
