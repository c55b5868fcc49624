"""Compute the timeline in bounded size: the longest slices of each row, and all others in bins."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.core.groups import sums
from bridge.analyze.draw.overview.axis import Axis, Bins, Names, grouped_sums, largest_mask
from bridge.analyze.draw.timeline import device, host
from bridge.analyze.draw.timeline.parts import Slices
from bridge.analyze.draw.tracks import Track, Tracks
from bridge.importers.records import record
from bridge.join.arrays import (
    BLOCK,
    NONE,
    Flags,
    Ints,
    number_groups,
    order_by,
    repeated,
    run_edges,
    stable_order,
)
from bridge.join.attributed import AttributedCapture
from bridge.join.forest import levels
from bridge.join.nesting import parents

MAX_ROWS = 48
MAX_SLICES = 8_000  # the longest overall; each row has some more
MIN_SLICES_PER_ROW = 50
MAX_BINS = 1_000
MAX_TOTAL_BINS = 24_000
MAX_PIECES = 1_000_000  # of slices, cut at the edges of bins
KINDS = STEPS, OPS, STREAM = ("steps", "ops", "stream")
REST = "rest"


@record
class SliceRows:
    """Slices of all kinds: row, times in ns, name (a code into ``names``) and op (or NONE) of each."""

    row: Ints
    start: Ints
    end: Ints
    name: Ints
    op: Ints
    names: list[str]


def timeline_columns(
    attributed: AttributedCapture, axis: Axis, names: Names
) -> dict[str, Any] | None:
    """Return rows, slices and bins as columns.

    A stream has a row, a thread one per depth of its ranges.

    Every slice is either listed or in the bins, so that the times of a row add up exactly. Rows
    with little time are merged into one, ``rest``. ``op`` is the op with the most time of a bin.
    """
    slices, rows = _slice_rows(attributed)
    if not len(slices.row):
        return None
    is_listed = _listed_slices(slices, [row["kind"] == REST for row in rows])
    merged = np.flatnonzero(~is_listed)
    bins = axis.bins(_bin_limit(axis, len(rows), int((slices.end - slices.start)[merged].sum())))
    listed = np.flatnonzero(is_listed)
    listed = listed[order_by(slices.row[listed], slices.start[listed])]
    return {
        "length_ns": max(1, axis.length),
        "rows": rows,
        "slices": {
            "row": slices.row[listed].tolist(),
            "start": (slices.start[listed] - axis.start).tolist(),
            "length": (slices.end[listed] - slices.start[listed]).tolist(),
            "name": names.of_codes(slices.name[listed], slices.names),
            "op": names.of_codes(slices.op[listed], attributed.ops),
        },
        "bin_ns": bins.width,
        "bins": _bin_columns(_binned(slices, merged, bins), attributed.ops, names),
        "merged": len(merged),
    }


def _bin_limit(axis: Axis, rows: int, merged_ns: int) -> int:
    """Return how many bins there may be; fewer where many slices are open in each of them."""
    limit = min(MAX_BINS, max(100, MAX_TOTAL_BINS // rows))
    return max(1, min(limit, MAX_PIECES * axis.length // max(1, merged_ns)))


def _binned(slices: SliceRows, merged: Ints, bins: Bins) -> tuple[Ints, ...]:
    """Return time, count, row, bin and op of the pieces of slices, summed by row, bin and op."""
    none = np.empty(0, np.int64)
    parts: list[tuple[Ints, ...]] = [(none,) * 5]
    length = int((slices.end - slices.start)[merged].sum())
    step = max(1, BLOCK // (1 + length // (bins.width * max(1, len(merged)))))  # most are short
    for first in range(0, len(merged), step):
        of_block = merged[first : first + step]
        piece, bin_number, time = bins.spread(slices.start[of_block], slices.end[of_block])
        row, op = slices.row[of_block][piece], slices.op[of_block][piece]
        time, keys, count = grouped_sums(time, row, bin_number, op)
        parts.append((time, count, *keys))
    time, count, *keys = (np.concatenate(column) for column in zip(*parts, strict=True))
    group, rows = number_groups(*keys)
    totals = (sums(group, values, len(rows)) for values in (time, count))
    return *totals, *(key[rows] for key in keys)


def _bin_columns(
    binned: tuple[Ints, ...], ops: tuple[str, ...], names: Names
) -> dict[str, list[int]]:
    """Return per row and bin the time, the number of pieces, and the op with the most time."""
    time, count, row, bin_number, op = binned
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
    is_kept = largest_mask(length, MAX_SLICES)
    order = stable_order(slices.row)
    for first, last in pairwise(run_edges(slices.row[order]).tolist()):  # one iteration per row
        of_row = order[first:last]
        is_kept[of_row[largest_mask(length[of_row], MIN_SLICES_PER_ROW)]] = True
    result: Flags = is_kept & ~np.array(is_rest, bool)[slices.row]
    return result


# -- Rows


def _slice_rows(attributed: AttributedCapture) -> tuple[SliceRows, list[dict[str, Any]]]:
    """Assign steps, ranges and activities to rows, in the order of the tracks of a trace."""
    tracks = Tracks(attributed.capture)
    none = repeated(NONE, len(attributed.steps))
    drawn = (  # in the order of KINDS
        (host.steps(attributed, tracks), none),
        (host.ops(attributed, tracks), attributed.op),
        (device.activities(attributed, tracks), attributed.activity_op),
    )
    listed = sorted(
        range(len(tracks.made)), key=lambda n: (tracks.made[n].group.order, tracks.made[n].order)
    )
    place = np.argsort(np.array(listed, np.int64)).astype(np.int32)
    columns, names = [], list[str]()
    for slices, owner in drawn:
        columns.append(_slice_columns(slices, owner, place, len(names)))
        names += slices.name.names
    track, depth, start, end, name, op = (np.concatenate(c) for c in zip(*columns, strict=True))
    row, first = number_groups(track, depth)
    kind = np.searchsorted(np.cumsum([len(slices) for slices, _ in drawn]), first, side="right")
    found = zip(track[first].tolist(), kind.tolist(), depth[first].tolist(), strict=True)
    rows = [_row(tracks.made[listed[t]], KINDS[k], d) for t, k, d in found]
    return _merge_small_rows(
        SliceRows(row=row, start=start, end=end, name=name, op=op, names=names), rows
    )


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
    return replace(slices, row=new_row[slices.row]), [*kept_rows, rest_row]


def _slice_columns(
    slices: Slices, owner: Ints, place: NDArray[np.int32], first_name: int
) -> tuple[NDArray[Any], ...]:
    """Return place of the track, depth, start, end, name and op of slices, in drawing order.

    All but times are narrow; the codes of names begin with ``first_name``.
    """
    rows, narrow = slices.rows, np.int32
    track, start = place[slices.track[rows]], slices.start[rows]
    end = start + slices.duration[rows]
    code = slices.name.codes[rows].astype(narrow)
    code[code != NONE] += first_name
    depth = np.zeros(len(rows), narrow)
    if slices.kind == "op":
        depth = levels(parents(slices.track[rows], start, end)).astype(narrow)
    return track, depth, start, end, code, owner[rows].astype(narrow)
