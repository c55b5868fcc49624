"""What of a timeline is drawn: the work of some time, without what a slim one lacks, no more than so many slices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bridge.analyze.concurrency.clocks import Clocks
from bridge.analyze.time_range import Windows
from bridge.analyze.timeline.parts import EVER, Arrows, Links, Slices, Span, Timeline
from bridge.join.arrays import NONE, Flags, stable

CUT = frozenset(
    ["op", "step", "projection", "phase"]
)  # what lasts long is shown up to the window's edge
SLIM = frozenset(["step", "op", "kernel"])
SLIM_ARGS = frozenset(["op", "reason", "External id", "args_string", "__name__"])


@dataclass(frozen=True)
class Selection:
    """Which part of a report is drawn.

    ``windows`` are times, all of which a slice must meet; ``slim`` leaves out API calls, arrows,
    projections, curves, and all arguments but op and reason; ``most`` is how many slices there may be,
    of which the longest are kept; ``ranks`` are those whose processes are drawn, without any all.
    """

    windows: tuple[Windows, ...] = ()
    slim: bool = False
    most: int | None = None
    ranks: tuple[int, ...] = ()

    def span(self, report: int) -> Span:
        """The time of a report that all windows lie in, by its own clock."""
        hulls = [EVER, *(windows.of_report(report).hull for windows in self.windows)]
        return max(first for first, _ in hulls), min(last for _, last in hulls)

    def by(self, clocks: Clocks) -> Selection:
        """Return the same of a timeline whose clocks are aligned."""
        return replace(self, windows=tuple(one.moved(clocks.offset) for one in self.windows))

    def of(self, whole: Timeline) -> Timeline:
        """Return the part of a timeline."""
        found = _slim(whole) if self.slim else whole
        for windows in self.windows:
            found = _within(found, windows)
        if self.most is not None:
            found = _longest(found, self.most)
        if self == WHOLE:
            return found
        return replace(found, arrows=_arrows(found), links=_links(found))


WHOLE = Selection()


def _slim(whole: Timeline) -> Timeline:
    slices = [
        replace(s, args={name: s.args[name] for name in s.args if name in SLIM_ARGS})
        for s in whole.slices
        if s.role in SLIM
    ]
    phases, marks = (replace(s, rows=s.rows[:0]) for s in (whole.phases, whole.marks))
    return replace(
        whole, slices=slices, counters=[], phases=phases, marks=marks, links=(), instants=()
    )


def _within(whole: Timeline, windows: Windows) -> Timeline:
    """Leave out what does not meet the windows; cut what goes beyond them."""
    report = np.array([track.group.report for track in whole.tracks], np.int64)

    def met(s: Slices) -> Slices:
        of, start, length = report[s.track[s.rows]], s.start[s.rows], s.duration[s.rows]
        found = replace(s, rows=s.rows[windows.meet(of, start, start + length)])
        return _cut(found, windows) if s.role in CUT else found

    return _each(whole, met)


def _cut(s: Slices, windows: Windows) -> Slices:
    first, last = windows.hull
    start = np.maximum(s.start, first)
    return replace(s, start=start, duration=np.minimum(s.start + s.duration, last) - start)


def _longest(whole: Timeline, most: int) -> Timeline:
    """Keep so many slices, the longest; of equal ones those that come first."""
    lengths = np.concatenate([s.duration[s.rows] for s in whole.every()])
    if len(lengths) <= most:
        return whole
    kept = np.zeros(len(lengths), bool)
    kept[stable(-lengths)[:most]] = True
    parts = iter(np.split(kept, np.cumsum([len(s) for s in whole.every()])[:-1]))
    fewer = _each(whole, lambda s: replace(s, rows=s.rows[next(parts)]), instants=False)
    return replace(fewer, left_out=len(lengths) - most)


def _each(whole: Timeline, of: Callable[[Slices], Slices], *, instants: bool = True) -> Timeline:
    """Apply to slices in the order of `Timeline.every`, then to what has no length."""
    slices, phases = [of(s) for s in whole.slices], of(whole.phases)
    found = replace(whole, slices=slices, phases=phases)
    if not instants:
        return found
    return replace(
        found,
        marks=of(whole.marks),
        counters=[of(s) for s in whole.counters],
        instants=tuple(of(s) for s in whole.instants),
    )


def _arrows(found: Timeline) -> Arrows:
    """Return the arrows of which both ends are drawn; none starts at an op that is not open where it would."""
    arrows = found.arrows
    device, calls, ops = (_drawn(found, s) for s in (arrows.activities, arrows.calls, arrows.ops))
    rows = arrows.rows[device[arrows.rows] & calls[arrows.call[arrows.rows]]]
    start = next((s.start for s in found.slices if s.role == arrows.ops.role), arrows.ops.start)
    begin = arrows.calls.start[arrows.call]
    is_open = np.append(ops, False)[arrows.op] & (begin >= np.append(start, 0)[arrows.op])
    return replace(arrows, rows=rows, op=np.where(is_open, arrows.op, NONE))


def _links(found: Timeline) -> tuple[Links, ...]:
    drawn = [_drawn(found, links.slices) for links in found.links]
    return tuple(
        replace(links, first=links.first[both], then=links.then[both])
        for links, shown in zip(found.links, drawn, strict=True)
        for both in (shown[links.first] & shown[links.then],)
    )


def _drawn(found: Timeline, like: Slices) -> Flags:
    """Tell which rows of the frame that some slices are drawn from are drawn, in whatever kinds of slices."""
    flags = np.zeros(len(like.start), bool)
    for s in found.slices:
        if s.role == like.role:
            flags[s.rows] = True
    return flags
