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

from bridge.analyze.averages.host import Host
from bridge.analyze.averages.rows import Averages
from bridge.analyze.averages.stacks import stacks
from bridge.analyze.breakdown.said import shapes as said_shapes
from bridge.analyze.dialects.torch_device import names_of
from bridge.analyze.groups import Floats, counts, highest, lowest, sums, texts
from bridge.analyze.tree import once, subtree_sums
from bridge.join.attributed import Attributed
from bridge.join.autograd import inherited
from bridge.join.order import NONE, Ints, by
from importers import frames

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
