"""What a timeline is made of: slices on tracks, curves, and arrows between slices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from bridge.analyze.tracks import Track
from bridge.join.order import NONE, Flags, Ints, outer_first
from importers import frames


@dataclass(frozen=True)
class Named:
    """A column of names: a code per row of a frame, NONE for no name."""

    codes: Ints
    names: list[str]


@dataclass(frozen=True)
class Chain:
    """A path per row: the name of ``node``, after those of its ``parent``, and so on up."""

    node: Ints
    parent: Ints
    name: Named


Column = Ints | Named | Chain


@dataclass(frozen=True)
class Slices:
    """Slices of one kind, drawn from the rows of a frame.

    ``rows`` are those drawn, by track and start, outer before inner; all columns are the frame's own,
    untouched. ``args`` are shown when a slice is clicked.
    """

    kind: str
    rows: Ints
    track: Ints
    start: Ints
    duration: Ints
    name: Named
    args: Mapping[str, Column] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def only(self, drawn: Flags) -> Slices:
        """Return those whose row is to be drawn; a flag per row of the frame."""
        return replace(self, rows=self.rows[drawn[self.rows]])

    @property
    def is_drawn(self) -> Flags:
        """Which rows of the frame are drawn."""
        drawn = np.zeros(len(self.start), bool)
        drawn[self.rows] = True
        return drawn


@dataclass(frozen=True)
class Arrows:
    """Arrows op → API call → activity: one per row of ``activities`` that has a call.

    ``call`` is the row of each activity's call, ``op`` that of the range around the call, or NONE.
    """

    rows: Ints
    op: Ints
    call: Ints
    ops: Slices
    calls: Slices
    activities: Slices


@dataclass(frozen=True)
class Timeline:
    """All there is to draw; ``base`` is the time in ns to be taken off every other.

    ``counters`` are curves: slices without length whose argument ``value`` is drawn. ``left_out`` counts
    the slices that were too many.
    """

    base: int
    tracks: list[Track]
    slices: list[Slices]
    phases: Slices
    marks: Slices
    counters: list[Slices]
    arrows: Arrows
    left_out: int = 0

    def every(self) -> Iterator[Slices]:
        """Return all kinds of slices, those of phases too."""
        yield from self.slices
        yield self.phases


def drawn(
    kind: str,
    rows: Ints,
    track: Ints,
    times: tuple[Ints, Ints],
    name: Named,
    args: Mapping[str, Column] | None = None,
) -> Slices:
    """Put rows into drawing order."""
    start, duration = times
    rows = rows[outer_first(track[rows], start[rows], (start + duration)[rows])]
    return Slices(kind, rows, track, start, duration, name, args or {})


def times(table: pd.DataFrame) -> tuple[Ints, Ints]:
    """Return starts and durations; what ends before it starts is drawn without length."""
    start, end = frames.ints(table, "start"), frames.ints(table, "end")
    return start, np.maximum(end - start, 0)


def named(column: pd.Series, empty: str | None = None) -> Named:
    """Return a frame's names; ``empty`` ones count as none."""
    names, codes = list(column.cat.categories), frames.codes(column)
    if empty in names:
        codes = np.where(codes == names.index(empty), NONE, codes)
    return Named(codes, names)
