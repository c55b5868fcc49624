"""The unified timeline: what is drawn on which track, and the arrows between.

Host tracks are grouped by process, device tracks by (process, device); every capture has its own.
Times are rebased to the first event, for viewers read them as doubles of microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from bridge.analyze import lanes
from bridge.analyze.tracks import Track, Tracks
from bridge.annotate.instant import COUNTER
from bridge.join.attributed import CALL_ID, CALL_ID_SHIFT, Attributed
from bridge.join.attribution import ATTRIBUTED, REASONS
from bridge.join.order import NONE, Flags, Ints, by
from importers import frames

SHOWN = {  # what each kind of activity shows besides its op
    "kernel": (
        "grid_x grid_y grid_z block_x block_y block_z registers shared_static shared_dynamic".split()
    ),
    "copy": ["bytes", "from", "to"],
    "fill": ["bytes", "to"],
    "graph": ["graph"],
}
MEMORIES = {"from": "source_kind", "to": "target_kind"}


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


@dataclass(frozen=True)
class Arrows:
    """Arrows from API calls to what they launched: one per row of ``activities`` that has a call."""

    rows: Ints
    call: Ints
    calls: Slices
    activities: Slices


@dataclass(frozen=True)
class Timeline:
    """All there is to draw; ``base`` is the time in ns to be taken off every other."""

    base: int
    tracks: list[Track]
    slices: list[Slices]
    phases: Slices
    marks: Slices
    counters: list[Slices]
    arrows: Arrows


def timeline(joined: Attributed) -> Timeline:
    """Lay out a report."""
    report = joined.report
    base = min(facts.span[0] for facts in report.facts)
    tracks = Tracks(report)
    ops, calls = _ops(joined, tracks), _calls(joined, tracks)
    everything = _activities(joined, tracks)
    launch = joined.attribution.launch
    arrows = Arrows(np.flatnonzero(launch != NONE), launch, calls, everything)
    phases, marks = _phases(joined, tracks), _marks(joined, tracks)
    counters = _is_counter(report.marks)
    slices = [ops, calls, *_kinds(joined, everything)]
    instants = replace(marks, rows=marks.rows[~counters[marks.rows]])
    samples = _counters(joined, replace(marks, rows=marks.rows[counters[marks.rows]]))
    return Timeline(base, tracks.made, slices, phases, instants, samples, arrows)


def _ops(joined: Attributed, tracks: Tracks) -> Slices:
    ranges = joined.report.ranges
    rows = np.flatnonzero(frames.is_kind(ranges, frames.PUSH_POP))
    host = tracks.host(*(frames.ints(ranges, c)[rows] for c in ("report", "thread")))
    start, duration = _times(ranges)
    # Of equal intervals the earlier row is outer; sorting and lanes keep the order of rows.
    order = by(host, start[rows], -duration[rows])
    rows, host = rows[order], host[order]
    lane = lanes.nested(host, start[rows], (start + duration)[rows])
    track = np.full(len(ranges), NONE)
    track[rows] = tracks.lane(host, lane, "ops")
    args: dict[str, Column] = {
        "domain": _named(ranges["domain_name"], empty=""),
        "category": _named(ranges["category"], empty=""),
        **_payloads(frames.ints(ranges, "payload")),
        **_details(ranges),
        **_open(ranges),
    }
    return _drawn("op", rows, track, (start, duration), _named(ranges["name"]), args)


def _details(ranges: pd.DataFrame) -> dict[str, Column]:
    """Return what is attached to ranges as JSON; where nothing is, no column that would take time to print."""
    details = _named(ranges["json"], empty="")
    return {"details": details} if (details.codes != NONE).any() else {}


def _payloads(payload: Ints) -> dict[str, Column]:
    """Part the ids of calls, which the annotations of ours carry, from payloads of the user's."""
    is_call = payload >> CALL_ID_SHIFT == CALL_ID
    number = payload & ((1 << CALL_ID_SHIFT) - 1)
    return {"payload": np.where(is_call, NONE, payload), "call": np.where(is_call, number, NONE)}


def _calls(joined: Attributed, tracks: Tracks) -> Slices:
    launches = joined.report.launches
    host = tracks.host(*(frames.ints(launches, c) for c in ("report", "thread")))
    start, duration = _times(launches)
    track = tracks.lane(host, lanes.nested(host, start, start + duration), "api")
    args = {"correlation": frames.ints(launches, "correlation")}
    rows = np.arange(len(launches))
    return _drawn("api", rows, track, (start, duration), _named(launches["name"]), args)


def _activities(joined: Attributed, tracks: Tracks) -> Slices:
    activities = joined.report.activities
    stream = tracks.streams(activities)
    start, duration = _times(activities)
    track = tracks.lane(stream, lanes.apart(stream, start, start + duration), "stream")
    node, reason = joined.attribution.node, joined.attribution.reason
    ops = list(joined.ops)
    args: dict[str, Column] = {
        "op": Named(joined.activity_op, ops),
        "path": Chain(node, joined.attribution.nesting.parent, Named(joined.node_op, ops)),
        "reason": Named(np.where(reason == ATTRIBUTED, NONE, reason), list(REASONS)),
        "correlation": frames.ints(activities, "correlation"),
    }
    rows = np.arange(len(activities))
    return _drawn("kernel", rows, track, (start, duration), _named(activities["name"]), args)


def _kinds(joined: Attributed, everything: Slices) -> list[Slices]:
    """Part what ran on devices by kind; each shows its own arguments."""
    activities = joined.report.activities
    return [
        replace(
            everything,
            kind=word,
            rows=everything.rows[frames.is_kind(activities, word)[everything.rows]],
            args={**everything.args, **{name: _shown(activities, name) for name in shown}},
        )
        for word, shown in SHOWN.items()
    ]


def _shown(activities: pd.DataFrame, name: str) -> Column:
    if name in MEMORIES:
        return Named(frames.ints(activities, MEMORIES[name]), list(frames.MEMORY_KINDS))
    return frames.ints(activities, name)


def _phases(joined: Attributed, tracks: Tracks) -> Slices:
    ranges = joined.report.ranges
    rows = np.flatnonzero(frames.is_kind(ranges, frames.START_END))
    track = np.full(len(ranges), NONE)
    host = tracks.host(*(frames.ints(ranges, c)[rows] for c in ("report", "thread")))
    track[rows] = tracks.lane(host, np.zeros(len(rows), np.int64), "ops")
    return _drawn("phase", rows, track, _times(ranges), _named(ranges["name"]), _open(ranges))


def _open(ranges: pd.DataFrame) -> dict[str, Column]:
    """Mark what never ended: it is drawn up to the end of the capture."""
    return {"open": np.where(ranges["open"].to_numpy(), 1, NONE)}


def _marks(joined: Attributed, tracks: Tracks) -> Slices:
    marks = joined.report.marks
    host = tracks.host(*(frames.ints(marks, c) for c in ("report", "thread")))
    track = tracks.lane(host, np.zeros(len(marks), np.int64), "ops")
    time = frames.ints(marks, "time")
    times = time, np.zeros_like(time)
    return _drawn("mark", np.arange(len(marks)), track, times, _named(marks["name"]), {})


def _is_counter(marks: pd.DataFrame) -> Flags:
    named = np.array([name.startswith(COUNTER) for name in marks["name"].cat.categories], bool)
    return np.append(named, False)[frames.codes(marks["name"])]


def _counters(joined: Attributed, marks: Slices) -> list[Slices]:
    """Return the samples of counters that are integers, and those that are not: their payload is JSON."""
    recorded = joined.report.marks
    name = replace(marks.name, names=[n.removeprefix(COUNTER) for n in marks.name.names])
    number, real = frames.ints(recorded, "payload"), _named(recorded["json"], empty="")
    is_real = real.codes[marks.rows] != NONE
    values: tuple[tuple[Flags, Column], ...] = ((~is_real, number), (is_real, real))
    return [
        replace(marks, kind="counter", rows=marks.rows[of], name=name, args={"value": value})
        for of, value in values
    ]


def _drawn(
    kind: str,
    rows: Ints,
    track: Ints,
    times: tuple[Ints, Ints],
    name: Named,
    args: Mapping[str, Column],
) -> Slices:
    """Put rows into drawing order."""
    start, duration = times
    rows = rows[by(track[rows], start[rows], -duration[rows])]
    return Slices(kind, rows, track, start, duration, name, args)


def _times(table: pd.DataFrame) -> tuple[Ints, Ints]:
    """Return starts and durations; what ends before it starts is drawn without length."""
    start, end = frames.ints(table, "start"), frames.ints(table, "end")
    return start, np.maximum(end - start, 0)


def _named(column: pd.Series, empty: str | None = None) -> Named:
    """Return a frame's names; ``empty`` ones count as none."""
    names, codes = list(column.cat.categories), frames.codes(column)
    if empty in names:
        codes = np.where(codes == names.index(empty), NONE, codes)
    return Named(codes, names)
