"""Compute the ops of a page with their work, the use of devices, and the icicle plot."""

from __future__ import annotations

from typing import Any

import numpy as np

from bridge.analyze.core.calltree import LEVELS, STEP, CallTree, calltree
from bridge.analyze.core.devices import Devices
from bridge.analyze.core.groups import counts, highest, sums, times
from bridge.analyze.core.table import Array, Table
from bridge.analyze.draw.overview.axis import Axis, Bins, Names, largest_mask
from bridge.analyze.run.concurrency.overlap import ANY, KINDS, Running, running
from bridge.analyze.tables.breakdown import by_op
from bridge.importers.arrays import lookup, scatter
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by
from bridge.join.attributed import AttributedCapture
from bridge.join.attribution import REASONS

# -- Demangled names, which distinguish kernels with the same short name


MAX_NAME = 1_000  # characters; names of nested templates may be very long


def full_names(
    attributed: AttributedCapture, group: Ints, names: Ints, has_single_name: Flags
) -> list[str]:
    """Return per group of activities the full name with the most time.

    ``group`` is the group of each activity. The number of further names follows the name. The
    result is '' where the full name equals the name in ``names``, is unknown, or ``own`` is False
    as the group has several names.
    """
    column = attributed.capture.activities.full_name
    pair, first = number_groups(group, column.codes)
    group_of_pair, code = group[first], column.codes[first]
    order = order_by(group_of_pair, -sums(pair, attributed.duration, len(first)), code)
    _, top = np.unique(group_of_pair[order], return_index=True)  # groups are numbered without gaps
    further = counts(group_of_pair, len(names)) - 1
    texts = [*column.texts, ""]
    chosen_names = (texts[c] for c in code[order][top].tolist())
    rows = zip(
        names.tolist(), chosen_names, further.tolist(), has_single_name.tolist(), strict=True
    )
    return [
        _full_name_text(name, full, others) if is_own else "" for name, full, others, is_own in rows
    ]


def _full_name_text(name: str, full: str, others: int) -> str:
    if full in {"", name}:
        return ""
    cut = full if len(full) <= MAX_NAME else f"{full[:MAX_NAME]}…"
    return f"{cut} (and {others} more)" if others else cut


# -- Ops and their work


MAX_OPS = 1_500
MAX_KERNELS = 6_000
ORDER = ["gpu_self_ns", "gpu_total_ns", "cpu_total_ns"]
FIGURES = "calls gpu_self_ns gpu_total_ns gpu_busy_ns gpu_mean_ns gpu_max_ns cpu_self_ns cpu_total_ns".split()


def operators(attributed: AttributedCapture, names: Names) -> dict[str, Any] | None:
    """Return the ops as columns, largest first, and ``work``: what ran in each, by op and name.

    ``kind`` is "op", "reason" (no op; its time is self time only) or "other" (the sum of further
    ops). In ``work``, ``full`` is the demangled name if it says more than the name, else -1; ``of``
    is the row of the op. The self time of an op is the sum of its work.
    """
    table = _ops(attributed)
    if not len(table):
        return None
    work = _work(attributed, table)
    listed = {
        "name": names.of(table["op"]),
        "kind": table["kind"].tolist(),
        **{column: _rounded(table[column]) for column in FIGURES},
    }
    return {
        **listed,
        "work": {**work, "name": names.of(work["name"]), "full": names.of_some(work["full"])},
    }


def cpu_figures(attributed: AttributedCapture) -> dict[str, Any] | None:
    """Return the CPU time of all ops and the op with most of it, in ns; None if anything ran on a GPU.

    The times are self times: they add up to ``total_ns``.
    """
    if len(attributed.capture.activities) or not len(table := by_op(attributed)):
        return None
    largest = int(table["cpu_self_ns"].argmax())
    return {
        "total_ns": int(table["cpu_self_ns"].sum()),
        "op": str(table["op"][largest]),
        "op_ns": int(table["cpu_self_ns"][largest]),
        "ops": len(table),
    }


def _rounded(column: Array) -> list[int]:
    whole: list[int] = np.rint(column).astype(np.int64).tolist()
    return whole


def _ops(attributed: AttributedCapture) -> Table:
    """Return the ops in order, then the sum of further ops, then the reasons."""
    table = by_op(attributed).assign(kind="op")
    table = table.sort_values([*ORDER, "op"], ascending=[False] * len(ORDER) + [True])
    few, further = table.head(MAX_OPS), table[MAX_OPS:]
    parts = [few[["op", "kind", *FIGURES]]]
    if len(further):
        sums_of_further = {
            c: int(further[c].sum()) for c in ("calls", "gpu_self_ns", "cpu_self_ns")
        }
        parts.append(_row(f"{len(further)} more ops", "other", **sums_of_further))
    parts += _reasons(attributed)
    return Table.concat([part for part in parts if len(part)] or parts[:1])


def _row(name: str, kind: str, **values: int) -> Table:
    return Table({"op": name, "kind": kind, **dict.fromkeys(FIGURES, NONE), **values})


def _reasons(attributed: AttributedCapture) -> list[Table]:
    """Return a row for each reason in use."""
    reason, time, size = attributed.attribution.reason, attributed.duration, len(REASONS)
    count, total = counts(reason, size), sums(reason, time, size)
    longest = highest(reason, time, size)
    return [
        _row(
            name,
            "reason",
            calls=int(count[code]),
            gpu_self_ns=int(total[code]),
            gpu_total_ns=int(total[code]),
            gpu_max_ns=int(longest[code]),
        )
        for code, name in enumerate(REASONS)
        if name and count[code]
    ]


def _work(attributed: AttributedCapture, table: Table) -> dict[str, Any]:
    """Return kernels, memcpys, memsets and graphs by op and name, largest first."""
    row = _rows(attributed, table)
    codes = attributed.activity_name.codes
    categories = attributed.activity_name.texts
    group, first = number_groups(row, codes)
    values = times(group, attributed.duration, len(first))
    is_listed = largest_mask(np.asarray(values["total_ns"]), MAX_KERNELS)
    if not is_listed.all():  # further names become a single one under their op
        codes = np.where(is_listed[group], codes, len(categories))
        group, first = number_groups(row, codes)
        values = times(group, attributed.duration, len(first))
    names = np.array([*categories, "more names"], dtype=object)[codes[first]]
    full = full_names(attributed, group, names, codes[first] < len(categories))
    work = Table({"of": row[first], "name": names, "full": full, **values})
    work = work.sort_values(["of", "total_ns", "name"], ascending=[True, False, True])
    return {
        "of": work["of"].tolist(),
        "name": work["name"].tolist(),
        "full": work["full"].tolist(),
        **{c: _rounded(work[c]) for c in ("count", "total_ns", "mean_ns", "max_ns")},
    }


def _rows(attributed: AttributedCapture, table: Table) -> Ints:
    """Return the row of the table of each activity."""
    rows = [*zip(table["op"].tolist(), table["kind"].tolist(), range(len(table)), strict=True)]
    row_of_name = {name: at for name, kind, at in rows if kind == "op"}
    other = next((at for _, kind, at in rows if kind == "other"), 0)
    of_op = np.array([*(row_of_name.get(name, other) for name in attributed.ops), NONE], np.int64)
    reasons = {name: at for name, kind, at in rows if kind == "reason"}
    of_reason = np.array([reasons.get(name, NONE) for name in REASONS], np.int64)
    row = of_op[attributed.activity_op]
    return np.where(row == NONE, of_reason[attributed.attribution.reason], row)


# -- Use of devices over time


MAX_BINS = 240


def utilisation(attributed: AttributedCapture, axis: Axis) -> dict[str, Any] | None:
    """Return for each device and kind of work its busy time in each bin, in ns.

    Kinds without work are left out, and so is the only other kind beside "any".
    """
    if not len(attributed.capture.activities) or not axis.length:
        return None
    bins = axis.bins(MAX_BINS)
    devices = Devices.of_report(attributed)
    series = [_busy_times(running(attributed, kind), bins, len(devices.names)) for kind in KINDS]
    return {
        "bin_ns": bins.width,
        "length_ns": axis.length,
        "devices": [
            {
                "name": name,
                "series": _distinct_series(
                    {kind: result[number] for kind, result in zip(KINDS, series, strict=True)}
                ),
            }
            for number, name in enumerate(devices.names)
        ],
    }


def _distinct_series(series: dict[str, Ints]) -> dict[str, list[int]]:
    with_work = {kind: time.tolist() for kind, time in series.items() if time.any()}
    return with_work if len(with_work) != 2 else {ANY: series[ANY].tolist()}  # noqa: PLR2004 (any, and one kind)


def _busy_times(work: Running, bins: Bins, size: int) -> Ints:
    """Return the busy time of each device (row) in each bin; ``work`` is when the devices ran."""
    piece, bin_number, length = bins.spread(work.start, work.end)
    place = work.device[piece] * bins.count + bin_number
    return sums(place, length, size * bins.count).reshape(size, -1)


# -- The icicle plot: the largest frames of the call tree, with sums of the others


MAX_FRAMES = 3_000
MAX_STEPS = 64  # more would be too thin to distinguish
MIN_FRACTION = 1_000  # frames below a thousandth of the total are summed up
OTHER_LEVEL = "other"


def icicle(attributed: AttributedCapture, names: Names) -> dict[str, Any] | None:
    """Return the frames of the call tree, over all steps and step by step.

    ``merged`` are the frames in which all steps share frames, ``by_step`` those with a frame per
    step: None without steps, or if there are too many. Both are columns, parents before children,
    children by size. ``value`` is the time of a frame and everything under it: on the GPU, or on
    the CPU if there is no GPU time (``unit``). Level "other" is the sum of frames under ``parent``
    that are too small. The own value of a frame and those of its children add up exactly.
    """
    tree = calltree(attributed, steps=False)
    unit = "gpu" if int(tree.gpu_self_ns.sum()) else "cpu"
    merged = _frames(tree, unit, names)
    if merged is None:
        return None
    steps = len(attributed.steps)
    by_step = (
        _frames(calltree(attributed, steps=True), unit, names) if 0 < steps <= MAX_STEPS else None
    )
    return {"unit": unit, "steps": steps, "merged": merged, "by_step": by_step}


def _frames(tree: CallTree, unit: str, names: Names) -> dict[str, Any] | None:
    """Return the largest frames of a tree as columns, None if there is no time at all."""
    self_time = tree.gpu_self_ns if unit == "gpu" else tree.cpu_self_ns
    total = tree.total(np.maximum(self_time, 0))
    if not len(tree) or not total.max():
        return None
    return _frame_columns(tree, total, _large_frames(tree, total), names)


def _large_frames(tree: CallTree, total: Ints) -> Flags:
    """Return a mask of the largest frames; a parent is at least as large as its child."""
    root_total = int(total[tree.parent == NONE].sum())
    return largest_mask(total, MAX_FRAMES) & (total * MIN_FRACTION >= root_total) & (total > 0)


def _frame_columns(tree: CallTree, total: Ints, is_kept: Flags, names: Names) -> dict[str, Any]:
    cut = np.flatnonzero(~is_kept & lookup(is_kept, tree.parent, True) & (total > 0))
    parents, parent_index = np.unique(tree.parent[cut], return_inverse=True)
    rest_values, size = (
        sums(parent_index, total[cut], len(parents)),
        counts(parent_index, len(parents)),
    )
    rows = np.flatnonzero(is_kept)
    parent = np.concatenate((tree.parent[rows], parents))
    value = np.concatenate((total[rows], rest_values))
    order = _drawing_order(tree, rows, parents, value)
    position = scatter(np.argsort(order)[: len(rows)], rows, len(tree))
    levels = [*(LEVELS[code] for code in tree.level[rows].tolist()), *[OTHER_LEVEL] * len(parents)]
    name_numbers = names.of_codes(tree.code[rows], tree.names) + names.of(
        f"{n} smaller" for n in size.tolist()
    )
    return {
        "parent": lookup(position, parent)[order].tolist(),
        "name": np.array(name_numbers, np.int64)[order].tolist(),
        "level": [levels[at] for at in order.tolist()],
        "value": value[order].tolist(),
        "count": np.concatenate((tree.count[rows], size))[order].tolist(),
    }


def _drawing_order(tree: CallTree, rows: Ints, above: Ints, value: Ints) -> Ints:
    """Return the order by depth: steps in time order, others by size, sums last."""
    depth = np.concatenate((tree.depth[rows], lookup(tree.depth, above) + 1))
    is_rest = np.arange(len(value)) >= len(rows)
    is_step = np.append(tree.level[rows], np.full(len(above), NONE)) == STEP
    return order_by(
        depth, is_rest.astype(np.int64), np.where(is_step, np.arange(len(value)), -value)
    )
