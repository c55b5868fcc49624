"""Draw the host: steps, op ranges, phases, API calls, marks and counters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from bridge.analyze.core.source_lines import REASONS, SourceLines, source_lines
from bridge.analyze.cost.memory import MemoryUsage
from bridge.analyze.draw.timeline import parts
from bridge.analyze.draw.timeline.parts import (
    Column,
    Curve,
    Json,
    NameColumn,
    Slices,
    Span,
    make_slices,
    name_column,
    times,
)
from bridge.analyze.draw.tracks import Track, Tracks, nested_lanes
from bridge.analyze.run.causes.operating_system import is_of_lock
from bridge.analyze.run.frame_rate import Frames
from bridge.importers import frames
from bridge.importers.arrays import lookup
from bridge.importers.frames import CALL_ID, CALL_ID_SHIFT, COUNTER, key_codes
from bridge.join.arrays import (
    NONE,
    Flags,
    Ints,
    at_rows,
    each,
    number_groups,
    outer_first_order,
    repeated,
    taken,
)
from bridge.join.attributed import AttributedCapture


def ops(attributed: AttributedCapture, tracks: Tracks) -> Slices:
    """Draw push/pop ranges on the threads that pushed them."""
    ranges = attributed.capture.ranges
    rows, lane = _ranges_with_lanes(attributed)
    host = tracks.host(*(taken(ranges[c], rows) for c in ("report", "thread")))
    track = at_rows(tracks.lane(host, lane, "ops"), rows, len(ranges))
    args: dict[str, Column] = {
        "domain": name_column(ranges.domain_name, empty=""),
        "category": name_column(ranges.category, empty=""),
        **_payload_args(ranges.payload),
        **_detail_args(ranges),
        **_open_args(ranges),
        **_place_args(attributed),
    }
    return make_slices(
        "op", rows, track=track, times=times(ranges), name=name_column(ranges.name), args=args
    )


def _ranges_with_lanes(attributed: AttributedCapture) -> tuple[Ints, Ints]:
    """Return the push/pop ranges in drawing order, and the lane of each on its thread."""
    ranges, nesting = attributed.capture.ranges, attributed.attribution.nesting
    rows = np.flatnonzero(ranges.kind.among(frames.PUSH_POP) & ~is_of_lock(ranges))
    if len(nesting) == len(rows) and not len(nesting.crossed):
        return nesting.range, repeated(0, len(rows))  # the join has already nested all of them
    start, duration = times(ranges)
    report, thread = ranges.report[rows], ranges.thread[rows]
    home = number_groups(report, thread)[0]
    # Of equal intervals the first row is the outer one; sorting and lanes keep the order of rows.
    order = outer_first_order(home, start[rows], (start + duration)[rows])
    rows, home = rows[order], home[order]
    return rows, nested_lanes(home, start[rows], (start + duration)[rows])


def steps(attributed: AttributedCapture, tracks: Tracks) -> Slices:
    """Draw the steps of each process on a separate track."""
    recorded = attributed.steps
    numbers, code = np.unique(recorded.number, return_inverse=True)
    home = tracks.steps(recorded.report, recorded.process)
    track = tracks.lane(home, np.zeros(len(recorded), np.int64), "steps")
    name = NameColumn(code.astype(np.int64), [f"step {number}" for number in numbers.tolist()])
    spans = recorded.start, recorded.end - recorded.start
    return make_slices("step", np.arange(len(recorded)), track=track, times=spans, name=name)


def calls(attributed: AttributedCapture, tracks: Tracks) -> Slices:
    """Draw CUDA API calls on tracks beside their threads."""
    launches = attributed.capture.launches
    host = tracks.host(launches.report, launches.thread)
    start, duration = times(launches)
    track = tracks.lane(host, nested_lanes(host, start, start + duration), "api")
    args = {"correlation": launches.correlation, **_source_args(attributed)}
    rows = np.arange(len(launches))
    return make_slices(
        "api",
        rows,
        track=track,
        times=(start, duration),
        name=name_column(launches.name),
        args=args,
    )


def _place_args(attributed: AttributedCapture) -> dict[str, Column]:
    """Return where ops are in the program as a column, none if no place was recorded."""
    if not len(attributed.capture.chains.sources):
        return {}
    known, ranges = source_lines(attributed), len(attributed.capture.ranges)
    node = attributed.attribution.nesting.first_nodes(ranges)
    return {"source": _line_column(known, lookup(known.own, node))}


def _source_args(attributed: AttributedCapture) -> dict[str, Column]:
    """Return the line of the program of API calls as a column, none if no line is known."""
    known = source_lines(attributed)
    if not known.known:
        return {}
    return {"source": _line_column(known, np.where(known.call < len(REASONS), NONE, known.call))}


def _line_column(known: SourceLines, rows: Ints) -> NameColumn:
    lines = zip(known.lines.source, known.lines.function, strict=True)
    return NameColumn(rows, [f"{source} {function}".strip() for source, function in lines])


def overhead(attributed: AttributedCapture, tracks: Tracks) -> Slices:
    """Draw the overhead of the profiler beside its threads, within the recorded time."""
    table = attributed.capture.overhead
    return _beside_threads(
        tracks, table, np.flatnonzero(_is_recorded(attributed, table)), "overhead"
    )


def system_calls(attributed: AttributedCapture, tracks: Tracks) -> Slices:
    """Draw calls of the operating system beside threads with ranges or API calls, within the recorded time."""
    capture = attributed.capture
    table, others = capture.system_calls, (capture.ranges, capture.launches)
    own, *drawn = key_codes(*(tuple(t[c] for c in ("report", "thread")) for t in (table, *others)))
    is_drawn = np.isin(own, np.concatenate([np.unique(code) for code in drawn]))
    rows = np.flatnonzero(is_drawn & _is_recorded(attributed, table))
    return _beside_threads(tracks, table, rows, "osrt")


def lock(attributed: AttributedCapture, tracks: Tracks) -> Slices:
    """Draw when threads held the lock of Python, and waited for it, beside them."""
    ranges = attributed.capture.ranges
    return _beside_threads(tracks, ranges, np.flatnonzero(is_of_lock(ranges)), "gil")


def _is_recorded(attributed: AttributedCapture, table: frames.HostEvents) -> Flags:
    """Return whether each row began between the first and the last event of its file."""
    report, start = table.report, table.start
    spans = [facts.span for facts in attributed.capture.facts]
    first, last = (np.array([span[n] for span in spans]) for n in (0, 1))
    is_recorded: Flags = (start >= first[report]) & (start <= last[report])
    return is_recorded


def _beside_threads(tracks: Tracks, table: frames.HostEvents, rows: Ints, role: str) -> Slices:
    """Draw rows of a frame on tracks of a role beside their threads."""
    host = tracks.host(table.report[rows], table.thread[rows])
    start, duration = times(table)
    lane = nested_lanes(host, start[rows], (start + duration)[rows])
    track = at_rows(tracks.lane(host, lane, role), rows, len(table))
    return make_slices(
        role, rows, track=track, times=(start, duration), name=name_column(table["name"]), args={}
    )


def phases(attributed: AttributedCapture, tracks: Tracks) -> Slices:
    """Draw start/end ranges, which may end on any thread and may overlap."""
    ranges = attributed.capture.ranges
    rows = np.flatnonzero(ranges.kind.among(frames.START_END))
    host = tracks.host(ranges.report[rows], ranges.thread[rows])
    track = at_rows(tracks.lane(host, repeated(0, len(rows)), "ops"), rows, len(ranges))
    return make_slices(
        "phase",
        rows,
        track=track,
        times=times(ranges),
        name=name_column(ranges.name),
        args=_open_args(ranges),
    )


def marks(attributed: AttributedCapture, tracks: Tracks) -> tuple[Slices, list[Slices]]:
    """Draw marks as instants, and samples of counters as curves."""
    recorded = attributed.capture.marks
    host = tracks.host(recorded.report, recorded.thread)
    track = tracks.lane(host, np.zeros(len(recorded), np.int64), "ops")
    time = recorded.time
    all_rows = np.arange(len(recorded))
    span = time, np.zeros_like(time)
    scope = {"scope": _scopes(recorded)}
    slices = make_slices(
        "mark", all_rows, track=track, times=span, name=name_column(recorded["name"]), args=scope
    )
    is_counter = _is_counter(recorded)
    return slices.only(~is_counter), _counters(recorded, slices.only(is_counter), tracks)


# What an instant is drawn across, by the category of its mark; the letters are those of Chrome's format.
MARK_SCOPES = {"thread": "t", "process": "p", "task": "p", "marker": "p", "global": "g"}


def _scopes(marks: frames.Marks) -> NameColumn:
    """Return the scope of each mark: that of its category, else its thread."""
    category = marks.category
    letters = [MARK_SCOPES.get(name, "t") for name in category.texts]
    names = sorted({*MARK_SCOPES.values()})
    code = np.array([*map(names.index, letters), names.index("t")], np.int64)
    return NameColumn(code[category.codes], names)


def frame_rates(attributed: AttributedCapture, tracks: Tracks) -> Slices:
    """Draw how many frames per second begin, a curve per name of frames and process."""
    found, ranges = Frames.of(attributed), attributed.capture.ranges
    known = np.flatnonzero(found.since > 0)
    row = found.row[known]
    host = tracks.host(ranges.report[row], ranges.thread[row])
    track = tracks.first_of_group()[tracks.lane(host, np.zeros(len(row), np.int64), "ops")]
    names = [f"frames/s {name}" for name in ranges.name.texts]
    value = Json(np.arange(len(row)), [f"{rate:.3f}" for rate in found.rate[known].tolist()])
    start = ranges.start[row]
    name = NameColumn(ranges.name.codes[row], names)
    span = start, np.zeros_like(start)
    return make_slices(
        "counter", np.arange(len(row)), track=track, times=span, name=name, args={"value": value}
    )


def _detail_args(ranges: frames.Ranges) -> dict[str, Column]:
    """Return the JSON details of ranges as a column, none if no range has any."""
    details = name_column(ranges.json, empty="")
    return {"details": details} if (details.codes != NONE).any() else {}


def _payload_args(payload: Ints) -> dict[str, Column]:
    """Separate the call ids that bridge's annotations store as payloads from other payloads."""

    def other(payload: Ints) -> Ints:
        return np.where(payload >> CALL_ID_SHIFT == CALL_ID, NONE, payload)

    def call_id(payload: Ints) -> Ints:
        number = payload & ((1 << CALL_ID_SHIFT) - 1)
        return np.where(payload >> CALL_ID_SHIFT == CALL_ID, number, NONE)

    return {"payload": each(other, payload), "call id": each(call_id, payload)}


def _open_args(ranges: frames.Ranges) -> dict[str, Column]:
    """Mark ranges that never ended, which are drawn to the end of the capture."""
    is_open = ranges.open
    return {"open": np.where(is_open, 1, NONE) if is_open.any() else repeated(NONE, len(is_open))}


def _is_counter(marks: frames.Marks) -> Flags:
    return marks.name.matching(lambda name: name.startswith(COUNTER))


def _counters(recorded: frames.Marks, samples: Slices, tracks: Tracks) -> list[Slices]:
    """Return the samples of counters, per process in order of time, whichever thread took them.

    Counters of integers are separate from those with other numbers, which are JSON.
    """
    name = replace(samples.name, names=[n.removeprefix(COUNTER) for n in samples.name.names])
    number, json = recorded.payload, name_column(recorded["json"], empty="")
    name_has_fraction = np.zeros(len(name.names), bool)
    name_has_fraction[name.codes[samples.rows[json.codes[samples.rows] != NONE]]] = True
    has_fraction = lookup(name_has_fraction, name.codes, False)
    distinct, code = np.unique(number, return_inverse=True)
    codes = np.where(json.codes == NONE, len(json.names) + code, json.codes)
    texts = Json(codes, [*json.names, *map(str, distinct.tolist())])
    values: tuple[tuple[Flags, Column], ...] = ((~has_fraction, number), (has_fraction, texts))
    track = tracks.first_of_group()[samples.track]
    times = samples.start, samples.duration
    return [
        make_slices("counter", rows, track=track, times=times, name=name, args={"value": value})
        for of, value in values
        for rows in (samples.rows[of[samples.rows]],)
    ]


# -- Curves of memory, see docs/memory.md


USED, RESERVED = "used", "reserved"


def memory_curves(
    attributed: AttributedCapture,
    tracks: Tracks,
    before: Sequence[Track] = (),
    span: Callable[[int], Span] = parts.all_time,
) -> list[Slices]:
    """Return the curves of all processes, devices and kinds of memory within a span per file.

    A curve is drawn on the first track of its group, among ``before`` (the tracks that precede
    those of ``tracks``) or ``tracks``; a track is added where there is none.
    """
    if not len(attributed.capture.memory):
        return []
    usage = MemoryUsage.of(attributed)
    first_track = {track.group: n for n, track in reversed([*enumerate([*before, *tracks.made])])}
    table, row = attributed.capture.memory, usage.events.row[usage.events.groups]
    columns = (table[c][row].tolist() for c in ("report", "process", "device"))
    keys = zip(*columns, strict=True)
    result = []
    for group, (report, process, device) in enumerate(
        keys
    ):  # one iteration per process, device and kind
        kind = kind_name(usage, group)
        track_group = tracks.group(report, process, device)
        if track_group not in first_track:
            first_track[track_group] = len(before) + tracks.bare(track_group, "memory")
        for label, curve in _memory_levels(usage, group, attributed.capture.facts[report].span[0]):
            name = curve_name(kind, label)
            points = parts.thin_curve(*parts.clip_curve(curve, span(report)))
            result.append(parts.curve_slices(name, [(first_track[track_group], points)]))
    return result


def kind_name(usage: MemoryUsage, group: int) -> str:
    """Return the name of the kind of memory of a group."""
    return frames.MEMORY_KINDS[int(usage.kind_of(np.array([group]))[0])]


def curve_name(kind: str, label: str) -> str:
    """Return the name of a curve, with its unit at the end."""
    return f"{kind} memory {label} (bytes)"


def _memory_levels(
    usage: MemoryUsage, group: int, capture_start: int
) -> Iterator[tuple[str, Curve]]:
    """Yield used and, where known, reserved bytes.

    The used bytes begin with what was allocated before its capture ``began``.
    """
    rows = np.flatnonzero(usage.group == group)
    if not len(rows):
        return
    time = usage.events.time[rows]
    first = min(capture_start, int(time[0]))
    yield USED, (np.append(first, time), np.append(usage.base[group], usage.used[rows]))
    with_reserved = rows[usage.reserved[rows] != NONE]
    if len(with_reserved):
        yield RESERVED, (usage.events.time[with_reserved], usage.reserved[with_reserved])
