"""Compute the plots of memory over time: stacked areas by category, and a rectangle per allocation.

Long series are thinned so that no peak is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from bridge.analyze.core.groups import counts, highest, lowest, sums
from bridge.analyze.core.table import Table
from bridge.analyze.cost.memory.categories import CATEGORIES, Categories, category_levels
from bridge.analyze.cost.memory.groups import groups_by_peak, summary
from bridge.analyze.cost.memory.ops import BEFORE_START, STATES, lifetimes
from bridge.analyze.cost.memory.usage import BEFORE_CAPTURE, NO_OP, MemoryUsage
from bridge.importers.arrays import factorize, lookup
from bridge.importers.records import record
from bridge.join.arrays import NONE, Ints, number_groups, order_by, run_edges, unions

# -- Stacked areas by category


MAX_PANELS = 4
MAX_TIMES = 1_500  # bins of a panel with many events, two rows each


@record
class AreaPanel:
    """The memory of a process, device and kind; times are in ns since the capture's first event.

    ``level`` has a row per time and a column per category of `CATEGORIES`: bytes from that time on.
    ``reserved`` has the reserved bytes, -1 where unknown.
    """

    title: str
    start: int
    end: int
    time: Ints
    level: Ints
    reserved: Ints
    peak: int
    peak_bytes: int
    peak_op: str

    @cached_property
    def total_bytes(self) -> Ints:
        """Bytes of all categories per time."""
        total: Ints = self.level.sum(axis=1)
        return total


@record
class StackedAreas:
    """The panels, highest peaks first; ``left`` is the number of panels left out."""

    source: tuple[str, ...]
    panels: tuple[AreaPanel, ...]
    left: int
    epoch_ns: int

    @property
    def categories(self) -> tuple[str, ...]:
        """The names of the columns of the panels."""
        return CATEGORIES


def stacked_areas(usage: MemoryUsage, *, thin: bool = True) -> StackedAreas:
    """Return the stacked areas of the selected time; ``thin`` limits the rows of a panel."""
    categories, table = Categories(usage), summary(usage)
    facts = usage.attributed.capture.facts
    groups = groups_by_peak(usage)[:MAX_PANELS]
    panels = tuple(
        _areas_panel(categories, group, table.row(nth), thin=thin)
        for nth, group in enumerate(groups)
    )
    epoch = facts[0].epoch_ns
    return StackedAreas(
        usage.attributed.capture.source,
        panels,
        len(table) - len(panels),
        epoch + usage.attributed.capture.began if epoch > 0 else usage.attributed.capture.began,
    )


def _areas_panel(
    categories: Categories, group: int, row: Mapping[str, Any], *, thin: bool
) -> AreaPanel:
    usage = categories.usage
    rows, level = category_levels(categories, group)
    counted = usage.counted[rows]
    time = usage.since_start(rows)
    times = time[counted]
    start = 0 if usage.attributed.selection is None else int(times.min(initial=0))
    end = max(int(times.max(initial=0)) + 1, start + 1)
    inside = np.flatnonzero(counted)
    first = int(inside[0]) if len(inside) else 0
    time = np.append(start, time[inside])
    level = np.concatenate((level[first : first + 1], level[1:-1][inside]))
    reserved = np.append(NONE, usage.reserved[rows][inside])
    drawn_rows = _thinned(time, level, end) if thin else np.arange(len(time))
    peak = int(level.sum(axis=1).argmax())
    gpu = "" if row["device"] == NONE else f" of GPU {row['device']}"
    return AreaPanel(
        title=f"{row['memory']} memory{gpu}, process {row['pid']}",
        start=start,
        end=end,
        time=time[drawn_rows],
        level=level[drawn_rows],
        reserved=reserved[drawn_rows],
        peak=int(time[peak]),
        peak_bytes=int(level[peak].sum()),
        peak_op=str(row["peak_op"]),
    )


def _thinned(time: Ints, level: Ints, end: int) -> Ints:
    """Return the rows to draw: the highest and last of each bin, and the maxima of categories."""
    if len(time) <= MAX_TIMES:
        return np.arange(len(time))
    total = level.sum(axis=1)
    place = ((time - time[0]) / max(1, end - time[0]) * (MAX_TIMES // 2)).astype(np.int64)
    order = order_by(place, -total)
    edges = run_edges(place)
    highest_rows = order[run_edges(place[order])[:-1]]
    return np.unique(np.concatenate(([0], highest_rows, edges[1:] - 1, level.argmax(axis=0))))


# -- A rectangle per allocation


MAX_RECTANGLES = 12_000  # of single allocations in a panel, and as many of merged ones
MAX_ACROSS, MAX_UP = 400, 200  # finest grid for merging small tiles
MAX_POINTS = 1_000  # of a curve
COLORED_OPS = 9  # ops with a colour of their own
OTHER_COLOR, BEFORE_COLOR = COLORED_OPS, COLORED_OPS + 1


@record
class FlowPanel:
    """The memory of a process, device and kind; times are in ns since the capture's first event.

    ``tiles`` has the columns start, end (ns), low, high (bytes, in the address space without unused
    parts), address, bytes, count (of allocations), op (text), color (position in `Flow.ops`) and
    lifetime (ns). ``curve`` has time and used bytes, thinned to the maxima.
    """

    title: str
    start: int
    end: int
    height: int
    tiles: Table
    curve: Table
    peak_ns: int
    peak_bytes: int
    peak_op: str
    grouped: int


@record
class Flow:
    """The panels, highest peaks first, and the ops with a colour.

    ``ops`` have the colours 0, 1 and so on; ``left`` is the number of panels left out.
    """

    source: tuple[str, ...]
    panels: tuple[FlowPanel, ...]
    ops: tuple[str, ...]
    left: int

    @property
    def description(self) -> str:
        """The line that describes the plot."""
        shown = sum(int(panel.tiles["count"].sum()) for panel in self.panels)
        grouped = sum(panel.grouped for panel in self.panels)
        more = f", the {grouped} least of them put together with neighbours" if grouped else ""
        left = (
            f"; {self.left} more processes, devices and kinds of memory left out"
            if self.left
            else ""
        )
        return f"{shown} allocations{more}{left}"


def flow(usage: MemoryUsage) -> Flow:
    """Return the rectangles of the allocations in the selected time."""
    first, end, state = lifetimes(usage)
    counted = np.append(usage.counted, False)
    rows = np.flatnonzero(counted[first] | counted[end])
    first, end, state = first[rows], end[rows], state[rows]
    described = np.where(first == NONE, end, first)
    start_of_capture = usage.attributed.capture.began
    times = usage.events.time[usage.counted]
    span = (
        (int(times.min()) - start_of_capture, int(times.max()) - start_of_capture + 1)
        if len(times)
        else (0, 1)
    )
    time = usage.events.time - start_of_capture
    start = np.where(first == NONE, span[0], lookup(time, first, 0))
    stop = np.where(end == NONE, span[1], lookup(time, end, 0))
    tiles = Table(
        {
            "group": usage.group[described],
            "start": np.clip(start, *span),
            "end": np.clip(stop, *span),
            "address": usage.attributed.capture.memory.address[usage.events.row[described]],
            "bytes": usage.size[described],
            "code": np.where(state == STATES.index(BEFORE_START), NONE - 1, usage.op_of(first)),
            "lifetime": stop - start,
        }
    )
    color, ops = _colors(usage, tiles)
    tiles = tiles.assign(color=color)
    table = summary(usage)
    listed = table.head(MAX_PANELS)
    groups = groups_by_peak(usage)
    panels = tuple(
        _panel(usage, tiles, group=groups[nth], row=listed.row(nth), span=span)
        for nth in range(len(listed))
    )
    return Flow(usage.attributed.capture.source, panels, ops, len(table) - len(listed))


def _colors(usage: MemoryUsage, tiles: Table) -> tuple[Ints, tuple[str, ...]]:
    """Assign colours to the ops with the largest product of bytes and lifetime."""
    code = tiles["code"]
    pair, distinct = factorize(code)
    area = np.zeros(len(distinct))
    np.add.at(area, pair, tiles["bytes"] * tiles["lifetime"].astype(float))
    area[distinct < NONE] = -1.0
    order = np.argsort(-area, kind="stable")
    ranked = [n for n in order.tolist() if distinct[n] >= NONE]
    place = np.full(len(distinct), OTHER_COLOR)
    place[ranked[:COLORED_OPS]] = np.arange(min(COLORED_OPS, len(ranked)))
    place[distinct < NONE] = BEFORE_COLOR
    names = [_op_name(usage, int(distinct[n])) for n in ranked[:COLORED_OPS]]
    return place[pair], tuple(names)


def _op_name(usage: MemoryUsage, code: int) -> str:
    return BEFORE_CAPTURE if code < NONE else NO_OP if code == NONE else usage.attributed.ops[code]


def _panel(
    usage: MemoryUsage, tiles: Table, group: int, row: Mapping[str, Any], span: tuple[int, int]
) -> FlowPanel:
    own_tiles = tiles[tiles["group"] == group]
    low, height = _compact_addresses(own_tiles["address"], own_tiles["bytes"])
    own_tiles = own_tiles.assign(low=low, high=low + own_tiles["bytes"], count=1)
    small = _smallest(own_tiles)
    merged = _merge_tiles(own_tiles[small], span, height)
    single = np.setdiff1d(np.arange(len(own_tiles)), small)
    all_tiles = Table.concat([own_tiles[single], merged])
    all_tiles = all_tiles.assign(op=[_op_name(usage, code) for code in all_tiles["code"].tolist()])
    gpu = "" if row["device"] == NONE else f" of GPU {row['device']}"
    return FlowPanel(
        title=f"{row['memory']} memory{gpu}, process {row['pid']}",
        start=span[0],
        end=max(span[1], span[0] + 1),
        height=max(1, height),
        tiles=all_tiles,
        curve=_curve(usage, group, span),
        peak_ns=int(row["peak_ns"]) if row["peak_ns"] != NONE else span[0],
        peak_bytes=int(row["peak_bytes"]),
        peak_op=str(row["peak_op"]),
        grouped=len(small),
    )


def _compact_addresses(address: Ints, size: Ints) -> tuple[Ints, int]:
    """Return addresses without unused parts of the address space, and the length of the rest."""
    zero = np.zeros(len(address), np.int64)
    _, start, end = unions(zero, address, address + np.maximum(size, 1))
    if not len(start):
        return zero, 0
    before = np.cumsum(end - start) - (end - start)
    block = np.searchsorted(start, address, side="right") - 1
    return before[block] + address - start[block], int((end - start).sum())


def _smallest(tiles: Table) -> Ints:
    """Return the allocations beyond `MAX_RECTANGLES`, those with the smallest area."""
    if len(tiles) <= MAX_RECTANGLES:
        return np.empty(0, np.int64)
    length = (tiles["end"] - tiles["start"]).astype(float)
    return np.sort(np.argsort(-(length + 1) * tiles["bytes"], kind="stable")[MAX_RECTANGLES:])


def _merge_tiles(tiles: Table, span: tuple[int, int], height: int) -> Table:
    """Merge tiles in the same grid cells; the grid is made coarser until there are few."""
    across, up = MAX_ACROSS, MAX_UP
    while len(tiles):
        place, distinct = _grid_cells(tiles, span, height=height, across=across, up=up)
        if len(distinct) <= MAX_RECTANGLES or across <= 1:
            return _bounding_tiles(tiles, place, distinct)
        across, up = across // 2, max(1, up // 2)
    return tiles


def _grid_cells(
    tiles: Table, span: tuple[int, int], height: int, across: int, up: int
) -> tuple[Ints, Ints]:
    length = max(1, span[1] - span[0])
    start, end = (
        ((tiles[c] - span[0]) / length * across).astype(np.int64) for c in ("start", "end")
    )
    low = (tiles["low"] / max(1, height) * up).astype(np.int64)
    return number_groups(start, end, low)


def _bounding_tiles(tiles: Table, place: Ints, distinct: Ints) -> Table:
    """Return one tile around those of each cell; its op is that of its largest allocation."""
    groups = len(distinct)
    size = tiles["bytes"]
    order = order_by(place, -size)
    first = order[run_edges(place[order])[:-1]]
    ends = {c: highest(place, tiles[c], groups) for c in ("end", "high", "lifetime")}
    starts = {c: lowest(place, tiles[c], groups) for c in ("start", "low", "address")}
    copied = {c: tiles[c][first] for c in ("group", "code", "color")}
    total = {"bytes": sums(place, size, groups), "count": counts(place, groups)}
    return Table({**copied, **starts, **ends, **total})


def _curve(usage: MemoryUsage, group: int, span: tuple[int, int]) -> Table:
    """Return the used bytes over time; long series are thinned to the maximum of each bin."""
    rows = np.flatnonzero(usage.counted & (usage.group == group))
    time, used = usage.since_start(rows), usage.used[rows]
    place = ((time - span[0]) / max(1, span[1] - span[0]) * MAX_POINTS).astype(np.int64)
    if len(rows) > MAX_POINTS:
        order = order_by(place, -used)
        selected = np.sort(order[run_edges(place[order])[:-1]])
        selected = np.union1d(selected, [len(rows) - 1])
        time, used = time[selected], used[selected]
    return Table({"time": time, "used": used})
