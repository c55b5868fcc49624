"""What was used over time, by category: areas on top of each other, exact or thinned so that no peak is lost."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bridge.analyze.memory.categories import CATEGORIES, Categories, levels
from bridge.analyze.memory.groups import in_order, summary
from bridge.analyze.memory.usage import Held
from bridge.join.arrays import NONE, Ints, by, runs

MOST_PANELS = 4
MOST = 1_500  # places in time at which a panel of many events is drawn, of two rows each


@dataclass(frozen=True)
class Stack:
    """The memory of a process, device and kind. Times in ns since the first event of the report, in their order.

    ``level`` has a row per time and a column per category of `CATEGORIES`: bytes from then on; ``reserved``
    likewise, -1 where it is not known.
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
        """Bytes of all categories, per time."""
        total: Ints = self.level.sum(axis=1)
        return total


@dataclass(frozen=True)
class Stacked:
    """The panels, those with the highest peaks first; ``left`` are left out."""

    source: tuple[str, ...]
    panels: tuple[Stack, ...]
    left: int
    epoch_ns: int

    @property
    def categories(self) -> tuple[str, ...]:
        """What the columns of the panels are called."""
        return CATEGORIES


def stacked(held: Held, *, thin: bool = True) -> Stacked:
    """Return what is drawn of the time looked at; with ``thin`` not more rows of a panel than can be seen."""
    found, table = Categories(held), summary(held)
    facts = held.joined.report.facts
    groups = in_order(held)[:MOST_PANELS]
    panels = tuple(
        _panel(found, group, table.iloc[nth].to_dict(), thin=thin)
        for nth, group in enumerate(groups)
    )
    epoch = facts[0].epoch_ns
    return Stacked(
        held.joined.report.source,
        panels,
        len(table) - len(panels),
        epoch + held.joined.report.began if epoch > 0 else held.joined.report.began,
    )


def _panel(found: Categories, group: int, row: dict[object, object], *, thin: bool) -> Stack:
    held = found.held
    rows, level = levels(found, group)
    counted = held.counted[rows]
    time = held.since_start(rows)
    seen = time[counted]
    start = 0 if held.joined.chosen is None else int(seen.min(initial=0))
    end = max(int(seen.max(initial=0)) + 1, start + 1)
    inside = np.flatnonzero(counted)
    first = int(inside[0]) if len(inside) else 0
    time = np.append(start, time[inside])
    level = np.concatenate((level[first : first + 1], level[1:-1][inside]))
    reserved = np.append(NONE, held.reserved[rows][inside])
    kept = _kept(time, level, end) if thin else np.arange(len(time))
    peak = int(level.sum(axis=1).argmax())
    gpu = "" if row["device"] == NONE else f" of GPU {row['device']}"
    return Stack(
        title=f"{row['memory']} memory{gpu}, process {row['pid']}",
        start=start,
        end=end,
        time=time[kept],
        level=level[kept],
        reserved=reserved[kept],
        peak=int(time[peak]),
        peak_bytes=int(level[peak].sum()),
        peak_op=str(row["peak_op"]),
    )


def _kept(time: Ints, level: Ints, end: int) -> Ints:
    """Return the rows that are drawn: of each place in time the highest and the last, and every category's highest."""
    if len(time) <= MOST:
        return np.arange(len(time))
    total = level.sum(axis=1)
    place = ((time - time[0]) / max(1, end - time[0]) * (MOST // 2)).astype(np.int64)
    order = by(place, -total)
    edges = runs(place)
    highest = order[runs(place[order])[:-1]]
    return np.unique(np.concatenate(([0], highest, edges[1:] - 1, level.argmax(axis=0))))
