"""Where memory was over time: a rectangle per allocation, time by address; many small ones as one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from bridge.analyze.groups import counts, highest, lowest, sums
from bridge.analyze.memory.groups import in_order, summary
from bridge.analyze.memory.ops import BEFORE, STATES, lives
from bridge.analyze.memory.usage import BEFORE_CAPTURE, NO_OP, Held
from bridge.join.arrays import NONE, Ints, by, number, runs, unions
from importers import frames

MOST_PANELS = 4
MOST = 12_000  # rectangles of single allocations in a panel; and as many of several at most
ACROSS, UP = 400, 200  # the finest places by which small ones are put together
MOST_POINTS = 1_000  # of the curve
COLORED = 9  # ops with a colour of their own
OTHER, EARLIER = COLORED, COLORED + 1


@dataclass(frozen=True)
class Panel:
    """The memory of a process, device and kind. Times in ns since the first event of the report.

    ``tiles``: start, end (ns), low, high (bytes, in the address space without what was never used), address,
    bytes, count (of allocations in it), op (a text), color (place in `Flow.ops`), lifetime (ns).
    ``curve``: time and used, the highest of many.
    """

    title: str
    start: int
    end: int
    height: int
    tiles: pd.DataFrame
    curve: pd.DataFrame
    peak_ns: int
    peak_bytes: int
    peak_op: str
    grouped: int


@dataclass(frozen=True)
class Flow:
    """The panels, those with the highest peaks first; ``ops`` have the colours 0, 1 …; ``left`` panels are left out."""

    source: tuple[str, ...]
    panels: tuple[Panel, ...]
    ops: tuple[str, ...]
    left: int

    @property
    def said(self) -> str:
        """What is drawn, in a line."""
        shown = sum(int(panel.tiles["count"].sum()) for panel in self.panels)
        grouped = sum(panel.grouped for panel in self.panels)
        more = f", the {grouped} least of them put together with neighbours" if grouped else ""
        left = (
            f"; {self.left} more processes, devices and kinds of memory left out"
            if self.left
            else ""
        )
        return f"{shown} allocations{more}{left}"


def flow(held: Held) -> Flow:
    """Return what is drawn of the allocations of the time looked at."""
    first, end, state = lives(held)
    counted = np.append(held.counted, False)
    rows = np.flatnonzero(counted[first] | counted[end])
    first, end, state = first[rows], end[rows], state[rows]
    told = np.where(first == NONE, end, first)
    began = held.joined.report.began
    seen = held.events.time[held.counted]
    span = (int(seen.min()) - began, int(seen.max()) - began + 1) if len(seen) else (0, 1)
    time = held.events.time - began
    start = np.where(first == NONE, span[0], np.append(time, 0)[first])
    stop = np.where(end == NONE, span[1], np.append(time, 0)[end])
    tiles = pd.DataFrame(
        {
            "group": held.group[told],
            "start": np.clip(start, *span),
            "end": np.clip(stop, *span),
            "address": frames.ints(held.joined.report.memory, "address")[held.events.row[told]],
            "bytes": held.size[told],
            "code": np.where(state == STATES.index(BEFORE), NONE - 1, held.op_of(first)),
            "lifetime": stop - start,
        }
    )
    color, ops = _colors(held, tiles)
    tiles["color"] = color
    table = summary(held)
    shown = table.head(MOST_PANELS)
    groups = in_order(held)
    panels = tuple(
        _panel(held, tiles, groups[nth], shown.iloc[nth], span) for nth in range(len(shown))
    )
    return Flow(held.joined.report.source, panels, ops, len(table) - len(shown))


def _colors(held: Held, tiles: pd.DataFrame) -> tuple[Ints, tuple[str, ...]]:
    """Give the ops that hold most bytes for longest a colour each."""
    code = tiles["code"].to_numpy()
    pair, distinct = pd.factorize(code)
    area = np.zeros(len(distinct))
    np.add.at(area, pair, tiles["bytes"].to_numpy() * tiles["lifetime"].to_numpy().astype(float))
    area[distinct < NONE] = -1.0
    order = np.argsort(-area, kind="stable")
    ranked = [n for n in order.tolist() if distinct[n] >= NONE]
    place = np.full(len(distinct), OTHER)
    place[ranked[:COLORED]] = np.arange(min(COLORED, len(ranked)))
    place[distinct < NONE] = EARLIER
    names = [_name(held, int(distinct[n])) for n in ranked[:COLORED]]
    return place[pair], tuple(names)


def _name(held: Held, code: int) -> str:
    return BEFORE_CAPTURE if code < NONE else NO_OP if code == NONE else held.joined.ops[code]


def _panel(
    held: Held, tiles: pd.DataFrame, group: int, row: pd.Series, span: tuple[int, int]
) -> Panel:
    ours = tiles[tiles["group"] == group].reset_index(drop=True)
    low, height = _places(ours["address"].to_numpy(), ours["bytes"].to_numpy())
    ours = ours.assign(low=low, high=low + ours["bytes"].to_numpy(), count=1)
    small = _small(ours)
    together = _together(ours.iloc[small], span, height)
    alone = np.setdiff1d(np.arange(len(ours)), small)
    drawn = pd.concat([ours.iloc[alone], together], ignore_index=True)
    drawn = drawn.assign(op=[_name(held, code) for code in drawn["code"].tolist()])
    gpu = "" if row["device"] == NONE else f" of GPU {row['device']}"
    return Panel(
        title=f"{row['memory']} memory{gpu}, process {row['pid']}",
        start=span[0],
        end=max(span[1], span[0] + 1),
        height=max(1, height),
        tiles=drawn,
        curve=_curve(held, group, span),
        peak_ns=int(row["peak_ns"]) if row["peak_ns"] != NONE else span[0],
        peak_bytes=int(row["peak_bytes"]),
        peak_op=str(row["peak_op"]),
        grouped=len(small),
    )


def _places(address: Ints, size: Ints) -> tuple[Ints, int]:
    """Return where each allocation lies when what was never used of the address space is left out, and its length."""
    zero = np.zeros(len(address), np.int64)
    _, start, end = unions(zero, address, address + np.maximum(size, 1))
    if not len(start):
        return zero, 0
    before = np.cumsum(end - start) - (end - start)
    block = np.searchsorted(start, address, side="right") - 1
    return before[block] + address - start[block], int((end - start).sum())


def _small(tiles: pd.DataFrame) -> Ints:
    """Return the allocations that hold least for shortest, those beyond `MOST`."""
    if len(tiles) <= MOST:
        return np.empty(0, np.int64)
    length = (tiles["end"] - tiles["start"]).to_numpy().astype(float)
    return np.sort(np.argsort(-(length + 1) * tiles["bytes"].to_numpy(), kind="stable")[MOST:])


def _together(tiles: pd.DataFrame, span: tuple[int, int], height: int) -> pd.DataFrame:
    """Put together what begins, ends and lies in one place, of places so coarse that there are few."""
    across, up = ACROSS, UP
    while len(tiles):
        place, distinct = _placed(tiles, span, height, across, up)
        if len(distinct) <= MOST or across <= 1:
            return _boxes(tiles, place, distinct)
        across, up = across // 2, max(1, up // 2)
    return tiles


def _placed(
    tiles: pd.DataFrame, span: tuple[int, int], height: int, across: int, up: int
) -> tuple[Ints, Ints]:
    length = max(1, span[1] - span[0])
    start, end = (
        ((tiles[c].to_numpy() - span[0]) / length * across).astype(np.int64)
        for c in ("start", "end")
    )
    low = (tiles["low"].to_numpy() / max(1, height) * up).astype(np.int64)
    return number(start, end, low)


def _boxes(tiles: pd.DataFrame, place: Ints, distinct: Ints) -> pd.DataFrame:
    """Return one tile around those of each place; its op is that of its largest allocation."""
    groups = len(distinct)
    size = tiles["bytes"].to_numpy()
    order = by(place, -size)
    first = order[runs(place[order])[:-1]]
    ends = {c: highest(place, tiles[c].to_numpy(), groups) for c in ("end", "high", "lifetime")}
    starts = {c: lowest(place, tiles[c].to_numpy(), groups) for c in ("start", "low", "address")}
    rest = {c: tiles[c].to_numpy()[first] for c in ("group", "code", "color")}
    total = {"bytes": sums(place, size, groups), "count": counts(place, groups)}
    return pd.DataFrame({**rest, **starts, **ends, **total})


def _curve(held: Held, group: int, span: tuple[int, int]) -> pd.DataFrame:
    """Return what was used over time; of many events the highest of each stretch."""
    rows = np.flatnonzero(held.counted & (held.group == group))
    time, used = held.since_start(rows), held.used[rows]
    place = ((time - span[0]) / max(1, span[1] - span[0]) * MOST_POINTS).astype(np.int64)
    if len(rows) > MOST_POINTS:
        order = by(place, -used)
        kept = np.sort(order[runs(place[order])[:-1]])
        kept = np.union1d(kept, [len(rows) - 1])
        time, used = time[kept], used[kept]
    return pd.DataFrame({"time": time, "used": used})
