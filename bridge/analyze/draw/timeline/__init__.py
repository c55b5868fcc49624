"""Lay out a capture as a timeline: slices on tracks, curves, and arrows between slices.

Host tracks are grouped by process, device tracks by (process, device); each file has its own. Times
are relative to the first event, as viewers read them as doubles of microseconds. Several files are
drawn on a common clock.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np

from bridge.analyze.core.time_range import Windows
from bridge.analyze.draw.timeline import counters as of_counters
from bridge.analyze.draw.timeline import device, host, parts
from bridge.analyze.draw.timeline.parts import (
    ALL_TIME,
    Arrows,
    Chain,
    Column,
    Json,
    Links,
    ListColumn,
    NameColumn,
    Slices,
    Span,
    Timeline,
)
from bridge.analyze.draw.tracks import Tracks
from bridge.analyze.run.concurrency.clocks import Clocks
from bridge.analyze.run.ranks import Ranks
from bridge.importers.arrays import lookup
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, stable_order
from bridge.join.attributed import AttributedCapture

# -- Selections


CLIPPED_ROLES = frozenset(
    ["op", "step", "projection", "phase", "critical path"]
)  # long slices are clipped to the window
SLIM_ROLES = frozenset(["step", "op", "kernel", "critical path"])
SLIM_ARGS = frozenset(["op", "reason", "External id", "args_string", "__name__"])


@record
class Selection:
    """The part of a timeline that is drawn.

    Slices must overlap all ``windows``. ``slim`` leaves out API calls, arrows, projections, curves,
    and all arguments but op and reason. ``max_slices`` is the maximum number of slices, of which
    the longest are kept. ``ranks`` are the ranks whose processes are drawn, empty for all.
    ``critical_path`` is whether the critical path of the whole run is drawn, too.
    """

    windows: tuple[Windows, ...] = ()
    slim: bool = False
    max_slices: int | None = None
    ranks: tuple[int, ...] = ()
    critical_path: bool = False

    def span(self, report: int) -> Span:
        """Return the time of a file that lies in all windows, by its own clock."""
        hulls = [ALL_TIME, *(windows.of_report(report).hull for windows in self.windows)]
        return max(first for first, _ in hulls), min(last for _, last in hulls)

    def by(self, clocks: Clocks) -> Selection:
        """Return the selection for a timeline with aligned clocks."""
        return replace(
            self, windows=tuple(windows.moved(clocks.offset) for windows in self.windows)
        )

    def of(self, whole: Timeline) -> Timeline:
        timeline = _slim(whole) if self.slim else whole
        for windows in self.windows:
            timeline = _filter_time(timeline, windows)
        if self.max_slices is not None:
            timeline = _longest(timeline, self.max_slices)
        if self == WHOLE:
            return timeline
        return replace(timeline, arrows=_filter_arrows(timeline), links=_filter_links(timeline))


WHOLE = Selection()


def _slim(whole: Timeline) -> Timeline:
    slices = [
        replace(s, args={name: s.args[name] for name in s.args if name in SLIM_ARGS})
        for s in whole.slices
        if s.role in SLIM_ROLES
    ]
    phases, marks = (replace(s, rows=s.rows[:0]) for s in (whole.phases, whole.marks))
    return replace(
        whole, slices=slices, counters=[], phases=phases, marks=marks, links=(), instants=()
    )


def _filter_time(whole: Timeline, windows: Windows) -> Timeline:
    """Return the timeline without slices outside the windows; long ones are clipped to them."""
    report = np.array([track.group.report for track in whole.tracks], np.int64)

    def filter_slices(s: Slices) -> Slices:
        of, start, length = report[s.track[s.rows]], s.start[s.rows], s.duration[s.rows]
        slices = replace(s, rows=s.rows[windows.meet(of, start, start + length)])
        return _clip(slices, windows) if s.role in CLIPPED_ROLES else slices

    return _map_slices(whole, filter_slices)


def _clip(s: Slices, windows: Windows) -> Slices:
    first, last = windows.hull
    start = np.maximum(s.start, first)
    return replace(s, start=start, duration=np.minimum(s.start + s.duration, last) - start)


def _longest(whole: Timeline, limit: int) -> Timeline:
    """Return the timeline with only the longest slices; of equal ones those that come first."""
    lengths = np.concatenate([s.duration[s.rows] for s in whole.all_slices()])
    if len(lengths) <= limit:
        return whole
    is_kept = np.zeros(len(lengths), bool)
    is_kept[stable_order(-lengths)[:limit]] = True
    parts = iter(np.split(is_kept, np.cumsum([len(s) for s in whole.all_slices()])[:-1]))
    result = _map_slices(whole, lambda s: replace(s, rows=s.rows[next(parts)]), instants=False)
    return replace(result, left_out=len(lengths) - limit)


def _map_slices(
    whole: Timeline, function: Callable[[Slices], Slices], *, instants: bool = True
) -> Timeline:
    """Apply a function to slices in the order of `Timeline.all_slices`, then to what has no length."""
    slices, phases = [function(s) for s in whole.slices], function(whole.phases)
    timeline = replace(whole, slices=slices, phases=phases)
    if not instants:
        return timeline
    return replace(
        timeline,
        marks=function(whole.marks),
        counters=[function(s) for s in whole.counters],
        instants=tuple(function(s) for s in whole.instants),
    )


def _filter_arrows(timeline: Timeline) -> Arrows:
    """Return the arrows between drawn slices; those from an op that is not open are cut off."""
    arrows = timeline.arrows
    device, calls, ops = (
        _is_drawn(timeline, s) for s in (arrows.activities, arrows.calls, arrows.ops)
    )
    rows = arrows.rows[device[arrows.rows] & calls[arrows.call[arrows.rows]]]
    start = next((s.start for s in timeline.slices if s.role == arrows.ops.role), arrows.ops.start)
    begin = arrows.calls.start[arrows.call]
    is_open = lookup(ops, arrows.op, False) & (begin >= lookup(start, arrows.op, 0))
    return replace(arrows, rows=rows, op=np.where(is_open, arrows.op, NONE))


def _filter_links(timeline: Timeline) -> tuple[Links, ...]:
    drawn_rows = [_is_drawn(timeline, links.slices) for links in timeline.links]
    return tuple(
        replace(links, first=links.first[is_kept], second=links.second[is_kept])
        for links, is_drawn in zip(timeline.links, drawn_rows, strict=True)
        for is_kept in (is_drawn[links.first] & is_drawn[links.second],)
    )


def _is_drawn(timeline: Timeline, like: Slices) -> Flags:
    """Return whether each row of the frame of some slices is drawn, as any kind of slice."""
    flags = np.zeros(len(like.start), bool)
    for s in timeline.slices:
        if s.role == like.role:
            flags[s.rows] = True
    return flags


# -- The timeline


__all__ = [
    "WHOLE",
    "Arrows",
    "Chain",
    "Column",
    "Json",
    "Links",
    "ListColumn",
    "NameColumn",
    "Selection",
    "Slices",
    "Timeline",
    "lasting",
    "of_ranks",
    "timeline",
]


def timeline(attributed: AttributedCapture, selection: Selection = WHOLE) -> Timeline:
    """Return the timeline of a capture, or of the selected part."""
    tracks = Tracks(attributed.capture)
    of_devices = tracks.of_devices()
    with ThreadPoolExecutor(1) as executor:  # both sort at the same time
        started = executor.submit(_device_slices, attributed, of_devices, selection)
        steps, ops, calls = (
            draw(attributed, tracks) for draw in (host.steps, host.ops, host.calls)
        )
        phases = host.phases(attributed, tracks)
        marks, counters = host.marks(attributed, tracks)
        rates = [host.frame_rates(attributed, tracks)]
        everything, projections, samples = started.result()
    others: list[Slices] = []
    memory: list[Slices] = []
    if not selection.slim:
        others = [
            draw(attributed, tracks) for draw in (host.overhead, host.system_calls, host.lock)
        ]
        memory = host.memory_curves(attributed, of_devices, tracks.made, selection.span)
    after_host = partial(parts.shift_tracks, by=len(tracks.made))
    everything = after_host(everything)
    projections = [after_host(s) for s in projections]
    on_devices = [*device.activities_by_kind(attributed, everything), *projections]
    whole = Timeline(
        base=attributed.capture.began,
        tracks=[*tracks.made, *of_devices.made],
        slices=[steps, ops, calls, *others, *on_devices],
        phases=phases,
        marks=marks,
        counters=[*(after_host(s) for s in samples), *memory, *counters, *rates],
        arrows=_launch_arrows(attributed, ops, calls, everything),
    )
    whole = filter_ranks(attributed, align_clocks(attributed, whole), selection)
    if selection.critical_path:
        from bridge.analyze.draw.timeline.critical import with_critical_path  # few traces need it

        whole = with_critical_path(attributed, whole)
    if selection.windows:
        selection = selection.by(Clocks.of(attributed))
    return selection.of(whole)


def align_clocks(attributed: AttributedCapture, whole: Timeline) -> Timeline:
    """Return the timeline with all files on the clock of the reference."""
    clocks = Clocks.of(attributed)
    if not clocks.moves:
        return whole
    return replace(whole.by(clocks.offset), base=_time_span(attributed, clocks)[0])


def common_duration(attributed: AttributedCapture) -> int:
    """Return the duration of all files on a common clock, in ns."""
    first, last = _time_span(attributed, Clocks.of(attributed))
    return last - first


def _time_span(attributed: AttributedCapture, clocks: Clocks) -> tuple[int, int]:
    spans = [*zip(attributed.capture.facts, clocks.offset.tolist(), strict=True)]
    starts, ends = ([facts.span[n] + offset for facts, offset in spans] for n in (0, 1))
    return min(starts), max(ends)


def filter_ranks(attributed: AttributedCapture, whole: Timeline, selection: Selection) -> Timeline:
    """Return what belongs to the selected ranks, or all if none is selected.

    Raises ValueError with a message for the user if there is no such rank.
    """
    if not selection.ranks:
        return whole
    return whole.of_processes(
        Ranks.of(attributed.capture, attributed.place).processes_of(selection.ranks)
    )


def _device_slices(
    attributed: AttributedCapture, tracks: Tracks, selection: Selection
) -> tuple[Slices, list[Slices], list[Slices]]:
    """Return all activities; projections and the curves of devices, where they are drawn."""
    everything = device.activities(attributed, tracks)
    if selection.slim:
        return everything, [], []
    projections = device.projections(attributed, tracks)
    curves = parts.device_curves(attributed, tracks, selection.span)
    curves += of_counters.counter_curves(attributed, tracks, selection.span)
    return everything, [projections], curves


def _launch_arrows(
    attributed: AttributedCapture, ops: Slices, calls: Slices, activities: Slices
) -> Arrows:
    attribution = attributed.attribution
    range_of_node = np.append(attribution.nesting.range, NONE)
    arrows = Arrows.to_launched(attribution.launch, ops, calls, activities)
    return replace(arrows, op=range_of_node[attribution.launched_in])
