"""What the host did in parts of a run: by op, CUDA call and call of the operating system."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bridge.analyze.core.groups import ratio, sums, texts
from bridge.analyze.core.table import Table
from bridge.analyze.run.account import RunClocks, Span, runs, spans_of_processes
from bridge.analyze.run.causes.host_timeline import call_ends
from bridge.analyze.run.causes.operating_system import outer_calls, stacks_of
from bridge.analyze.run.parts import Parts
from bridge.importers import frames
from bridge.importers.arrays import lookup
from bridge.importers.records import record
from bridge.join.arrays import NONE, Ints, number_groups
from bridge.join.attributed import AttributedCapture, once

# In which call the host was, or that its process had not begun, or had ended.
NO_CALL, CUDA, SYSTEM, NOT_BEGUN, ENDED = KINDS = (
    *("", "CUDA call", "OS call", "process has not begun", "process has ended"),
)
KIND = {name: number for number, name in enumerate(KINDS)}


@record
class HostTime:
    """The time of one thread in parts of a run: a row per part, innermost range and outermost call, in ns.

    ``range`` is a code into ``ranges``: ops, and names of ranges that are none, such as those of MPI. ``call`` is one
    into ``calls``; NONE for none. ``kind`` is a position in `KINDS`. A call of the operating system within a CUDA call
    is part of that.
    """

    part: Ints
    range: Ints
    kind: Ints
    call: Ints
    time: Ints
    ranges: tuple[str, ...]
    calls: tuple[str, ...]


def by_part(attributed: AttributedCapture) -> Table:
    """Return one row per part of the run, range and call in which the main thread was.

    ``time_ns`` of the rows of a part adds up to the part, ``share`` is relative to it, ``run_share`` to the run.
    ``call`` is the outermost call, ``kind`` one of `KINDS`. A selected part of the run is one part. There is no row
    where reports have several clocks.
    """
    parts, found = Parts.of_run(attributed), runs(attributed)
    named = parts.by_name if parts else {"selected": (found[0].part,)} if len(found) == 1 else {}
    times = [(name, Span(*time)) for name, part in named.items() for time in part]
    lasting = sorted(((n, t) for n, t in times if t.length), key=lambda one: one[1])
    host = host_time(attributed, [time for _, time in lasting])
    number = {name: at for at, name in enumerate(named)}
    of_span = np.array([number[name] for name, _ in lasting], np.int64)
    part = of_span[host.part]
    group, first = number_groups(part, host.range, host.kind, host.call)
    time = sums(group, host.time, len(first))
    lengths = np.array([sum(t.length for n, t in lasting if n == name) for name in named], np.int64)
    return Table(
        {
            "part": texts([*named, ""])[part[first]],
            "range": texts([*host.ranges, ""])[host.range[first]],
            "call": texts([*host.calls, ""])[host.call[first]],
            "kind": texts(KINDS)[host.kind[first]],
            "time_ns": time,
            "share": ratio(time, lengths[part[first]]),
            "run_share": ratio(time, int(lengths.sum())),
        }
    )


@record
class Calls:
    """The outermost calls of a thread in order of time: rows of a frame, starts and ends in ns."""

    row: Ints
    start: Ints
    end: Ints

    def at(self, time: Ints) -> Ints:
        """Return the row of the call that is open at each instant, NONE for none."""
        return lookup(self.row, _interval_at(time, self.start, self.end))


class MainThread(NamedTuple):
    """The stack in the nesting of a thread, its report and its process; NONE, 0 and NONE for no thread."""

    stack: int
    report: int
    process: int


@once
def main_thread(attributed: AttributedCapture) -> MainThread:
    """Return the thread that makes most CUDA calls, or without any has most ranges.

    Of threads with as many the one with the lower id counts.
    """
    calls, ranges = attributed.capture.launches, attributed.capture.ranges
    table: frames.HostEvents = calls
    stack = attributed.attribution.stack
    rows = np.arange(len(calls))
    if not len(stack):
        nesting = attributed.attribution.nesting
        stack, table, rows = nesting.stack, ranges, nesting.range
    rows, stack = rows[stack != NONE], stack[stack != NONE]
    if not len(stack):
        return MainThread(NONE, 0, NONE)
    used, first, count = np.unique(stack, return_index=True, return_counts=True)
    thread = table.thread[rows[first]]
    most = np.lexsort((thread, -count))[0]
    row = rows[first[most]]
    report, process = (int(table[column][row]) for column in ("report", "process"))
    return MainThread(int(used[most]), report, process)


def host_time(attributed: AttributedCapture, parts: Sequence[Span]) -> HostTime:
    """Return what the main thread did in parts of the run; they do not overlap, and are on the clock of the run."""
    (stack, report, _), nesting = main_thread(attributed), attributed.attribution.nesting
    clocks = RunClocks.of(attributed)
    launches, system = attributed.capture.launches, attributed.capture.system_calls
    own = np.flatnonzero(nesting.stack == stack)
    api = _outer_calls(attributed.attribution.stack == stack, launches, call_ends(attributed))
    of_system = _outer_calls(stacks_of(attributed, system) == stack, system, system.end)
    of_libraries = _library_ranges(attributed, stack)
    own_times = sorted(clocks.in_report(part, report) for part in parts)
    bounds = np.array(own_times, np.int64).reshape(-1, 2)
    times = [nesting.start[own], nesting.end[own]]
    times += [time for calls in (api, of_system, of_libraries) for time in (calls.start, calls.end)]
    edges = np.unique(np.concatenate([bounds.ravel(), *times]))
    place = _interval_at(edges[:-1], *bounds.T)
    inside = np.flatnonzero(place != NONE)
    begin, length = edges[inside], np.diff(edges)[inside]
    part, in_range = place[inside], _range_at(attributed, stack, begin, of_libraries)
    in_api, in_system = api.at(begin), of_system.at(begin)
    api_names, system_names = launches.name.texts, system.name.texts
    of_api = lookup(launches.name.codes, in_api)
    of_os = lookup(system.name.codes + len(api_names), in_system)
    alive = _lifetime(attributed, report)
    kind = np.select(
        [in_api != NONE, in_system != NONE, begin < alive.start, begin >= alive.end],
        [KIND[CUDA], KIND[SYSTEM], KIND[NOT_BEGUN], KIND[ENDED]],
        KIND[NO_CALL],
    )
    call = np.where(in_api != NONE, of_api, of_os)
    group, first = number_groups(part, in_range, kind, call)
    return HostTime(
        part=part[first],
        range=in_range[first],
        kind=kind[first],
        call=call[first],
        time=sums(group, length, len(first)),
        ranges=(*attributed.ops, *attributed.capture.ranges.name.texts),
        calls=(*api_names, *system_names),
    )


def _lifetime(attributed: AttributedCapture, report: int) -> Span:
    """Return the time from the first event to the last of the process of the main thread."""
    process = main_thread(attributed).process
    spans = spans_of_processes(attributed.capture, report)
    alive = spans.get(process, Span(0, 0))
    of_system = attributed.capture.facts[report].system_spans.get(process)
    return alive | Span(*of_system) if of_system else alive


def _range_at(attributed: AttributedCapture, stack: int, time: Ints, of_libraries: Calls) -> Ints:
    """Return the range of a library that a thread is in at each instant, else the op; codes of `HostTime.ranges`."""
    nesting = attributed.attribution.nesting
    node = nesting.innermost(np.full(len(time), stack), time)
    node[lookup(nesting.stack, node) != stack] = NONE  # a range that adopts the thread
    op = lookup(attributed.node_op, node)
    row = of_libraries.at(time)
    name = lookup(attributed.capture.ranges.name.codes, row)
    return np.where(row == NONE, op, name + len(attributed.ops))


def _outer_calls(of_thread: np.ndarray, table: frames.HostEvents, end: Ints) -> Calls:
    start = table.start
    rows = outer_calls(np.where(of_thread, 0, NONE), start, end)
    return Calls(rows, start[rows], end[rows])


def _library_ranges(attributed: AttributedCapture, stack: int) -> Calls:
    """Return the outermost ranges of libraries, such as those of MPI, on a thread."""
    ranges = attributed.capture.ranges
    is_call = ranges.kind.among(frames.PUSH_POP) & (attributed.op == NONE)
    of_thread = stacks_of(attributed, ranges) == stack
    return _outer_calls(of_thread & is_call, ranges, ranges.end)


def _interval_at(time: Ints, start: Ints, end: Ints) -> Ints:
    """Return which of some intervals, in order and apart, holds each instant; NONE for none."""
    place = np.searchsorted(start, time, side="right") - 1
    is_inside = (place >= 0) & (time < lookup(end, place, 0))
    return np.where(is_inside, place, NONE)
