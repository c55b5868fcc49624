"""Draw the work of devices per stream, and above it the ops projected onto the device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bridge.analyze.core.groups import Floats, counts, highest, lowest
from bridge.analyze.cost.metrics.values import HEADLINES, MATCH, MATCH_LEVELS, select_metrics
from bridge.analyze.draw.timeline.parts import (
    Chain,
    Column,
    Json,
    NameColumn,
    Slices,
    make_slices,
    times,
)
from bridge.analyze.draw.timeline.parts import name_column as named
from bridge.analyze.draw.tracks import Tracks, disjoint_lanes, nested_lanes
from bridge.analyze.run.concurrency.communication import message_columns
from bridge.importers import frames
from bridge.importers.arrays import lookup
from bridge.importers.frames import pick
from bridge.join.arrays import (
    NONE,
    Ints,
    is_single_value,
    number_groups,
    repeated,
    stable_order,
)
from bridge.join.attributed import AttributedCapture
from bridge.join.attribution import (
    ATTRIBUTED,
    BY_PHASE,
    OF_ANOTHER_THREAD,
    REASONS,
    RULES,
    Codes,
)
from bridge.join.forest import closure, folded, levels
from bridge.join.paths import MAX_DEPTH, paths

# -- Metrics of Nsight Compute as arguments


DIGITS = 6  # significant


def metric_args(attributed: AttributedCapture) -> dict[str, Column]:
    """Return a column per metric of Nsight Compute, and how sure its match to the kernel is."""
    metrics = attributed.capture.metrics
    if not len(metrics):
        return {}
    result: dict[str, Column] = {}
    for name, metric in zip(
        HEADLINES, select_metrics(attributed.capture, tuple(HEADLINES)), strict=True
    ):
        rows = ~np.isnan(metric.numbers)
        if rows.any():
            codes = np.append(np.where(rows, np.arange(len(rows)), NONE), NONE)
            label = f"{name} ({metric.unit})" if metric.unit else name
            result[label] = Json(codes[metrics.of], _number_texts(metric.numbers), numbers=True)
    if result and len(metrics.sure):
        result[MATCH] = NameColumn(metrics.sure, list(MATCH_LEVELS))
    return result


def _number_texts(numbers: Floats) -> list[str]:
    """Return numbers as text: integers in full, others with `DIGITS` significant digits."""
    return [
        str(int(n)) if n == int(n) else f"{float(f'{n:.{DIGITS}g}')!r}"
        for n in np.nan_to_num(numbers).tolist()
    ]


# -- Slices


ARGS_OF_KIND: dict[
    str, dict[str, tuple[str, ...]]
] = {  # per kind of activity: argument and its columns
    "kernel": {
        "grid": ("grid_x", "grid_y", "grid_z"),
        "block": ("block_x", "block_y", "block_z"),
        "registers per thread": ("registers",),
        "static shared memory (bytes)": ("shared_static",),
        "dynamic shared memory (bytes)": ("shared_dynamic",),
    },
    "memcpy": {
        "bytes": ("bytes",),
        "source memory kind": ("source_kind",),
        "destination memory kind": ("target_kind",),
    },
    "memset": {"bytes": ("bytes",), "memory kind": ("target_kind",)},
    "graph": {"graph id": ("graph",)},
}
KINDS_WITH_METRICS = ("kernel", "graph")  # kinds with metrics of Nsight Compute
MEMORY_KINDS = ("source_kind", "target_kind")  # columns
MARKED_RULES = (*OF_ANOTHER_THREAD, BY_PHASE)  # rules that an activity is marked with
NEVER = np.iinfo(np.int64)
MIN_ACTIVITIES = 2  # activities of a projected op; a single one names its op itself


def activities(attributed: AttributedCapture, tracks: Tracks) -> Slices:
    """Draw all activities on their streams."""
    table = attributed.capture.activities
    stream = tracks.of_activities
    start, duration = times(table)
    track = tracks.lane(stream, disjoint_lanes(stream, start, start + duration), "stream")
    ops = list(attributed.ops)
    is_marked = np.isin(attributed.attribution.rule, MARKED_RULES)
    args: dict[str, Column] = {
        "op": NameColumn(attributed.activity_op, ops),
        "path": _paths(attributed),
        "reason": NameColumn(_reason_codes(attributed.attribution.reason), list(REASONS)),
        "correlation": table.correlation,
    }
    if is_marked.any():
        args["rule"] = NameColumn(
            np.where(is_marked, attributed.attribution.rule.astype(np.int64), NONE), list(RULES)
        )
    rows = np.arange(len(table))
    return make_slices(
        "kernel",
        rows,
        track=track,
        times=(start, duration),
        name=named(attributed.activity_name),
        args=args,
    )


def _paths(attributed: AttributedCapture) -> Chain | NameColumn:
    """Return the path of each activity; as texts where paths are so deep that they are cut."""
    nesting, node = attributed.attribution.nesting, attributed.attribution.node
    if int(nesting.level.max(initial=NONE)) < MAX_DEPTH:
        names = NameColumn(attributed.node_op, list(attributed.ops))
        return Chain(node, nesting.parent, names)
    if attributed.hierarchy is nesting:
        code, texts = attributed.node_path
    else:
        code, texts = paths(nesting.parent, attributed.node_op, attributed.ops)
    return NameColumn(lookup(code, node), texts)


def _reason_codes(reason: Codes) -> Ints:
    has_none = reason == ATTRIBUTED
    if has_none.all():
        return repeated(NONE, len(reason))
    return np.where(has_none, NONE, reason.astype(np.int64))


def activities_by_kind(attributed: AttributedCapture, all_activities: Slices) -> list[Slices]:
    """Return the activities by kind, each with its own arguments, kernels also with metrics."""
    table, counters = attributed.capture.activities, metric_args(attributed)
    messages = {
        name: NameColumn(values, names) if names else values
        for name, (values, names) in message_columns(attributed).items()
    }
    return [
        replace(
            all_activities.only(table.kind.among(kind)),
            kind=kind,
            args={
                **all_activities.args,
                **{name: _arg_column(table, columns) for name, columns in arg_columns.items()},
                **(counters if kind in KINDS_WITH_METRICS else {}),
                **(messages if kind == frames.KERNEL else {}),
            },
        )
        for kind, arg_columns in ARGS_OF_KIND.items()
    ]


def projections(attributed: AttributedCapture, tracks: Tracks) -> Slices:
    """Draw each op range on every stream with its work, from the first start to the last end.

    An op with a single activity on a stream is left out, as the activity names its op.
    """
    nesting = attributed.attribution.nesting
    node, stream, start, end, number = _projected(attributed, tracks)
    track = tracks.lane(stream, nested_lanes(stream, start, end), "projection")
    name = named(attributed.capture.ranges.name)
    name_column = NameColumn(name.codes[nesting.range[node]], name.names)
    spans = start, end - start
    return make_slices(
        "projection",
        np.arange(len(node)),
        track=track,
        times=spans,
        name=name_column,
        args={"activities": number},
    )


def _projected(
    attributed: AttributedCapture, tracks: Tracks
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Return node, stream (a home), first start, last end and activities of each projection.

    Outer projections come first: of equal intervals the first is drawn as the outer one.
    """
    parent = attributed.attribution.nesting.parent
    node = _first_nodes(attributed)
    rows = np.flatnonzero(node != NONE)
    pairs = closure(parent, pick(node, rows), pick(tracks.of_activities, rows))
    above, group, size = pairs.parent, pairs.given, len(pairs.node)
    start = pick(attributed.capture.activities.start, rows)
    first = folded(above, lowest(group, start, size, empty=NEVER.max), np.minimum)
    last = folded(
        above, highest(group, pick(attributed.end, rows), size, empty=NEVER.min), np.maximum
    )
    number = folded(above, counts(group, size))
    drawn = np.flatnonzero(number >= MIN_ACTIVITIES)
    drawn = drawn[stable_order(levels(above)[drawn])]
    return pairs.node[drawn], pairs.key[drawn], first[drawn], last[drawn], number[drawn]


def _first_nodes(attributed: AttributedCapture) -> Ints:
    """Return the innermost node that is projected for each activity, or NONE.

    A single activity is projected from the parent of its range on, as it names the range.
    """
    parent, node = attributed.attribution.nesting.parent, attributed.node
    size = counts(node + 1, len(parent) + 1)[1:]
    is_single = np.append(size == 1, False)  # the last entry is for activities without a node
    is_single[parent] = False
    return np.where(is_single[node], lookup(parent, node), node)


def _arg_column(table: frames.Activities, columns: tuple[str, ...]) -> Column:
    first, *rest = (table[column] for column in columns)
    if columns[0] in MEMORY_KINDS:
        return NameColumn(first, list(frames.MEMORY_KINDS))
    return _extents(first, *rest) if rest else first


def _extents(*sizes: Ints) -> NameColumn:
    """Return sizes as texts like ``128x1x1``; activities without sizes have none."""
    code, rows = number_groups(*sizes)
    distinct: list[list[int]] = np.stack([column[rows] for column in sizes], axis=1).tolist()
    texts = ["x".join(str(size) for size in extent if size != NONE) for extent in distinct]
    if all(map(is_single_value, (code, sizes[0]))):
        is_missing = len(code) > 0 and int(sizes[0][0]) == NONE
        return NameColumn(repeated(NONE if is_missing else 0, len(code)), texts)
    return NameColumn(np.where(sizes[0] == NONE, NONE, code), texts)
