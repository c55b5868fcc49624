"""What is drawn of the host: steps, op ranges, phases, API calls, marks and the user's counters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from bridge.analyze.memory import Held
from bridge.analyze.timeline import parts
from bridge.analyze.timeline.parts import (
    Column,
    Curve,
    Json,
    Named,
    Slices,
    Span,
    drawn,
    named,
    times,
)
from bridge.analyze.tracks import Track, Tracks, nested
from bridge.join.arrays import NONE, Flags, Ints, number, outer_first
from bridge.join.attributed import Attributed
from importers import frames
from importers.frames import CALL_ID, CALL_ID_SHIFT, COUNTER


def ops(joined: Attributed, tracks: Tracks) -> Slices:
    """Draw push/pop ranges on the threads that pushed them."""
    ranges = joined.report.ranges
    rows, lane = _laned(joined)
    host = tracks.host(*(frames.ints(ranges, c)[rows] for c in ("report", "thread")))
    track = np.full(len(ranges), NONE)
    track[rows] = tracks.lane(host, lane, "ops")
    args: dict[str, Column] = {
        "domain": named(ranges["domain_name"], empty=""),
        "category": named(ranges["category"], empty=""),
        **_payloads(frames.ints(ranges, "payload")),
        **_details(ranges),
        **_open(ranges),
    }
    return drawn("op", rows, track, times(ranges), named(ranges["name"]), args)


def _laned(joined: Attributed) -> tuple[Ints, Ints]:
    """Return the push/pop ranges in drawing order, and the lane of their thread that each is on."""
    ranges, nesting = joined.report.ranges, joined.attribution.nesting
    rows = np.flatnonzero(frames.is_kind(ranges, frames.PUSH_POP))
    if len(nesting) == len(rows) and not len(nesting.crossed):
        return nesting.range, np.zeros(len(rows), np.int64)  # the join has nested them all
    start, duration = times(ranges)
    report, thread = (frames.ints(ranges, c)[rows] for c in ("report", "thread"))
    home = number(report, thread)[0]
    # Of equal intervals the earlier row is outer; sorting and lanes keep the order of rows.
    order = outer_first(home, start[rows], (start + duration)[rows])
    rows, home = rows[order], home[order]
    return rows, nested(home, start[rows], (start + duration)[rows])


def steps(joined: Attributed, tracks: Tracks) -> Slices:
    """Draw the steps of each process on a track of their own."""
    found = joined.steps
    numbers, code = np.unique(found.number, return_inverse=True)
    home = tracks.steps(found.report, found.process)
    track = tracks.lane(home, np.zeros(len(found), np.int64), "steps")
    name = Named(code.astype(np.int64), [f"step {number}" for number in numbers.tolist()])
    spans = found.start, found.end - found.start
    return drawn("step", np.arange(len(found)), track, spans, name)


def calls(joined: Attributed, tracks: Tracks) -> Slices:
    """Draw CUDA API calls beside their threads."""
    launches = joined.report.launches
    host = tracks.host(*(frames.ints(launches, c) for c in ("report", "thread")))
    start, duration = times(launches)
    track = tracks.lane(host, nested(host, start, start + duration), "api")
    args = {"correlation": frames.ints(launches, "correlation")}
    rows = np.arange(len(launches))
    return drawn("api", rows, track, (start, duration), named(launches["name"]), args)


def overhead(joined: Attributed, tracks: Tracks) -> Slices:
    """Draw the profiler's own work beside its threads: what began while anything was recorded."""
    report = joined.report
    table = report.overhead
    of, start = (frames.ints(table, c) for c in ("report", "start"))
    first, last = (np.array([facts.span[n] for facts in report.facts]) for n in (0, 1))
    rows = np.flatnonzero((start >= first[of]) & (start <= last[of]))
    host = tracks.host(*(frames.ints(table, c)[rows] for c in ("report", "thread")))
    began, duration = times(table)
    lane = nested(host, began[rows], (began + duration)[rows])
    track = np.full(len(table), NONE)
    track[rows] = tracks.lane(host, lane, "overhead")
    return drawn("overhead", rows, track, (began, duration), named(table["name"]), {})


def phases(joined: Attributed, tracks: Tracks) -> Slices:
    """Draw start/end ranges: any thread may end them, and they may overlap."""
    ranges = joined.report.ranges
    rows = np.flatnonzero(frames.is_kind(ranges, frames.START_END))
    track = np.full(len(ranges), NONE)
    host = tracks.host(*(frames.ints(ranges, c)[rows] for c in ("report", "thread")))
    track[rows] = tracks.lane(host, np.zeros(len(rows), np.int64), "ops")
    return drawn("phase", rows, track, times(ranges), named(ranges["name"]), _open(ranges))


def marks(joined: Attributed, tracks: Tracks) -> tuple[Slices, list[Slices]]:
    """Draw marks as instants, and the samples of counters as curves."""
    recorded = joined.report.marks
    host = tracks.host(*(frames.ints(recorded, c) for c in ("report", "thread")))
    track = tracks.lane(host, np.zeros(len(recorded), np.int64), "ops")
    time = frames.ints(recorded, "time")
    every = np.arange(len(recorded))
    found = drawn("mark", every, track, (time, np.zeros_like(time)), named(recorded["name"]))
    is_counter = _is_counter(recorded)
    return found.only(~is_counter), _counters(recorded, found.only(is_counter), tracks)


def _details(ranges: pd.DataFrame) -> dict[str, Column]:
    """Return what is attached to ranges as JSON; where nothing is, no column that would take time to print."""
    details = named(ranges["json"], empty="")
    return {"details": details} if (details.codes != NONE).any() else {}


def _payloads(payload: Ints) -> dict[str, Column]:
    """Part the ids of calls, which the annotations of ours carry, from payloads of the user's."""
    is_call = payload >> CALL_ID_SHIFT == CALL_ID
    number = payload & ((1 << CALL_ID_SHIFT) - 1)
    return {"payload": np.where(is_call, NONE, payload), "call": np.where(is_call, number, NONE)}


def _open(ranges: pd.DataFrame) -> dict[str, Column]:
    """Mark what never ended: it is drawn up to the end of the capture."""
    return {"open": np.where(ranges["open"].to_numpy(), 1, NONE)}


def _is_counter(marks: pd.DataFrame) -> Flags:
    of_counter = np.array([name.startswith(COUNTER) for name in marks["name"].cat.categories], bool)
    return np.append(of_counter, False)[frames.codes(marks["name"])]


def _counters(recorded: pd.DataFrame, samples: Slices, tracks: Tracks) -> list[Slices]:
    """Return the samples of counters, those of a process in order of time, whichever thread took them.

    Counters of integers come apart from those that have any other number, which are JSON.
    """
    name = replace(samples.name, names=[n.removeprefix(COUNTER) for n in samples.name.names])
    number, json = frames.ints(recorded, "payload"), named(recorded["json"], empty="")
    has_real = np.zeros(len(name.names), bool)
    has_real[name.codes[samples.rows[json.codes[samples.rows] != NONE]]] = True
    real = np.append(has_real, False)[name.codes]
    whole, code = np.unique(number, return_inverse=True)
    codes = np.where(json.codes == NONE, len(json.names) + code, json.codes)
    texts = Json(codes, [*json.names, *map(str, whole.tolist())])
    values: tuple[tuple[Flags, Column], ...] = ((~real, number), (real, texts))
    track = tracks.first_of_group()[samples.track]
    times = samples.start, samples.duration
    return [
        drawn("counter", rows, track, times, name, {"value": value})
        for of, value in values
        for rows in (samples.rows[of[samples.rows]],)
    ]


# -- Curves of memory: what each process or device held, by kind, as docs/memory.md counts it


USED, RESERVED = "used", "reserved"


def of_memory(
    joined: Attributed,
    tracks: Tracks,
    before: Sequence[Track] = (),
    span: Callable[[int], Span] = parts.ever,
) -> list[Slices]:
    """Return the curves of all processes, devices and kinds of memory within a span of time of each report.

    They lie on the first track of their group, ``before`` those of ``tracks`` or among these; where there
    is none, one is made.
    """
    if not len(joined.report.memory):
        return []
    held = Held.of(joined)
    first = {track.group: n for n, track in reversed([*enumerate([*before, *tracks.made])])}
    table, row = joined.report.memory, held.events.row[held.events.groups]
    columns = (frames.ints(table, c)[row].tolist() for c in ("report", "process", "device"))
    keys = zip(*columns, strict=True)
    found = []
    for group, (report, process, device) in enumerate(keys):  # a turn per process, device and kind
        kind = kind_name(held, group)
        home = tracks.group(report, process, device)
        if home not in first:
            first[home] = len(before) + tracks.bare(home, "memory")
        for what, curve in _levels(held, group, joined.report.facts[report].span[0]):
            name = curve_name(kind, what)
            shown = parts.thinned(*parts.within(curve, span(report)))
            found.append(parts.shown(name, [(first[home], shown)]))
    return found


def kind_name(held: Held, group: int) -> str:
    """Return what the kind of a group is called."""
    return frames.MEMORY_KINDS[int(held.kind_of(np.array([group]))[0])]


def curve_name(kind: str, what: str) -> str:
    """Return the name of a curve; its unit is at the end."""
    return f"{kind} memory {what} (bytes)"


def _levels(held: Held, group: int, began: int) -> Iterator[tuple[str, Curve]]:
    """Yield what was used and, where that is known, reserved; used begins with what was held before its capture ``began``."""
    rows = np.flatnonzero(held.group == group)
    if not len(rows):
        return
    time = held.events.time[rows]
    first = min(began, int(time[0]))
    yield USED, (np.append(first, time), np.append(held.base[group], held.used[rows]))
    known = rows[held.reserved[rows] != NONE]
    if len(known):
        yield RESERVED, (held.events.time[known], held.reserved[known])
