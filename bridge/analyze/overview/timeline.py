"""Compute the timeline in bounded size: the longest slices of each row, and all others in bins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bridge.analyze.groups import sums
from bridge.analyze.overview.axis import Axis, Names, grouped_sums, largest_mask
from bridge.analyze.timeline import device, host
from bridge.analyze.timeline.parts import Slices
from bridge.analyze.tracks import Track, Tracks
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by
from bridge.join.attributed import AttributedCapture
from bridge.join.nesting import levels, parents

MAX_ROWS = 48
MAX_SLICES = 8_000  # the longest overall; each row has some more
MIN_SLICES_PER_ROW = 50
MAX_BINS = 1_000
MAX_TOTAL_BINS = 24_000
KINDS = STEPS, OPS, STREAM = ("steps", "ops", "stream")
KIND_OF_SLICES = {"step": STEPS, "op": OPS, "kernel": STREAM}  # kinds of slices of the timeline
REST = "rest"


@dataclass(frozen=True)
class SliceRows:
    """Slices of all kinds: the row, times in ns, name and op (or NONE) of each."""

    row: Ints
    start: Ints
    end: Ints
    name: Ints
    op: Ints


def timeline_columns(
    attributed: AttributedCapture, axis: Axis, names: Names
) -> dict[str, Any] | None:
    """Return rows, slices and bins as columns.

    A stream has a row, a thread one per depth of its ranges.

    Every slice is either listed or in the bins, so that the times of a row add up exactly. Rows
    with little time are merged into one, ``rest``. ``op`` is the op with the most time of a bin.
    """
    slices, rows = _slice_rows(attributed, names)
    if not len(slices.row):
        return None
    bins = axis.bins(min(MAX_BINS, max(100, MAX_TOTAL_BINS // len(rows))))
    is_listed = _listed_slices(slices, [row["kind"] == REST for row in rows])
    merged = np.flatnonzero(~is_listed)
    piece, bin_number, length = bins.spread(slices.start[merged], slices.end[merged])
    row, op = slices.row[merged][piece], slices.op[merged][piece]
    listed = np.flatnonzero(is_listed)
    listed = listed[order_by(slices.row[listed], slices.start[listed])]
    return {
        "length_ns": max(1, axis.length),
        "rows": rows,
        "slices": {
            "row": slices.row[listed].tolist(),
            "start": (slices.start[listed] - axis.start).tolist(),
            "length": (slices.end - slices.start)[listed].tolist(),
            "name": slices.name[listed].tolist(),
            "op": names.of_codes(slices.op[listed], attributed.ops),
        },
        "bin_ns": bins.width,
        "bins": _bins(row, bin_number, op, length, attributed.ops, names),
        "merged": len(merged),
    }


def _bins(
    row: Ints, bin_number: Ints, op: Ints, length: Ints, ops: tuple[str, ...], names: Names
) -> dict[str, list[int]]:
    """Return per row and bin the time, the number of pieces, and the op with the most time."""
    time, (row, bin_number, op), count = grouped_sums(length, row, bin_number, op)
    by_time = order_by(row, bin_number, -time)
    first = np.ones(len(by_time), bool)
    first[1:] = (row[by_time][1:] != row[by_time][:-1]) | (
        bin_number[by_time][1:] != bin_number[by_time][:-1]
    )
    group = np.cumsum(first) - 1
    size, top = int(first.sum()), by_time[first]
    return {
        "row": row[top].tolist(),
        "bin": bin_number[top].tolist(),
        "busy": sums(group, time[by_time], size).tolist(),
        "count": sums(group, count[by_time], size).tolist(),
        "op": names.of_codes(op[top], ops),
    }


def _listed_slices(slices: SliceRows, is_rest: list[bool]) -> Flags:
    """Return a mask of the longest slices overall and per row, without the row ``rest``."""
    length = slices.end - slices.start
    order = order_by(slices.row, -length)
    row = slices.row[order]
    first = np.searchsorted(row, row)
    is_kept = largest_mask(length, MAX_SLICES)
    is_kept[order[np.arange(len(order)) - first < MIN_SLICES_PER_ROW]] = True
    result: Flags = is_kept & ~np.array(is_rest, bool)[slices.row]
    return result


# -- Rows


def _slice_rows(
    attributed: AttributedCapture, names: Names
) -> tuple[SliceRows, list[dict[str, Any]]]:
    """Assign steps, ranges and activities to rows, in the order of the tracks of a trace."""
    tracks = Tracks(attributed.capture)
    none = np.full(len(attributed.steps), NONE)
    parts = [
        _slice_columns(host.steps(attributed, tracks), none, names),
        _slice_columns(host.ops(attributed, tracks), attributed.op, names),
        _slice_columns(device.activities(attributed, tracks), attributed.activity_op, names),
    ]
    kind, track, depth, *columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.array([(t.group.order, t.order) for t in tracks.made] or [(0, 0)], np.int64)[track]
    row, first = number_groups(order[:, 0], order[:, 1], track, depth)
    rows = [_row(tracks.made[track[at]], KINDS[kind[at]], int(depth[at])) for at in first.tolist()]
    return _merge_small_rows(SliceRows(row, *columns), rows)


def _row(track: Track, kind: str, depth: int) -> dict[str, Any]:
    return {"name": track.name, "group": track.group.name, "kind": kind, "depth": depth}


def _merge_small_rows(
    slices: SliceRows, rows: list[dict[str, Any]]
) -> tuple[SliceRows, list[dict[str, Any]]]:
    """Merge the rows with the least time into one, the last."""
    if len(rows) <= MAX_ROWS:
        return slices, rows
    time = sums(slices.row, slices.end - slices.start, len(rows))
    streams = np.array([row["kind"] == STREAM for row in rows])
    is_kept = np.zeros(len(rows), bool)
    # Half of the rows are reserved for streams.
    is_kept[order_by((~streams).astype(np.int64), -time)[: MAX_ROWS // 2]] = True
    is_kept[order_by(is_kept.astype(np.int64), -time)[: MAX_ROWS - MAX_ROWS // 2]] = True
    new_row = np.where(is_kept, np.cumsum(is_kept) - 1, int(is_kept.sum()))
    merged_count = len(rows) - int(is_kept.sum())
    rest_row = {"name": f"{merged_count} more rows", "group": "", "kind": REST, "depth": 0}
    kept_rows = [row for row, stays in zip(rows, is_kept.tolist(), strict=True) if stays]
    columns = (slices.start, slices.end, slices.name, slices.op)
    return SliceRows(new_row[slices.row], *columns), [*kept_rows, rest_row]


def _slice_columns(slices: Slices, owner: Ints, names: Names) -> tuple[Ints, ...]:
    """Return kind, track, depth, start, end, name and op of slices, in drawing order."""
    rows = slices.rows
    kind = KINDS.index(KIND_OF_SLICES[slices.kind])
    start = slices.start[rows]
    end = start + slices.duration[rows]
    name = np.array(names.of_codes(slices.name.codes[rows], slices.name.names), np.int64)
    depth = np.zeros(len(rows), np.int64)
    if KINDS[kind] == OPS:
        depth = levels(parents(slices.track[rows], start, end))
    return np.full(len(rows), kind), slices.track[rows], depth, start, end, name, owner[rows]
