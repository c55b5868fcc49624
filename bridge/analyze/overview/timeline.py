"""The timeline in bounded size: the longest slices of every row, and the time of all others by bins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bridge.analyze.calltree import depths
from bridge.analyze.groups import sums
from bridge.analyze.overview.axis import Axis, Names, largest, summed
from bridge.analyze.timeline import device, host
from bridge.analyze.timeline.parts import Slices
from bridge.analyze.tracks import Track, Tracks
from bridge.join.arrays import NONE, Flags, Ints, by, number
from bridge.join.attributed import Attributed
from bridge.join.nesting import parents

MOST_ROWS = 48
MOST_SLICES = 8_000  # the longest of all, and of each row besides
OF_EACH_ROW = 50
MOST_BINS = 1_000
ALL_BINS = 24_000
KINDS = STEPS, OPS, STREAM = ("steps", "ops", "stream")
WORDS = {"step": STEPS, "op": OPS, "kernel": STREAM}  # of the timeline
REST = "rest"


@dataclass(frozen=True)
class Drawn:
    """Slices of all kinds: the row each is drawn in, its times in ns, its name, its op (or NONE)."""

    row: Ints
    start: Ints
    end: Ints
    name: Ints
    op: Ints


def windowed(joined: Attributed, axis: Axis, names: Names) -> dict[str, Any] | None:
    """Return rows, slices and bins as columns; a stream has a row, a thread one per depth of its ranges.

    Every slice is either listed or in the bins: times of a row's slices and bins add up exactly. Rows with
    little in them are drawn as one, ``rest``. ``op`` is the op that took most of a bin.
    """
    drawn, rows = _all(joined, names)
    if not len(drawn.row):
        return None
    bins = axis.bins(min(MOST_BINS, max(100, ALL_BINS // len(rows))))
    kept = _kept(drawn, [row["kind"] == REST for row in rows])
    merged = np.flatnonzero(~kept)
    piece, place, length = bins.spread(drawn.start[merged], drawn.end[merged])
    row, op = drawn.row[merged][piece], drawn.op[merged][piece]
    listed = np.flatnonzero(kept)
    listed = listed[by(drawn.row[listed], drawn.start[listed])]
    return {
        "length_ns": max(1, axis.length),
        "rows": rows,
        "slices": {
            "row": drawn.row[listed].tolist(),
            "start": (drawn.start[listed] - axis.start).tolist(),
            "length": (drawn.end - drawn.start)[listed].tolist(),
            "name": drawn.name[listed].tolist(),
            "op": names.of_codes(drawn.op[listed], joined.ops),
        },
        "bin_ns": bins.width,
        "bins": _bins(row, place, op, length, joined.ops, names),
        "merged": len(merged),
    }


def _bins(
    row: Ints, place: Ints, op: Ints, length: Ints, ops: tuple[str, ...], names: Names
) -> dict[str, list[int]]:
    """Return the time in each bin of each row that has any slice, how many pieces, and whose most is."""
    time, (row, place, op), count = summed(length, row, place, op)
    most = by(row, place, -time)
    first = np.ones(len(most), bool)
    first[1:] = (row[most][1:] != row[most][:-1]) | (place[most][1:] != place[most][:-1])
    group = np.cumsum(first) - 1
    size, at = int(first.sum()), most[first]
    return {
        "row": row[at].tolist(),
        "bin": place[at].tolist(),
        "busy": sums(group, time[most], size).tolist(),
        "count": sums(group, count[most], size).tolist(),
        "op": names.of_codes(op[at], ops),
    }


def _kept(drawn: Drawn, is_rest: list[bool]) -> Flags:
    """Choose the longest slices of all, and those of each row; none of the row for the rest."""
    length = drawn.end - drawn.start
    order = by(drawn.row, -length)
    row = drawn.row[order]
    first = np.searchsorted(row, row)
    kept = largest(length, MOST_SLICES)
    kept[order[np.arange(len(order)) - first < OF_EACH_ROW]] = True
    listed: Flags = kept & ~np.array(is_rest, bool)[drawn.row]
    return listed


# -- what is drawn in which row


def _all(joined: Attributed, names: Names) -> tuple[Drawn, list[dict[str, Any]]]:
    """Put steps, ranges and activities into rows, in the order of a trace's tracks."""
    tracks = Tracks(joined.report)
    none = np.full(len(joined.steps), NONE)
    parts = [
        _part(host.steps(joined, tracks), none, names),
        _part(host.ops(joined, tracks), joined.op, names),
        _part(device.activities(joined, tracks), joined.activity_op, names),
    ]
    kind, track, depth, *columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.array([(t.group.order, t.order) for t in tracks.made] or [(0, 0)], np.int64)[track]
    row, first = number(order[:, 0], order[:, 1], track, depth)
    rows = [_row(tracks.made[track[at]], KINDS[kind[at]], int(depth[at])) for at in first.tolist()]
    return _few(Drawn(row, *columns), rows)


def _row(track: Track, kind: str, depth: int) -> dict[str, Any]:
    return {"name": track.name, "group": track.group.name, "kind": kind, "depth": depth}


def _few(drawn: Drawn, rows: list[dict[str, Any]]) -> tuple[Drawn, list[dict[str, Any]]]:
    """Draw the rows with least time in them as one, the last."""
    if len(rows) <= MOST_ROWS:
        return drawn, rows
    time = sums(drawn.row, drawn.end - drawn.start, len(rows))
    streams = np.array([row["kind"] == STREAM for row in rows])
    kept = np.zeros(len(rows), bool)
    # Half of the room is for streams first: they are what a timeline is of.
    kept[by((~streams).astype(np.int64), -time)[: MOST_ROWS // 2]] = True
    kept[by(kept.astype(np.int64), -time)[: MOST_ROWS - MOST_ROWS // 2]] = True
    place = np.where(kept, np.cumsum(kept) - 1, int(kept.sum()))
    left = len(rows) - int(kept.sum())
    rest = {"name": f"{left} more rows", "group": "", "kind": REST, "depth": 0}
    shown = [row for row, stays in zip(rows, kept.tolist(), strict=True) if stays]
    columns = (drawn.start, drawn.end, drawn.name, drawn.op)
    return Drawn(place[drawn.row], *columns), [*shown, rest]


def _part(slices: Slices, owner: Ints, names: Names) -> tuple[Ints, ...]:
    """Return kind, track, depth, start, end, name and op of the slices of a kind, in drawing order."""
    rows = slices.rows
    kind = KINDS.index(WORDS[slices.kind])
    start = slices.start[rows]
    end = start + slices.duration[rows]
    name = np.array(names.of_codes(slices.name.codes[rows], slices.name.names), np.int64)
    depth = np.zeros(len(rows), np.int64)
    if KINDS[kind] == OPS:
        depth = depths(parents(slices.track[rows], start, end))
    return np.full(len(rows), kind), slices.track[rows], depth, start, end, name, owner[rows]
